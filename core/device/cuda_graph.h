// A CUDA graph made by stream capture: what a thread launches between begin() and end() becomes the
// graph's nodes and runs as one call. No header of the toolkit is needed; in a build without it
// every function throws not_built.
//
//   GraphBuilder builder(events);
//   builder.begin(Pass::rehearsal);  // runs nothing: loads kernels, makes plans, asks for memory
//   work();
//   builder.end();
//   builder.begin(Pass::capture);
//   work();
//   graph = builder.end();
//
// Branch 0 is the thread's stream, branch 1 runs beside it; events order them: a node launched
// after wait(e) follows those before record(e).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

struct CUevent_st;  // the toolkit's, behind its handles
struct CUgraph_st;
struct CUgraphExec_st;
struct CUstream_st;

namespace sinter::cuda {

// What the toolkit has made, which goes back to it at the end.
struct GiveBack {
  void operator()(CUevent_st* event) const noexcept;
  void operator()(CUgraph_st* graph) const noexcept;
  void operator()(CUgraphExec_st* executable) const noexcept;
};
template <class T> using Owned = std::unique_ptr<T, GiveBack>;
using Event = Owned<CUevent_st>;

class DeviceGraph {
 public:
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // One call of the runtime; returns before the graph has run. REQUIRES: the memory that its
  // kernels name is still there.
  void launch();

 private:
  friend class GraphBuilder;
  DeviceGraph() = default;
  Owned<CUgraphExec_st> executable_;
  CUstream_st* stream_ = nullptr;               // of the thread that captured it
  std::vector<std::pair<void*, size_t>> kept_;  // scratch memory of its ops: (block, bytes)
};

// Device time of what `work` puts on the thread's stream. Synchronizes.
double milliseconds(const std::function<void()>& work);

enum class Pass { rehearsal, capture };

class GraphBuilder {
 public:
  // Makes everything that a capture may not make.
  GraphBuilder(int events, bool side_branch);
  ~GraphBuilder();  // gives up a pass that was not ended
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  void begin(Pass pass);
  void switch_to(int branch);
  void record(int event);  // on the current branch
  void wait(int event);    // the current branch waits
  // What was captured since the last call is op `op`'s, for who reads the device's records of
  // replays.
  void captured(int op);
  // The graph, ready to launch; nullptr after a rehearsal. REQUIRES: branch 0 waits for all of
  // branch 1.
  std::unique_ptr<DeviceGraph> end();
  // Ends a capture and throws it away: how many nodes it has.
  size_t count();

 private:
  // Closes the pass that is open, and gives the graph of a capture, and what the toolkit answers.
  int close_pass(Owned<CUgraph_st>& graph) noexcept;
  Owned<CUgraph_st> end_pass();  // nullptr after a rehearsal
  std::vector<Event> events_;
  std::map<void*, int> op_of_node_;
  std::vector<std::pair<void*, size_t>> kept_, rehearsed_;
  int mode_before_ = -1;  // -1: no pass is open
  bool capture_open_ = false;
};

}  // namespace sinter::cuda
