// The cores that this process may use (core/parallel.h).
#include <sched.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

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

namespace detail {

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
