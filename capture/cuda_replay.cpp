#include "capture/cuda_replay.h"

#include <map>

#include "core/device/timing.h"
#include "profiler/scope.h"

namespace sinter::capture {
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

void CudaReplay::run() {
  const int turn = profiler::recording() ? cuda::records_turn() : 0;
  if (turn == 0) return graph_->launch();
  if (recorded_turn_ != turn) recorded_ = capture();
  recorded_turn_ = turn;
  recorded_->launch();
}

}  // namespace sinter::capture
