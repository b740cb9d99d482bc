#include "profiler/roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/atomic_file.h"
#include "core/cache.h"
#include "core/classic.h"
#include "core/device/cpu_gemm.h"
#include "core/device/cuda.h"
#include "core/error.h"
#include "core/json.h"
#include "core/parallel.h"

namespace sinter::profiler {
namespace {

std::string cpu_name() {
  ClassicStream<std::ifstream> cpuinfo("/proc/cpuinfo");
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
  const std::string where = device == kCpu
                                ? str(count_of(num_threads(), "thread"), ", ", gemm_backend_name())
                                : cuda::card_facts().text;
  return str(
      "roofs/3 ", device.str(), ", ", cpu_name(), ", ", where, ", ", build, " ", __VERSION__);
}

std::string roofs_file(Device device) { return cache_file("roofs", roofs_key(device)); }

std::optional<Roofs> stored_roofs(Device device) {
  if (device.type == Device::Type::simt) return {};
  ClassicStream<std::ifstream> in(roofs_file(device));
  const Json json = Json::parse(in, nullptr, false);
  Roofs roofs;
  try {
    read_json(json, roofs, "roofs");
  } catch (const Error&) {  // none, or an earlier build's
    return {};
  }
  if (roofs.key != roofs_key(device) || roofs.f32_gflops <= 0) return {};
  return roofs;
}

void save_roofs(const Roofs& roofs, const std::string& file) {
  SINTER_CHECK(!roofs.loaded, untrusted,
      fmt::format("roofs: measured while other programs kept {:.1f} cores busy: not kept",
          roofs.others_cores),
      "again when nothing else runs");
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  write_file(file, json_text(roofs, 1) + "\n");
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
