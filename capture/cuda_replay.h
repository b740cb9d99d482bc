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
  // For a session that records, where the device does too, this is the same graph once more,
  // captured at the first use, that is in warm-up: only of those that were captured while it keeps
  // records it tells the nodes.
  void run();

 private:
  std::unique_ptr<cuda::DeviceGraph> capture() const;
  const Branches branches_;
  const std::function<void(size_t n)> run_;
  std::unique_ptr<cuda::DeviceGraph> graph_, recorded_;
  int recorded_turn_ = 0;
};

}  // namespace sinter::capture
