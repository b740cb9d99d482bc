#include "capture/cuda_replay.h"

#include <algorithm>
#include <map>

#include "core/device/launch_log.h"
#include "core/device/timing.h"
#include "profiler/replay.h"

namespace sinter::capture {
namespace {

// When each node ended, counted from the second mark, if marks took no time. Between the first two
// marks there is no node: what they are apart, as long as a small kernel runs, is what every other
// mark took, too. The card may pause between them, so of all replays of this graph the shortest
// such time counts (mark_ns); a pause that counted would leave no time to the nodes.
std::vector<int64_t> without_marks(const std::vector<int64_t>& marks, int64_t& mark_ns) {
  const auto lost = [&](size_t m) { return marks[m] == DeviceTimer::kLost; };
  if (!lost(0) && !lost(1)) mark_ns = std::min(mark_ns, marks[1] - marks[0]);
  const int64_t each = mark_ns == CudaReplay::kNoMark ? 0 : mark_ns;
  std::vector<int64_t> ends{0};
  for (size_t m = 2; m < marks.size(); ++m) {
    const int64_t end = marks[m] - marks[1] - int64_t(m - 1) * each;
    ends.push_back(lost(1) || lost(m) ? DeviceTimer::kLost : std::max(ends.back(), end));
  }
  return ends;
}

}  // namespace

CudaReplay::CudaReplay(const Branches& branches, const std::function<void(size_t)>& run)
    : branches_(branches), run_(run), graph_(capture()) {}

std::unique_ptr<cuda::DeviceGraph> CudaReplay::capture() const {
  std::map<int, int> events;  // the node (or the start) that somebody waits for -> its event
  for (const int wait : branches_.waits) {
    if (wait != Branches::kNone) events.emplace(wait, int(events.size()));
  }
  if (branches_.join != Branches::kNone) events.emplace(branches_.join, int(events.size()));
  cuda::GraphBuilder builder(int(events.size()), branches_.any_side());
  const auto record = [&](int node) {
    if (const auto it = events.find(node); it != events.end()) builder.record(it->second);
  };
  for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
    builder.begin(pass);
    record(Branches::kStart);
    for (size_t n = 0; n < branches_.branch.size(); ++n) {
      builder.switch_to(branches_.branch[n]);
      if (branches_.waits[n] != Branches::kNone) builder.wait(events.at(branches_.waits[n]));
      run_(n);
      builder.captured(int(n));
      record(int(n));
    }
    builder.switch_to(0);
    if (branches_.join != Branches::kNone) builder.wait(events.at(branches_.join));
    if (auto graph = builder.end()) return graph;
  }
  return nullptr;
}

void CudaReplay::run_profiled() {
  if (const int turn = cuda::records_turn(); turn != 0) {
    if (recorded_turn_ != turn) recorded_ = capture();
    recorded_turn_ = turn;
    return recorded_->launch();
  }
  if (const size_t ops = branches_.branch.size(); !instrumented_) {
    cuda::GraphBuilder builder(0, false, int(ops) + 2);
    for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
      builder.begin(pass);
      builder.mark(0);
      builder.mark(1);  // with nothing between: what a mark takes by itself
      kernels_.assign(ops, 0);
      for (size_t n = 0; n < ops; ++n) {
        const int64_t before = launch_count();
        run_(n);
        kernels_[n] = int32_t(std::max<int64_t>(launch_count() - before, 1));
        builder.mark(int(n) + 2);
      }
      instrumented_ = builder.end();
    }
  }
  const int64_t begin = profiler::session_now();
  std::vector<int64_t> ends = without_marks(instrumented_->launch_timed(), mark_ns_);
  // The host had the answer right after the last node's end; before that nothing ties the two
  // clocks together.
  const int64_t end = profiler::session_now(), last = ends.back();
  for (int64_t& t : ends)
    t = t == DeviceTimer::kLost || last == DeviceTimer::kLost ? DeviceTimer::kLost
                                                              : std::max(begin, end - last) + t;
  profiler::record_replay(begin, end, ends, kernels_);
}

}  // namespace sinter::capture
