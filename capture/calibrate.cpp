#include "capture/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "core/atomic_file.h"
#include "core/device/cpu_gemm.h"
#include "core/device/cuda.h"
#include "core/device/memory.h"
#include "core/device/timing.h"
#include "core/error.h"
#include "core/parallel.h"
#include "ops/ops.h"
#include "profiler/session.h"

namespace sinter::capture {
namespace {

using Clock = std::chrono::steady_clock;
using profiler::Roofs;

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
};

// ns of one call of work(): the best of what fits `ms`, at least three batches of `calls`; other load only ever adds.
template <class F>
double best_ns(Device device, double ms, int calls, F&& work) {
  double best = std::numeric_limits<double>::infinity();
  work();
  synchronize(device);
  const auto end = Clock::now() + std::chrono::duration<double, std::milli>(ms);
  for (int batch = 0; batch < 3 || Clock::now() < end; ++batch) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) work();
    synchronize(device);
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / calls);
  }
  return best;
}

// Uniform in [-1, 1): zeros cost less power, so that a card would not have to lower its clock.
Tensor noise(const Shape& shape) {
  const Tensor t = Tensor::empty(shape, DType::f32);
  uint64_t state = 1;
  for (int64_t i = 0; i < t.numel(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    t.data<float>()[i] = static_cast<float>(state >> 40) * 0x1p-23f - 1;
  }
  return t;
}

double gemm_gflops(Device device, DType dtype, std::initializer_list<int64_t> sizes) {
  double best = 0;
  for (const int64_t n : sizes) {
    const Tensor a = cast(noise({n, n}), dtype).to(device), b = cast(noise({n, n}), dtype).to(device);
    best = std::max(best, 2 * static_cast<double>(n * n * n) / best_ns(device, 40, device == kCpu ? 1 : 8, [&] { matmul(a, b); }));
  }
  return best;
}

// bytes: read and written together
double copy_gbs(Device device, int64_t bytes) {
  const Tensor x = noise({std::max<int64_t>(bytes / 8, 1)}).to(device);
  const int calls = bytes < int64_t{64} << 20 ? 8 : 1;
  const double ns = std::min(best_ns(device, 20, calls, [&] { copy(x); }), best_ns(device, 20, calls, [&] { scale(x, 1.5); }));
  return static_cast<double>(8 * x.numel()) / ns;
}

int64_t cpu_cache_bytes() {
  const int64_t l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return l3 > 0 ? l3 : l2 > 0 ? l2 : int64_t{8} << 20;
}

// An op that has next to nothing to do, as a training step runs it: recorded, and differentiated.
double op_ns(Device device) {
  constexpr int kOps = 32;
  const GradMode on(true);
  Tensor one = Tensor::zeros({1}, DType::f32).to(device);
  one.set_requires_grad(true);
  const double ns = best_ns(device, 10, 8, [&] {
    Tensor x = one;
    for (int i = 0; i < kOps; ++i) x = scale(x, 1.0);
    backward(x);
  });
  return ns / (2 * kOps + 1);  // and the sum of the gradients
}

// A kernel that has next to nothing to do, and the gap between two nodes of a CUDA graph. Only where the device keeps records of its own
// the two come apart.
void measure_node(Device device, Roofs& roofs) {
  constexpr int kNodes = 64;
  const auto chain = [&](const Tensors& in) {
    Tensor x = in[0];
    for (int i = 0; i < kNodes; ++i) x = scale(x, 1.0);
    return Tensors{x};
  };
  Step step(chain, {.rules = RuleSet("none")});
  const Tensors in{Tensor::zeros({32}, DType::f32).to(device)};
  for (int i = 0; i < 3; ++i) step(in);
  roofs.floor_ns = best_ns(device, 20, 8, [&] { step(in); }) / kNodes;
  profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 8}, .device = device, .replayed = true});
  for (; !session.done(); session.step()) step(in);
  const profiler::Report report = session.finish();
  if (report.source != profiler::Source::cupti || !report.incomplete.empty()) return;
  double kernels = 0;
  for (const profiler::OpCall& call : report.rows().calls) kernels += static_cast<double>(call.device_ns) / (8 * kNodes);
  roofs.node_gap_ns = std::max(0.0, roofs.floor_ns - kernels);
  roofs.floor_ns -= roofs.node_gap_ns;
}

// What timing a launch costs the host.
double event_ns() {
  constexpr int kLaunches = 4096;
  std::string why;
  const std::unique_ptr<DeviceTimer> timer = cuda::make_timer(kLaunches, why);
  const auto begin = Clock::now();
  for (int i = 0; i < kLaunches; ++i) timer->has_records() ? (timer->submitting(1), timer->submitted()) : void(timer->mark());
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kLaunches;
  timer->wait();
  return ns;
}

double scope_ns() {
  constexpr int kScopes = 4096;
  profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 2}});
  double best = 0;
  for (; !session.done(); session.step()) {
    const auto begin = Clock::now();
    for (int i = 0; i < kScopes; ++i) const profiler::Scope scope("calibrate");
    best = std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kScopes;
  }
  return best;
}

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown cpu";
}

std::string key_of(Device device) {
#if defined(__OPTIMIZE__)
  const char* build = "optimised";
#else
  const char* build = "debug";
#endif
  const std::string where = device == kCpu ? cat(num_threads(), " threads, ", gemm_backend_name()) : cuda::card_facts().text;
  return cat("roofs/2 ", device.str(), ", ", cpu_name(), ", ", where, ", ", build, " ", __VERSION__);
}

}  // namespace

Roofs calibrate(Device device) {
  SINTER_CHECK(device.type != Device::Type::simt, usage, "calibrate: simt emulates threads: its times mean nothing",
               "--device cpu or cuda");
  const bool cpu = device == kCpu;
  Roofs roofs{.key = key_of(device)};
  roofs.cache_bytes = cpu ? cpu_cache_bytes() : cuda::card_facts().l2_bytes;
  roofs.f32_gflops = cpu ? gemm_gflops(device, DType::f32, {384, 768}) : gemm_gflops(device, DType::f32, {4096});
  roofs.bf16_gflops = cpu ? gemm_gflops(device, DType::bf16, {512}) : gemm_gflops(device, DType::bf16, {8192});
  roofs.cache_gbs = copy_gbs(device, std::min<int64_t>(roofs.cache_bytes / 4, 4 << 20));
  roofs.dram_gbs = copy_gbs(device, std::clamp<int64_t>(4 * roofs.cache_bytes, int64_t{64} << 20, int64_t{512} << 20));
  roofs.op_ns = op_ns(device);
  if (!cpu) measure_node(device, roofs), roofs.event_ns = event_ns();
  roofs.scope_ns = scope_ns();
  return roofs;
}

std::string roofs_file(Device device) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const std::string root = cache && *cache ? cache : home && *home ? std::string(home) + "/.cache" : "";
  if (root.empty()) return "";
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : key_of(device)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return root + "/sinter/roofs-" + std::to_string(hash) + ".txt";
}

void save_roofs(const Roofs& roofs, const std::string& file) {
  std::string text = roofs.key + "\ncache_bytes " + std::to_string(roofs.cache_bytes) + "\n";
  for (const auto& [name, member] : kNumbers) text += cat(name, " ", roofs.*member, "\n");
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  write_file(file, text);
}

Roofs calibrated(Device device, bool* fresh) {
  if (fresh) *fresh = false;
  const std::string file = roofs_file(device);
  std::ifstream in(file);
  Roofs roofs;
  std::string name;
  if (!file.empty() && std::getline(in, roofs.key) && roofs.key == key_of(device) && in >> name >> roofs.cache_bytes &&
      name == "cache_bytes") {
    size_t read = 0;
    for (const auto& [wanted, member] : kNumbers) read += in >> name >> roofs.*member && name == wanted;
    if (read == std::size(kNumbers) && roofs.f32_gflops > 0) return roofs;
  }
  roofs = calibrate(device);
  if (fresh) *fresh = true;
  if (!file.empty()) {
    try {
      save_roofs(roofs, file);
    } catch (const std::exception&) {  // measured again next time
    }
  }
  return roofs;
}

}  // namespace sinter::capture
