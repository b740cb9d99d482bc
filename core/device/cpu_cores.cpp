// The cores that this process may use, and whether they have other work; and how long threads wait
// by spinning (core/parallel.h).
#include <dlfcn.h>
#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "core/classic.h"
#include "core/parallel.h"

namespace sinter {
namespace {

// The quota of one cgroup, in cores; infinite without a limit. Version 2 has "QUOTA|max PERIOD" in
// one file, version 1 has two files, the quota being -1 without a limit.
double quota_of(const std::filesystem::path& group) {
  double quota = 0, period = 0;
  ClassicStream<std::ifstream> both(group / "cpu.max"), first(group / "cpu.cfs_quota_us"),
      second(group / "cpu.cfs_period_us");
  const bool is_limit = (both >> quota >> period) || (first >> quota && second >> period);
  return is_limit && quota > 0 && period > 0 ? quota / period
                                             : std::numeric_limits<double>::infinity();
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int by_affinity =
      sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  const char* const given = std::getenv("OMP_NUM_THREADS");
  const int by_user = given ? std::atoi(given) : 0;  // of a list, for nested parts, the first
  return std::min({by_affinity, by_user > 0 ? by_user : INT_MAX, detail::quota_cores("")});
}

void restart_with_short_spin(char** argv) {
  // Where there is no libgomp, nobody spins.
  if (!dlsym(RTLD_DEFAULT, "GOMP_parallel") || std::getenv("OMP_WAIT_POLICY") ||
      std::getenv("GOMP_SPINCOUNT"))
    return;
  // A program that the dynamic loader was asked to run, by its name on the command line, is not
  // what exe points to.
  if (getauxval(AT_BASE) == 0) return;
  // Looked at twice: what has just started this program may still run, and is not there to stay.
  bool busy = detail::others_run("");
  if (busy) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    busy = detail::others_run("");
  }
  if (setenv("GOMP_SPINCOUNT", busy ? "300" : "12000", 1) == 0) execv("/proc/self/exe", argv);
}

namespace detail {

bool others_run(const std::string& root) {
  // "0.15 0.40 0.80 2/190 4711": 2 of 190 are running.
  ClassicStream<std::ifstream> file(root + "/proc/loadavg");
  std::string averages[3];
  int running = 0;
  file >> averages[0] >> averages[1] >> averages[2] >> running;
  return !file || running > 1;
}

int quota_cores(const std::string& root) {
  double cores = std::numeric_limits<double>::infinity();
  ClassicStream<std::ifstream> groups(root + "/proc/self/cgroup");
  // A line is "0::/path" of version 2, or "4:cpu,cpuacct:/path" of version 1.
  for (std::string line; std::getline(groups, line);) {
    const size_t controllers = line.find(':') + 1, path = line.find(':', controllers) + 1;
    if (controllers == 0 || path == 0) continue;
    const std::string names = "," + line.substr(controllers, path - controllers - 1) + ",";
    std::filesystem::path mounted = root + "/sys/fs/cgroup";
    if (names.find(",cpu,") != std::string::npos)
      mounted /= "cpu";
    else if (names != ",,")
      continue;
    // A limit holds for all groups below. A container may see the path as the host has it, and its
    // own limit on top.
    std::filesystem::path group = std::filesystem::path(line.substr(path)).relative_path();
    cores = std::min(cores, quota_of(mounted));
    for (; !group.empty(); group = group.parent_path())
      cores = std::min(cores, quota_of(mounted / group));
  }
  return cores < INT_MAX ? std::max(1, int(cores)) : INT_MAX;
}

}  // namespace detail
}  // namespace sinter
