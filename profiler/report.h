// Report: the records of a session, and what is computed from them: rows() (rows.cpp), timeline()
// (timeline.cpp), and the whole of it as a Profile for the views (profile.cpp).
//
// Times are integer ns and conserve exactly: within a step, the self times of all scopes of the
// stepping thread and the time outside scopes add up to the step. A value: copy it, keep it, read
// it from any thread.
#pragma once

#include "profiler/profile.h"

namespace sinter::profiler {

// Kernels are counted for the innermost scope if it is an op, or fetches data.
constexpr bool counts_launches(ScopeKind kind) {
  return kind == ScopeKind::op || kind == ScopeKind::data;
}

// A block that was taken of the session's device or given back; or, where `planned` is there, what
// the node of a captured step that ran next does in the arena, at no time of its own.
struct MemorySample {
  int64_t t = 0;
  int64_t live_bytes = 0;  // of the device, behind it
  uint32_t step = 0;
  int32_t record = -1;  // as LaunchRecord::record
  int64_t change = 0;   // bytes; given back: below 0
  const void* block = nullptr;
  std::optional<MemoryUse> planned{};
};
MemoryUse use_of(const MemorySample& sample);

// Highest live bytes of the device in the active steps (0: nothing was taken or given back), and
// the innermost op that was open then.
struct MemoryPeak {
  int64_t bytes = 0;
  std::string op{};
};

// A node of a replayed step; of a CUDA graph's, which has no scope, LaunchRecord::graph_node is its
// index + 1. From measure::describe_nodes().
struct GraphNode {
  std::string name{}, made_of{};  // "linear_act", "linear + relu"
  Role role = Role::none;
  Cost cost{};
  MemoryUse memory{};             // in the arena
  std::string kept_until{};       // of what it keeps, the largest: the node that reads it last
  std::string module{}, phase{};  // OpInfo::module; "forward + backward"
};

// Records of one thread in the order of their begin; a thread may come in several pieces. Parents
// are indices into the same piece.
struct Trace {
  int thread;
  bool steps_here;  // the thread that called step()
  std::vector<Record> records;
  std::vector<LaunchRecord> launches;
  std::vector<MemorySample> memory;
};

// The longest first, then what is launched most, as on the emulator, which has no times.
void sort_kernels(std::vector<KernelSum>& kernels);

// Self ns of each record: its duration without its direct children's; 0 where it is open.
std::vector<int64_t> self_times(const Trace& trace);

// One op call of the window, in the order of the calls.
struct OpCall {
  uint32_t graph_node;
  int row;             // index in rows(by_shape) of the same call
  int64_t step_index;  // in Report::steps
  int64_t self_ns, device_ns;
};

struct Rows {
  std::vector<Row> rows;  // in the order of first sight
  std::vector<OpCall> calls;
  int64_t ops_ns = 0;  // host time of the stepping thread in ops
  MemoryUse memory,
      arena;  // of the allocator, in all scopes and outside; of the arena, by its plan
};

// What one step did, call by call: a picture of it.
struct StepCalls {
  struct Slice {
    int lane, depth;
    int64_t t0, ns;            // t0: since the step began
    std::string name, kernel;  // kernel: what a device ran for it, ""
    SINTER_FIELD_LIST(lane, depth, t0, ns, name, kernel)
  };
  int64_t step = 0, ns = 0, end = 0;  // its number, its time, and when its last call is over
  std::vector<std::string> lanes{};   // "host", "device"
  std::vector<Slice> slices{};
  int64_t left_out = 0;  // calls too short to be seen in a picture of them all
  SINTER_FIELD_LIST(step, ns, end, lanes, slices, left_out)
};

struct Report : Measurement {
  std::vector<GraphNode> nodes;  // of the replayed step, see name_nodes()
  std::vector<Trace> traces;

  // by_module: rows of ops begin with at most so many parts of the path of their modules, those of
  // gradients with the path of the op that they belong to: "MLP/layers.0/linear".
  Rows rows(bool by_shape = false, int by_module = 0) const;
  Timeline timeline() const;
  // Of the active step whose time is nearest to the median.
  StepCalls typical_step() const;
  StepVerdict verdict() const;
  Profile profile(bool by_shape = false, int by_module = 0) const;
  // profiler::table() of that profile.
  std::string table(const TableOptions& options = {}) const;
  MemoryPeak memory_peak() const;
  // Adds a launch to those of its name and footprint.
  void add_launch(std::vector<KernelSum>& to, const LaunchRecord& launch) const;
  // The node of the replayed graph that a launch is; null: none, or unknown.
  const GraphNode* node_of(const LaunchRecord& launch) const;
  // Says what the nodes of the replayed graph are; those that fetch data leave the steps' counts.
  void name_nodes(std::vector<GraphNode> names);
  // Counts launches into the steps, and finds what makes the report incomplete or leaves its
  // statistics. Called once, by finish().
  void evaluate();
  // The windows of another report of the same work follow: one round more. An empty one becomes it.
  void append(Report other);
  // Ended in the step in which it began, and that is an active one. Only such records enter the
  // statistics.
  bool counts(const Trace& trace, const Record& record) const;
  template <class Item>  // a launch, or a memory sample
  bool counts(const Trace& trace, const Item& item) const {
    return step_index(item.step) >= 0 &&
           (item.record < 0 || counts(trace, trace.records[item.record]));
  }
};

// A block that was taken in the forward pass and held when backward began: by which record, and
// which op was on when it was given back, or the last before that; null: neither in the step.
struct KeptBlock {
  const Record *by = nullptr, *until = nullptr;
  int64_t bytes = 0;
};
// Of each record of each trace: what it took and gave back itself, without its children; its peak
// is with them (memory.cpp).
std::vector<std::vector<MemoryUse>> memory_of_records(
    const Report& report, std::vector<KeptBlock>* kept = nullptr);

// How rows call an op: "matmul(wgrad)".
std::string label_of(std::string_view name, Role role);

// What the ops of a module keep for backward, in a step.
struct Kept {
  std::string module{}, ops{};  // "MLP / 1 / ReLU", "relu"
  std::string until{};          // the op that is on when the largest of it is given back
  double bytes = 0;
};
// The largest first: of a step that runs op by op; of the nodes of a captured one, in its arena.
std::vector<Kept> kept_of(const Report& report);
std::vector<Kept> kept_of(std::span<const GraphNode> nodes);
// A line each, to its end: "kept: MLP / 1 / ReLU keeps 131.1 kB (relu) until relu_backward", and
// with `fused` how much of that the fused step keeps: "; fused: 0.0".
std::string kept_lines(const std::vector<Kept>& of, const std::vector<Kept>* fused = nullptr);
inline bool asks_for_memory(const TableOptions& options) {
  return options.columns == "all" || options.columns.find("memory") != std::string::npos;
}

// The profile of a report whose run is told.
Profile profile_of(const Report& report, const RunFacts& run);

}  // namespace sinter::profiler
