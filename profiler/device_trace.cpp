#include "profiler/device_trace.h"

#include <algorithm>
#include <utility>

#include "core/device/launch_hook.h"
#include "profiler/buffers.h"

namespace sinter::profiler {
namespace detail {
namespace {

// As it is launched. What is shared is all asked for at the launch (core/device/kernel.h); of
// registers a launch does not tell.
Footprint footprint_of(const LaunchShape& shape) {
  return {.grid = {int(shape.grid.x), int(shape.grid.y), int(shape.grid.z)},
      .block = {shape.block, 1, 1},
      .static_shared = 0,
      .dynamic_shared = int(shape.shared_bytes)};
}

class Hook final : public LaunchHook {
 public:
  void before(DeviceCall& call) noexcept override {
    if (!recording()) return;
    ThreadBuffer* buffer = ready_buffer();
    if (!buffer) return;
    if (call.work == DeviceWork::wait) {
      call.token = buffer->push("synchronize", ScopeKind::sync);
    } else {
      call.token = buffer;
      DeviceTimer* timer = timer_.load(std::memory_order_acquire);
      if (timer) timer->submitting(call.id = ++last_id_);
      call.begin = now();
    }
  }

  void after(DeviceCall& call) noexcept override {
    if (!call.token) return;
    if (call.work == DeviceWork::wait)
      return thread_buffer()->pop(static_cast<Record*>(call.token));
    LaunchRecord launch{
        .api_t0 = call.begin, .api_t1 = now(), .bytes = call.bytes, .launches = call.launches};
    if (call.work == DeviceWork::copy) launch.kind = LaunchKind::memcpy;
    if (call.work == DeviceWork::fill) launch.kind = LaunchKind::memset;
    if (call.work == DeviceWork::graph) launch.kind = LaunchKind::graph;
    try {
      launch.kernel = intern(call.name);
    } catch (const std::bad_alloc&) {}
    if (call.shape) launch.footprint = footprint_of(*call.shape);
    DeviceTimer* timer = timer_.load(std::memory_order_acquire);
    if (call.device == Device::Type::simt) {
      launch.source = Source::emul;
    } else if (timer && call.id > 0) {
      timer->submitted();
      launch.source = Source::cupti;
      launch.dev_t1 = int64_t(call.id);
    }
    static_cast<ThreadBuffer*>(call.token)->add_launch(launch);
  }

  void memory(const void* allocator, const void* block, int64_t change,
      int64_t live_bytes) noexcept override {
    if (!recording() || allocator != allocator_.load(std::memory_order_relaxed)) return;
    if (ThreadBuffer* buffer = ready_buffer()) buffer->add_memory(block, change, live_bytes);
  }

  std::atomic<DeviceTimer*> timer_{nullptr};
  std::atomic<uint64_t> last_id_{0};
  std::atomic<const void*> allocator_{nullptr};
};
Hook g_hook;

}  // namespace

void install_hook(const Allocator* memory, DeviceTimer* timer) noexcept {
  g_hook.allocator_ = memory;
  const bool records = timer && timer->has_records();
  g_hook.timer_.store(records ? timer : nullptr, std::memory_order_release);
  g_launch_hook.store(&g_hook, std::memory_order_release);
}

void remove_hook() noexcept {
  g_launch_hook.store(nullptr, std::memory_order_release);
  g_hook.timer_.store(nullptr, std::memory_order_release);
}

namespace {

// Replaces each launch of source `cupti` by what the device recorded of it; the nodes of a graph
// follow its launch.
class Recorded {
 public:
  explicit Recorded(std::span<const Turn> turns) : turns_(turns) {}

  void take(Trace& trace) {
    for (const LaunchRecord& launch : trace.launches) {
      if (launch.source == Source::cupti) {
        take(launch);
      } else {
        out_.push_back(launch);
      }
    }
    trace.launches = std::move(out_);
  }

 private:
  using Ran = DeviceTimer::Ran;

  void take(LaunchRecord launch) {
    const std::span<const Ran> ran = ran_of(launch, uint64_t(std::exchange(launch.dev_t1, 0)));
    const bool is_graph = launch.kind == LaunchKind::graph;
    // Fewer kernels than it stands for: some were lost. More: so many they are.
    if (!is_graph && !ran.empty() && ran[0].kernels >= int(launch.at_least())) {
      launch.dev_t0 = ran[0].begin;
      launch.dev_t1 = ran[0].end;
      if (launch.kind == LaunchKind::kernel) launch.launches = ran[0].kernels;
      take_kernel(launch, ran[0]);
    } else {
      launch.source = Source::none;
    }
    out_.push_back(launch);
    if (is_graph) add_nodes(launch, ran);
  }

  // A kernel of ours keeps its name; a library's call and a node get that of what ran.
  static void take_kernel(LaunchRecord& launch, const Ran& ran) {
    if (!ran.footprint.has_shape()) return;
    if (!launch.footprint.has_shape()) launch.kernel = intern(ran.kernel);
    launch.footprint = ran.footprint;
  }

  // Empty where it was made in the active steps of no turn.
  std::span<const Ran> ran_of(const LaunchRecord& launch, uint64_t id) const {
    for (const Turn& turn : turns_) {
      if (launch.step < turn.first_step || launch.step >= turn.end_step) continue;
      const auto found = std::ranges::equal_range(turn.ran, id, {}, &Ran::launch);
      return {found.begin(), found.end()};
    }
    return {};
  }

  // What ran side by side in a graph is shown as streams.
  void add_nodes(const LaunchRecord& graph, std::span<const Ran> ran) {
    std::vector<std::vector<const Ran*>> lanes;
    for (const Ran& r : ran) {
      if (r.node == 0) continue;
      LaunchRecord node = graph;
      node.kind = LaunchKind::kernel;
      node.kernel = {};
      node.graph_node = r.node;
      node.launches = std::max(r.kernels, 1);
      node.dev_t0 = r.begin;
      node.dev_t1 = r.end;
      if (r.kernels > 0) node.source = Source::cupti;
      take_kernel(node, r);
      const auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const auto& others) {
        return std::none_of(others.begin(), others.end(),
            [&](const Ran* o) { return o->begin < r.end && r.begin < o->end; });
      });
      node.stream += uint32_t(lane - lanes.begin());
      (lane == lanes.end() ? lanes.emplace_back() : *lane).push_back(&r);
      out_.push_back(node);
    }
  }

  std::span<const Turn> turns_;
  std::vector<LaunchRecord> out_;
};

}  // namespace

void resolve(Trace& trace, std::span<const Turn> turns) { Recorded(turns).take(trace); }

}  // namespace detail

void record_planned(const MemoryUse& use) noexcept {
  if (!recording()) return;
  if (detail::ThreadBuffer* buffer = detail::ready_buffer()) buffer->add_planned(use);
}

}  // namespace sinter::profiler
