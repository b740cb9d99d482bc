#include "core/device/cuda_graph.h"

#if SINTER_HAS_CUDA

#include "core/device/cuda.h"
#include "core/device/cuda_stream.h"
#include "core/device/cupti.h"
#include "core/device/launch_hook.h"
#include "core/device/timing.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

void release_all(std::vector<std::pair<void*, size_t>>& blocks) noexcept {
  if (blocks.empty()) return;
  for (const auto& [block, bytes] : std::exchange(blocks, {})) memory().release(block, bytes);
}

}  // namespace

void GiveBack::operator()(CUevent_st* event) const noexcept { api().cudaEventDestroy(event); }
void GiveBack::operator()(CUgraph_st* graph) const noexcept { api().cudaGraphDestroy(graph); }
void GiveBack::operator()(CUgraphExec_st* executable) const noexcept {
  api().cudaGraphExecDestroy(executable);
}

DeviceGraph::~DeviceGraph() {
  executable_.reset();
  release_all(kept_);
}

void DeviceGraph::launch() {
  SINTER_CHECK(stream() == stream_, state,
      "cuda: a captured step was run by another thread than the one that captured it");
  const HookedCall hooked(DeviceWork::graph, Device::Type::cuda, "cuda_graph");
  SINTER_CUDA_CALL(cudaGraphLaunch(executable_.get(), stream()));
}

double milliseconds(const std::function<void()>& work) {
  const Event begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
  SINTER_CUDA_CALL(cudaEventRecord(begin.get(), stream()));
  work();
  SINTER_CUDA_CALL(cudaEventRecord(end.get(), stream()));
  synchronize();
  float ms = 0;
  SINTER_CUDA_CALL(cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return ms;
}

GraphBuilder::GraphBuilder(int events, bool side_branch) {
  const ThreadState& t = thread_state();
  SINTER_CHECK(t.mode != Mode::capture && !t.kept, state,
      "cuda: a step was captured inside another captured step");
  if (side_branch) side_stream(*t.main);
  for (int e = 0; e < events; ++e) events_.push_back(make_event());
}

GraphBuilder::~GraphBuilder() {
  Owned<CUgraph_st> graph;  // an error came out of the middle: it may be none at all
  if (mode_before_ >= 0 && close_pass(graph) != cudaSuccess) api().cudaGetLastError();
  release_all(kept_);
  release_all(rehearsed_);
}

int GraphBuilder::close_pass(Owned<CUgraph_st>& graph) noexcept {
  ThreadState& t = thread_state();
  t.now = t.main;
  t.mode = static_cast<Mode>(std::exchange(mode_before_, -1));
  t.kept = t.rehearsed = nullptr;
  if (!std::exchange(capture_open_, false)) return cudaSuccess;
  const std::lock_guard lock(waits_for_streams());
  t.main->captures = false;
  cudaGraph_t captured = nullptr;
  const cudaError_t answer = api().cudaStreamEndCapture(t.main->handle, &captured);
  graph.reset(captured);
  return answer;
}

void GraphBuilder::begin(Pass pass) {
  ThreadState& t = thread_state();
  if (pass == Pass::capture) {
    const std::lock_guard lock(waits_for_streams());
    SINTER_CUDA_CALL(cudaStreamBeginCapture(t.main->handle, cudaStreamCaptureModeThreadLocal));
    t.main->captures = capture_open_ = true;
    t.rehearsed = &rehearsed_;
  }
  mode_before_ = static_cast<int>(t.mode);
  t.mode = pass == Pass::capture ? Mode::capture : Mode::rehearse;
  t.kept = &kept_;
}

void GraphBuilder::switch_to(int branch) {
  ThreadState& t = thread_state();
  t.now = branch == 0 ? t.main : t.main->side;
}

void GraphBuilder::record(int event) {
  if (!rehearsing())
    SINTER_CUDA_CALL(cudaEventRecord(events_[static_cast<size_t>(event)].get(), stream()));
}

void GraphBuilder::wait(int event) {
  if (!rehearsing())
    SINTER_CUDA_CALL(cudaStreamWaitEvent(stream(), events_[static_cast<size_t>(event)].get(), 0));
}

void GraphBuilder::captured(int op) {
  if (!capturing() || records_turn() == 0) return;
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph = nullptr;
  const cudaStream_t on = thread_state().main->handle;
#if CUDART_VERSION >= 13000
  SINTER_CUDA_CALL(
      cudaStreamGetCaptureInfo(on, &status, nullptr, &graph, nullptr, nullptr, nullptr));
#else
  SINTER_CUDA_CALL(cudaStreamGetCaptureInfo_v2(on, &status, nullptr, &graph, nullptr, nullptr));
#endif
  size_t n = 0;
  SINTER_CUDA_CALL(cudaGraphGetNodes(graph, nullptr, &n));
  if (n == op_of_node_.size()) return;
  std::vector<cudaGraphNode_t> nodes(n);
  SINTER_CUDA_CALL(cudaGraphGetNodes(graph, nodes.data(), &n));
  for (const cudaGraphNode_t node : nodes)
    op_of_node_.try_emplace(node, op);  // those before have theirs
}

Owned<CUgraph_st> GraphBuilder::end_pass() {
  const bool captured = capture_open_;
  Owned<CUgraph_st> graph;
  check(static_cast<cudaError_t>(close_pass(graph)), "cudaStreamEndCapture");
  if (!captured) {
    release_all(rehearsed_);
    rehearsed_ = std::exchange(kept_, {});
  }
  return graph;
}

size_t GraphBuilder::count() {
  const Owned<CUgraph_st> captured = end_pass();
  size_t nodes = 0;
  SINTER_CUDA_CALL(cudaGraphGetNodes(captured.get(), nullptr, &nodes));
  return nodes;
}

std::unique_ptr<DeviceGraph> GraphBuilder::end() {
  const Owned<CUgraph_st> captured = end_pass();
  if (!captured) return nullptr;
  std::unique_ptr<DeviceGraph> graph(new DeviceGraph);
  graph->stream_ = thread_state().main->handle;
  graph->kept_ = std::exchange(kept_, {});
  cudaGraphExec_t executable = nullptr;
  SINTER_CUDA_CALL(cudaGraphInstantiate(&executable, captured.get(), 0));
  graph->executable_.reset(executable);
  remember_nodes(executable, op_of_node_);
  SINTER_CUDA_CALL(cudaGraphUpload(executable, graph->stream_));
  return graph;
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
