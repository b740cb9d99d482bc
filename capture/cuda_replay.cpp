#include "capture/cuda_replay.h"

#include <map>

namespace sinter::capture {

CudaReplay::CudaReplay(const Branches& branches, const std::function<void(size_t)>& run) {
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

}  // namespace sinter::capture
