#include "profiler/device_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/device/launch_hook.h"
#include "profiler/buffers.h"
#include "profiler/replay.h"

namespace sinter::profiler {
namespace detail {
namespace {

StaticName footprint_of(const LaunchShape& s) {
  char text[128];
  std::snprintf(text, sizeof text, "grid %lld x %lld x %lld, block %d, %zu B shared",
      static_cast<long long>(s.grid.x), static_cast<long long>(s.grid.y),
      static_cast<long long>(s.grid.z), s.block, s.shared_bytes);
  return intern(text);
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
      if (timer && timer->has_records()) timer->submitting(call.id = ++last_id_);
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
      if (call.shape) launch.footprint = footprint_of(*call.shape);
    } catch (const std::bad_alloc&) {}
    if (call.device == Device::Type::simt) {
      launch.source = Source::emul;
    } else if (DeviceTimer* timer = timer_.load(std::memory_order_acquire); timer && call.id > 0) {
      timer->submitted();
      launch.source = Source::cupti;
      launch.dev_t1 = static_cast<int64_t>(call.id);
    } else if (timer && launch.kind != LaunchKind::graph) {
      launch.source = Source::event;
      launch.dev_t1 = timer->mark();
    }
    static_cast<ThreadBuffer*>(call.token)->add_launch(launch);
  }

  void memory(const void* allocator, int64_t live_bytes) noexcept override {
    if (!recording() || allocator != allocator_.load(std::memory_order_relaxed)) return;
    if (ThreadBuffer* buffer = ready_buffer()) buffer->add_memory(live_bytes);
  }

  std::atomic<DeviceTimer*> timer_{nullptr};
  std::atomic<uint64_t> last_id_{0};
  std::atomic<const void*> allocator_{nullptr};
};
Hook g_hook;

}  // namespace

void install_hook(const Allocator* memory, DeviceTimer* timer) noexcept {
  g_hook.allocator_ = memory;
  g_hook.timer_.store(timer, std::memory_order_release);
  g_launch_hook.store(&g_hook, std::memory_order_release);
}

void remove_hook() noexcept {
  g_launch_hook.store(nullptr, std::memory_order_release);
  g_hook.timer_.store(nullptr, std::memory_order_release);
}

int64_t Axis::device_ns(int mark) const {
  const auto at = static_cast<size_t>(mark);
  return mark >= 0 && at < marks.size() ? marks[at] : DeviceTimer::kLost;
}

bool Axis::known() const {
  const int64_t d0 = device_ns(begin.mark), d1 = device_ns(end.mark);
  return d0 != DeviceTimer::kLost && d1 != DeviceTimer::kLost && d1 > d0;
}

int64_t Axis::host_ns(int mark) const {
  const int64_t at = device_ns(mark);
  if (at == DeviceTimer::kLost) return at;
  const int64_t d0 = device_ns(begin.mark), d1 = device_ns(end.mark);
  const double scale =
      static_cast<double>(end.host_ns - begin.host_ns) / static_cast<double>(d1 - d0);
  return begin.host_ns + std::llround(static_cast<double>(at - d0) * scale);
}

namespace {

// Of the turn in whose active steps a launch was made; null: in none.
const Axis* axis_of(const LaunchRecord& launch, std::span<const Axis> turns) {
  const auto behind = std::upper_bound(turns.begin(), turns.end(), int64_t{launch.step},
      [](int64_t step, const Axis& axis) { return step < axis.first_step; });
  return behind != turns.begin() && launch.step < behind[-1].end_step ? &behind[-1] : nullptr;
}

// Replaces each launch of source `cupti` by what the device recorded of it; the nodes of a graph
// follow its launch.
class Recorded {
 public:
  explicit Recorded(std::span<const Axis> turns) : turns_(turns) {}

  void take(Trace& trace) {
    for (const LaunchRecord& launch : trace.launches) {
      if (launch.source == Source::cupti) {
        take(trace, launch);
      } else {
        out_.push_back(launch);
      }
    }
    trace.launches = std::move(out_);
  }

 private:
  using Ran = DeviceTimer::Ran;

  void take(Trace& trace, LaunchRecord launch) {
    const auto id = static_cast<uint64_t>(std::exchange(launch.dev_t1, 0));
    std::span<const Ran> ran;
    if (const Axis* axis = axis_of(launch, turns_)) {
      const auto begin = std::lower_bound(axis->ran.begin(), axis->ran.end(), id,
          [](const Ran& r, uint64_t n) { return r.launch < n; });
      const auto end =
          std::find_if(begin, axis->ran.end(), [id](const Ran& r) { return r.launch != id; });
      ran = {begin, end};
    }
    const bool is_graph = launch.kind == LaunchKind::graph;
    // Fewer kernels than it stands for: some were lost. More: so many they are.
    if (!is_graph && !ran.empty() && ran[0].kernels >= static_cast<int>(launch.at_least())) {
      launch.dev_t0 = ran[0].begin;
      launch.dev_t1 = ran[0].end;
      if (launch.kind == LaunchKind::kernel) correct_count(trace, launch, ran[0].kernels);
    } else {
      launch.source = Source::none;
    }
    out_.push_back(launch);
    if (is_graph) add_nodes(launch, ran);
  }

  static void correct_count(Trace& trace, LaunchRecord& launch, int kernels) {
    if (launch.record >= 0) {
      Record& op = trace.records[static_cast<size_t>(launch.record)];
      if (counts_launches(op.kind))
        op.n_launches += static_cast<uint32_t>(kernels) - launch.at_least();
    }
    launch.launches = kernels;
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
      node.dev_t0 = r.begin;
      node.dev_t1 = r.end;
      if (r.kernels > 0) node.source = Source::cupti;
      const auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const auto& others) {
        return std::none_of(others.begin(), others.end(),
            [&](const Ran* o) { return o->begin < r.end && r.begin < o->end; });
      });
      node.stream += static_cast<uint32_t>(lane - lanes.begin());
      (lane == lanes.end() ? lanes.emplace_back() : *lane).push_back(&r);
      out_.push_back(node);
    }
  }

  std::span<const Axis> turns_;
  std::vector<LaunchRecord> out_;
};

}  // namespace

int64_t resolve(Trace& trace, std::span<const Axis> turns) {
  Recorded(turns).take(trace);
  const Axis* turn = nullptr;
  int64_t before = 0, invalid = 0;
  for (LaunchRecord& launch : trace.launches) {
    if (launch.source != Source::event) continue;
    const Axis* axis = axis_of(launch, turns);
    const bool known = axis && axis->known();
    const int64_t end = known ? axis->host_ns(static_cast<int>(launch.dev_t1)) : DeviceTimer::kLost;
    launch.dev_t1 = 0;
    if (known && axis != turn) {
      turn = axis;
      before = axis->begin.host_ns;
    }
    if (end == DeviceTimer::kLost) {
      launch.source = Source::none;
      continue;
    }
    // Not before the launch before it ended, nor before the host asked for it: the better of two
    // upper bounds.
    const int64_t begin = launch.api_t0 < end ? std::max(before, launch.api_t0) : before;
    invalid += end <= begin;
    launch.dev_t0 = begin;
    launch.dev_t1 = end;
    before = end;
  }
  return invalid;
}

}  // namespace detail

void record_replay(int64_t api_t0, int64_t api_t1, std::span<const int64_t> node_ends) noexcept {
  if (!recording()) return;
  detail::ThreadBuffer* buffer = detail::ready_buffer();
  if (!buffer || node_ends.empty()) return;
  int64_t begin = node_ends[0];
  for (size_t n = 1; n < node_ends.size(); ++n) {
    const bool lost = node_ends[n] == DeviceTimer::kLost || begin == DeviceTimer::kLost;
    buffer->add_launch({.api_t0 = api_t0,
        .api_t1 = api_t1,
        .dev_t0 = lost ? 0 : begin,
        .dev_t1 = lost ? 0 : node_ends[n],
        .graph_node = static_cast<uint32_t>(n),
        .source = lost ? Source::none : Source::graph});
    begin = node_ends[n];
  }
}

int64_t session_now() noexcept { return detail::now(); }

}  // namespace sinter::profiler
