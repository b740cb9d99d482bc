#include "profiler/roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/atomic_file.h"
#include "core/cache.h"
#include "core/device/cpu_gemm.h"
#include "core/device/cuda.h"
#include "core/error.h"
#include "core/parallel.h"

namespace sinter::profiler {
namespace {

// The file: a line of what the roofs were measured on, then a number a line.
constexpr std::pair<const char*, double Roofs::*> kNumbers[] = {
    {"f32_gflops", &Roofs::f32_gflops},
    {"bf16_gflops", &Roofs::bf16_gflops},
    {"cache_gbs", &Roofs::cache_gbs},
    {"dram_gbs", &Roofs::dram_gbs},
    {"op_ns", &Roofs::op_ns},
    {"floor_ns", &Roofs::floor_ns},
    {"node_gap_ns", &Roofs::node_gap_ns},
    {"scope_ns", &Roofs::scope_ns},
    {"event_ns", &Roofs::event_ns},
    {"spread", &Roofs::spread},
    {"others_cores", &Roofs::others_cores},
    {"beaten", &Roofs::beaten},
};

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown cpu";
}

}  // namespace

std::string roofs_key(Device device) {
#if defined(__OPTIMIZE__)
  const char* build = "optimised";
#else
  const char* build = "debug";
#endif
  const std::string where = device == kCpu ? cat(num_threads(), " threads, ", gemm_backend_name())
                                           : cuda::card_facts().text;
  return cat(
      "roofs/3 ", device.str(), ", ", cpu_name(), ", ", where, ", ", build, " ", __VERSION__);
}

std::string roofs_file(Device device) { return cache_file("roofs", roofs_key(device)); }

std::optional<Roofs> stored_roofs(Device device) {
  if (device.type == Device::Type::simt) return {};
  std::ifstream in(roofs_file(device));
  Roofs roofs;
  std::string name;
  if (!std::getline(in, roofs.key) || roofs.key != roofs_key(device)) return {};
  if (!(in >> name >> roofs.cache_bytes) || name != "cache_bytes") return {};
  for (const auto& [wanted, member] : kNumbers) {
    if (!(in >> name >> roofs.*member) || name != wanted) return {};
  }
  if (roofs.f32_gflops <= 0) return {};
  return roofs;
}

void save_roofs(const Roofs& roofs, const std::string& file) {
  SINTER_CHECK(!roofs.loaded, untrusted,
      fmt::format("roofs: measured beside other programs, which kept {:.1f} cores busy: not kept",
          roofs.others_cores),
      "again when nothing else runs");
  std::string text = roofs.key + "\ncache_bytes " + std::to_string(roofs.cache_bytes) + "\n";
  for (const auto& [name, member] : kNumbers) text += cat(name, " ", roofs.*member, "\n");
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  write_file(file, text);
}

double Ceiling::work_ns(const Cost& cost) const {
  if (!known()) return 0;
  return std::max(double(cost.flops) / flops_per_ns, double(cost.bytes()) / bytes_per_ns);
}

bool Ceiling::compute_is_nearer(const Cost& cost) const {
  return known() && double(cost.flops) / flops_per_ns >= double(cost.bytes()) / bytes_per_ns;
}

double Ceiling::predicted_ns(int64_t launches, const Cost& cost) const {
  return known() ? double(launches) * floor_ns + work_ns(cost) : 0;
}

double Ceiling::share(const Cost& cost, double ns) const { return ns > 0 ? work_ns(cost) / ns : 0; }

}  // namespace sinter::profiler
