#include "capture/cuda_replay.h"

#include <algorithm>
#include <map>

#include "core/device/timing.h"
#include "profiler/replay.h"

namespace sinter::capture {

CudaReplay::CudaReplay(const Branches& branches, const std::function<void(size_t)>& run) : ops_(branches.branch.size()), run_(run) {
  std::map<int, int> events;  // the node (or the start) that somebody waits for -> its event
  for (const int wait : branches.waits) {
    if (wait != Branches::kNone) events.emplace(wait, static_cast<int>(events.size()));
  }
  if (branches.join != Branches::kNone) events.emplace(branches.join, static_cast<int>(events.size()));
  cuda::GraphBuilder builder(static_cast<int>(events.size()), branches.any_side());
  const auto record = [&](int node) {
    if (const auto it = events.find(node); it != events.end()) builder.record(it->second);
  };
  for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
    builder.begin(pass);
    record(Branches::kStart);
    for (size_t n = 0; n < branches.branch.size(); ++n) {
      builder.switch_to(branches.branch[n]);
      if (branches.waits[n] != Branches::kNone) builder.wait(events.at(branches.waits[n]));
      run(n);
      record(static_cast<int>(n));
    }
    builder.switch_to(0);
    if (branches.join != Branches::kNone) builder.wait(events.at(branches.join));
    graph_ = builder.end();
  }
}

void CudaReplay::run_profiled() {
  if (!instrumented_) {
    cuda::GraphBuilder builder(0, false, static_cast<int>(ops_) + 1);
    for (const auto pass : {cuda::Pass::rehearsal, cuda::Pass::capture}) {
      builder.begin(pass);
      builder.mark(0);
      for (size_t n = 0; n < ops_; ++n) {
        run_(n);
        builder.mark(static_cast<int>(n) + 1);
      }
      instrumented_ = builder.end();
    }
  }
  const int64_t begin = profiler::session_now();
  std::vector<int64_t> ends = instrumented_->launch_timed();
  // The host had the answer right after the last node's end; before that nothing ties the two clocks together.
  const int64_t end = profiler::session_now(), last = ends.back();
  for (int64_t& t : ends) t = t == DeviceTimer::kLost || last == DeviceTimer::kLost ? DeviceTimer::kLost : std::max(begin, end - last) + t;
  profiler::record_replay(begin, end, ends);
}

}  // namespace sinter::capture
