#include "measure/calibrate.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "core/classic.h"
#include "core/device/cuda.h"
#include "core/device/memory.h"
#include "core/device/timing.h"
#include "core/error.h"
#include "core/parallel.h"
#include "measure/timer.h"
#include "ops/ops.h"
#include "profiler/session.h"
#include "profiler/stats.h"
#include "profiler/thresholds.h"

namespace sinter::measure {
namespace {

using profiler::kLoad, profiler::Roofs;

// Builds that look for errors are ten to a hundred times as slow, and what they measure is used by
// tests only: they measure once, on less memory.
#ifdef NDEBUG
constexpr int kMostAttempts = 3;
constexpr int64_t kMostCopied = int64_t{512} << 20;
#else
constexpr int kMostAttempts = 1;
constexpr int64_t kMostCopied = int64_t{32} << 20;
#endif

// Of the calibration that goes on: how unsteady its worst kind was.
thread_local double worst_spread = 0;

// ns of one call of work(): the best of what fits `ms`, at least three batches of `calls`; other
// load only ever adds.
template <class F> double best_ns(Device device, double ms, int calls, F&& work) {
  std::vector<double> batches;
  work();
  synchronize(device);
  const Timer all;
  while (batches.size() < 3 || all.seconds() < 1e-3 * ms) {
    batches.push_back(ns_per_call(device, calls, work));
  }
  const double best = *std::ranges::min_element(batches);
  worst_spread = std::max(worst_spread, profiler::median(batches) / best - 1);
  return best;
}

// Uniform in [-1, 1): zeros cost less power, so that a card would not have to lower its clock. It
// repeats: a tensor larger than the caches would take longer to draw than to measure.
Tensor noise(const Shape& shape) {
  const Tensor t = Tensor::empty(shape, DType::f32),
               part = cast(sample_tensor({1 << 16}, 1, -1, 1), DType::f32);
  for (int64_t i = 0; i < t.numel(); i += part.numel())
    std::copy_n(part.data<float>(), std::min(part.numel(), t.numel() - i), t.data<float>() + i);
  return t;
}

double gemm_gflops(Device device, DType dtype, const std::vector<int64_t>& sizes) {
  double best = 0;
  for (const int64_t n : sizes) {
    const Tensor a = cast(noise({n, n}), dtype).to(device),
                 b = cast(noise({n, n}), dtype).to(device);
    best = std::max(best,
        2 * double(n * n * n) / best_ns(device, 40, device == kCpu ? 1 : 8, [&] { matmul(a, b); }));
  }
  return best;
}

// bytes: read and written together
double copy_gbs(Device device, int64_t bytes) {
  const Tensor x = noise({std::max<int64_t>(bytes / 8, 1)}).to(device);
  const int calls = bytes < int64_t{64} << 20 ? 8 : 1;
  const double ns = std::min(best_ns(device, 20, calls, [&] { copy(x); }),
      best_ns(device, 20, calls, [&] { scale(x, 1.5); }));
  return double(8 * x.numel()) / ns;
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

// A kernel that has next to nothing to do, and the gap between two nodes of a CUDA graph. Only
// where the device keeps records of its own the two come apart.
void measure_node(Device device, Roofs& roofs) {
  constexpr int kNodes = 64;
  const auto chain = [&](const Tensors& in) {
    Tensor x = in[0];
    for (int i = 0; i < kNodes; ++i) x = scale(x, 1.0);
    return Tensors{x};
  };
  capture::Step step(chain, {.rules = capture::RuleSet("none")});
  const Tensors in{Tensor::zeros({32}, DType::f32).to(device)};
  for (int i = 0; i < 2; ++i) step(in);
  roofs.floor_ns = best_ns(device, 20, 8, [&] { step(in); }) / kNodes;
  profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 8}, .device = device});
  for (; !session.done(); session.step()) step(in);
  const profiler::Report report = session.finish();
  if (report.source != profiler::Source::cupti || !report.incomplete.empty()) return;
  double kernels = 0;
  for (const profiler::OpCall& call : report.rows().calls)
    kernels += double(call.device_ns) / (8 * kNodes);
  roofs.node_gap_ns = std::max(0.0, roofs.floor_ns - kernels);
  roofs.floor_ns -= roofs.node_gap_ns;
}

// What timing a launch costs the host.
double event_ns() {
  std::string why;
  const std::unique_ptr<DeviceTimer> timer = cuda::make_timer(why);
  const double ns = ns_per_call(kCpu, 4096, [&timer] {
    timer->submitting(1);
    timer->submitted();
  });
  timer->wait();
  return ns;
}

double scope_ns() {
  profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 16}});
  double best = INFINITY;
  for (; !session.done(); session.step()) {
    best = std::min(best, ns_per_call(kCpu, 512, [] { const profiler::Scope scope("calibrate"); }));
  }
  return best;
}

}  // namespace

double busy_seconds(const std::string& proc_stat) {
  ClassicStream<std::istringstream> in(proc_stat);
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, waits_for_disk = 0, irq = 0, softirq = 0,
         stolen = 0;
  in >> cpu >> user >> nice >> system >> idle >> waits_for_disk >> irq >> softirq >> stolen;
  return (user + nice + system + irq + softirq + stolen) / double(sysconf(_SC_CLK_TCK));
}

bool is_loaded(double others_cores, int threads, int cores) {
  return others_cores > std::max(0, cores - threads) + kLoad;
}

namespace {

// Seconds of this process on all cores, and of all programs.
std::pair<double, double> cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  ClassicStream<std::ifstream> stat("/proc/stat");
  std::string line;
  std::getline(stat, line);
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), busy_seconds(line)};
}

Roofs calibrate_once(Device device) {
  const Timer timer;
  const auto [own_before, all_before] = cpu_seconds();
  worst_spread = 0;
  const bool cpu = device == kCpu;
  Roofs roofs{.key = profiler::roofs_key(device)};
  roofs.cache_bytes = cpu ? cpu_cache_bytes() : cuda::card_facts().l2_bytes;
  using Sizes = std::vector<int64_t>;
  roofs.f32_gflops = gemm_gflops(device, DType::f32, cpu ? Sizes{384, 768} : Sizes{4096});
  roofs.bf16_gflops = gemm_gflops(device, DType::bf16, {cpu ? 512 : 8192});
  roofs.cache_gbs = copy_gbs(device, std::min<int64_t>(roofs.cache_bytes / 4, 4 << 20));
  constexpr int64_t kLeastCopied = kMostCopied / 8;
  roofs.dram_gbs = copy_gbs(device, std::clamp(4 * roofs.cache_bytes, kLeastCopied, kMostCopied));
  roofs.op_ns = op_ns(device);
  if (!cpu) {
    measure_node(device, roofs);
    roofs.event_ns = event_ns();
  }
  roofs.scope_ns = scope_ns();
  const auto [own, all] = cpu_seconds();
  roofs.spread = worst_spread;
  roofs.others_cores = std::max(0.0, (all - all_before) - (own - own_before)) / timer.seconds();
  const int cores = int(sysconf(_SC_NPROCESSORS_ONLN));
  roofs.loaded = is_loaded(roofs.others_cores, cpu ? num_threads() : 1, cores);
  return roofs;
}

}  // namespace

Roofs calibrate(Device device) {
  SINTER_CHECK(device.type != Device::Type::simt, usage,
      "calibrate: simt emulates threads: its times mean nothing", "device cpu, or device cuda");
  Roofs best = calibrate_once(device);
  for (int attempt = 1; attempt < kMostAttempts && best.loaded; ++attempt) {
    Roofs next = calibrate_once(device);
    if (next.others_cores < best.others_cores) best = std::move(next);
  }
  return best;
}

Roofs calibrated(Device device, bool* fresh) {
  if (fresh) *fresh = false;
  if (const std::optional<Roofs> stored = profiler::stored_roofs(device)) return *stored;
  const Roofs roofs = calibrate(device);
  const std::string file = profiler::roofs_file(device);
  if (file.empty()) return roofs;
  try {
    profiler::save_roofs(roofs, file);
    if (fresh) *fresh = true;
  } catch (const std::exception&) {  // measured again next time
  }
  return roofs;
}

}  // namespace sinter::measure
