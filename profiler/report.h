// Report: what a session saw, as plain data, and the views on it: rows() (rows.cpp) and table()
// (table.cpp).
//
// Times are integer ns and conserve exactly: within a step, the self times of all scopes of the
// stepping thread and the time outside scopes add up to the step. Sums are over the active steps;
// divide by steps.size(). A value: copy it, keep it, read it from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "profiler/launch_record.h"
#include "profiler/roofs.h"
#include "profiler/scope.h"
#include "profiler/verdict.h"

namespace sinter::profiler {

// wait: not recorded; warmup: recorded and thrown away; active: every step is a sample. repeat 0:
// until finish().
struct Schedule {
  int wait = 1, warmup = 3, active = 20, repeat = 1;
};

// Kernels are counted for the innermost scope if it is an op, or fetches data.
constexpr bool counts_launches(ScopeKind kind) {
  return kind == ScopeKind::op || kind == ScopeKind::data;
}

// What data scopes launch is not of the step, whatever the device: their rows have counts of their
// own.
struct StepSample {
  int64_t number, round;  // both from 0; a round is one turn of the schedule
  int64_t t0, t1;
  int64_t allocs;         // tensor memory asked of the device's allocator
  int64_t launches = 0;   // kernels of all threads, those of CUDA graphs too
  int64_t timed = 0;      // of the launches, by the device
  int64_t api_calls = 0;  // host calls that submitted work; on cpu as launches
  int64_t copies = 0;     // memcpy and memset
  int64_t window = 0;     // steps of one window follow each other without a pause
  int64_t drain_ns = 0;   // waiting for the device behind it, at its window's end

  int64_t ns() const { return t1 - t0; }
};

// Memory of the session's device when a block was taken or given back.
struct MemorySample {
  int64_t t, live_bytes;
  uint32_t step;
};

// A node of a replayed CUDA graph, which has no scope: LaunchRecord::graph_node is its index + 1.
// From capture::describe_nodes().
struct GraphNode {
  std::string name{}, made_of{};  // "linear_act", "linear + relu"
  Role role = Role::none;
  Cost cost{};
};

struct Report;

// What a fusion rule would save in an eager step; from capture::candidates().
struct Candidate {
  std::string rule, ops;          // "linear_act", "linear + relu"
  std::vector<std::string> rows;  // names of the rows it would take
  int times = 1;
  int64_t launches_saved = 0, bytes_saved = 0;
  std::string text(const Report& report)
      const;  // "linear_act x2 (linear + relu): -2 launches, -196.6 kB, about -8.8 us"
};

// What the profiler itself costs, and how sure its one time axis is.
struct Overheads {
  double scope_ns = 0, event_ns = 0;  // 0: not measured
  int64_t axis_ns = -1;               // half-width of the narrowest bracket; -1: no device axis
};

// Where the window went on the device; the idle parts add up to window - busy exactly.
struct Timeline {
  int64_t window_ns = 0, busy_ns = 0;  // sums over the active steps; busy: union of intervals
  int64_t data_ns = 0, sync_ns = 0, host_ns = 0, gap_ns = 0;  // idle, by what it waits for
  bool known = false;                                         // measured, by source cupti
  bool estimated = false;  // source graph: the clean step less the sum of the nodes is host_ns
  int64_t idle_ns() const { return data_ns + sync_ns + host_ns + gap_ns; }
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

// All calls of one op name and role (and shapes, if asked), or of one name among the scopes of
// another kind. Sums over the active steps.
struct Row {
  std::string name{}, shapes{};  // `matmul(wgrad)`; shapes only by shape
  ScopeKind kind = ScopeKind::op;
  Role role = Role::none;
  int64_t calls = 0, launches = 0;
  Cost cost{};
  int64_t self_ns = 0, total_ns = 0, kernel_ns = 0;  // a row inside itself counts once in total
  std::vector<int64_t> samples{};  // self ns of each active step; on a device, of its device time
  // Sums as they would be if every step had taken the median: a stall is in the sums above and not
  // in these. Shares and verdicts go by them. The first is of samples.
  double typical_ns = 0, typical_total_ns = 0, typical_kernel_ns = 0;
  int64_t device_ns = 0,
          device_total_ns =
              0;  // of its launches, and with those of its children; cpu: as kernel_ns and total_ns
  int64_t untimed = 0;    // launches without a device time
  int64_t unproved = 0;   // library calls that may have launched several kernels
  std::string made_of{};  // of a replayed fused op: "linear + relu"
  std::string heaviest_child{};
  int64_t heaviest_child_ns = 0;

  int64_t dispatch_ns() const { return self_ns - kernel_ns; }
};

// One op call of the window: pairs rows with captured nodes.
struct OpCall {
  uint64_t uid, forward_uid;
  uint32_t graph_node;
  int row;             // index in rows(by_shape) of the same call
  int64_t step_index;  // in Report::steps
  bool in_step_thread;
  int64_t self_ns, kernel_ns, device_ns;
};

struct Rows {
  std::vector<Row> rows;  // in the order of first sight
  std::vector<OpCall> calls;
};

struct TableOptions {
  std::string
      sort_by{};       // torch's keys, see table.cpp; "": self time, on the device if there is one
  int row_limit = 15;  // -1: all rows, none folded
  bool no_meta = false;  // leaves out what launches nothing
  std::string filter{};  // a regular expression that rows' names must hold
  bool group_by_input_shape = false;
  int group_by_module = 0;  // rows per path of that many modules
  bool scopes = false;      // a second block: module, data and other scopes
};

// Error (usage): unknown sort key, bad row limit or regular expression; the hint names the nearest.
void check(const TableOptions& options);

// Self ns of each record: its duration without its direct children's; 0 where it is open.
std::vector<int64_t> self_times(const Trace& trace);

struct Report {
  std::string title;  // "CPU eager"
  int threads = 0;
  Schedule schedule;
  Device device{};
  std::string mode, rules;       // "eager", "fused"; rules of the latter
  std::string dtype = "f32";     // of the matrix products: chooses the roof
  bool replayed = false;         // the steps ran as a CUDA graph: no host time per row
  Source source = Source::host;  // of the device times
  std::string source_why;        // what is in the way of a better one
  std::optional<Roofs> roofs;    // without them Pred, %roof and verdicts are "-"
  int64_t working_set = 0;       // bytes of distinct storage that a step touches; 0: unknown
  Overheads overheads;
  int64_t dropped = 0, invalid = 0;  // records lost to a full buffer; device times that cannot be
  int64_t lost_records = 0;          // of the device's own, in its buffers
  int64_t unproved = 0;              // launches of which only "at least one kernel" is known
  double sm_mhz = 0,
         sm_standard_mhz =
             0;  // lowest clock at the windows' edges, and what the card should run at; 0: not read
  std::vector<double> clean_us;  // median steps of clean rounds, or clean steps: what a step takes
                                 // without the profiler
  std::vector<GraphNode> nodes;  // of the replayed graph
  std::vector<Candidate> candidates;  // of an eager step, the one that saves most first
  std::vector<StepSample> steps;      // active and complete
  std::vector<Trace> traces;
  std::vector<std::string>
      incomplete;                  // why this report is not to be trusted; empty: it is complete
  std::vector<std::string> notes;  // what left the statistics

  // by_module: rows begin with the path of at most so many modules they ran in,
  // "MLP/Linear/linear".
  Rows rows(bool by_shape = false, int by_module = 0) const;
  double launches_per_step() const;
  int64_t drain_ns() const;  // of all steps
  // By how many percent a profiled step takes longer than a clean one: medians of both, a step's
  // with its share of its window's drain. NaN where no clean step was measured.
  double distortion() const;
  // Of the steps: the width of their middle half, in parts of the median.
  double spread() const;
  // Why times of this report are too unsteady to judge by (cpu only): something else ran, too. "":
  // they are not.
  std::string busy() const;
  // Highest live bytes of the device in the active steps; 0: nothing was taken or given back.
  int64_t peak_bytes() const;
  bool throttled() const;
  Ceiling ceiling() const;
  Timeline timeline() const;
  RowVerdict verdict(const Row& row) const;
  StepVerdict verdict() const;
  // Pred: what the row's work should take under the roofs, over all its calls; 0 without roofs.
  double predicted_ns(const Row& row) const;
  // The time a row is judged by: device self; on cpu self.
  double judged_ns(const Row& row) const { return row.typical_ns; }
  // Counts launches into the steps, and finds what makes the report incomplete or leaves its
  // statistics. Called once, by finish().
  void judge();
  // The windows of another report of the same work follow: one round more.
  void append(Report other);
  // Index in steps, or -1 if the step is not an active one.
  int64_t step_index(uint32_t number) const;
  // Ended in the step in which it began, and that is an active one. Only such records enter the
  // statistics.
  bool counts(const Trace& trace, const Record& record) const;
  bool counts(const Trace& trace, const LaunchRecord& launch) const;
  // REQUIRES: steps is not empty (finish() sees to it). Error (usage): as check().
  std::string table(const TableOptions& options = {}) const;
};

}  // namespace sinter::profiler
