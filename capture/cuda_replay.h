// The executor's CUDA back end: the list of a step's nodes becomes one CUDA graph, with parameter
// gradients on a side branch, and a replay is one call. Made once; the memory that the nodes name
// must stay where it is. For the thread that made it only.
#pragma once

#include <functional>
#include <memory>

#include "capture/branches.h"
#include "core/device/cuda_graph.h"

namespace sinter::capture {

class CudaReplay {
 public:
  // run(n) launches node n. It is called twice per node: first nothing runs (kernels are loaded,
  // plans made), then it is captured.
  CudaReplay(const Branches& branches, const std::function<void(size_t n)>& run);
  void run() { graph_->launch(); }
  // For a session that records. Where the device keeps records, the same graph once more, captured
  // while it does. Else the same work as one chain with an event behind every node, waited for and
  // told to the profiler node by node. Built at the first use, that is in warm-up.
  void run_profiled();
  size_t nodes() const { return graph_->nodes(); }
  static constexpr int64_t kNoMark = INT64_MAX;  // no replay has shown yet what a mark takes

 private:
  std::unique_ptr<cuda::DeviceGraph> capture() const;
  const Branches branches_;
  const std::function<void(size_t n)> run_;
  std::unique_ptr<cuda::DeviceGraph> graph_, instrumented_, recorded_;
  std::vector<int32_t> kernels_;  // of each node of the instrumented graph
  int64_t mark_ns_ = kNoMark;     // what a mark of that graph takes by itself, at least
  int recorded_turn_ = 0;
};

}  // namespace sinter::capture
