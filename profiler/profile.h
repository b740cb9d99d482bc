// Profile: what a session found, as plain numbers and names: the one model that the table, JSON,
// diff and the HTML page read. Report::profile() makes it, read_profile() reads it back, and
// read_profile_or_trace() makes one of what PyTorch's profiler wrote.
//
// Times are integer ns and sums over the active steps: divide by steps.size(). A value: copy it,
// keep it, read it from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "profiler/launch_record.h"
#include "profiler/memory_use.h"
#include "profiler/occupancy.h"
#include "profiler/roofs.h"
#include "profiler/scope.h"
#include "profiler/stats.h"
#include "profiler/verdict.h"

namespace sinter::profiler {

// wait: not recorded; warmup: recorded and thrown away; active: every step is a sample. repeat 0:
// until finish().
struct Schedule {
  int wait = 1, warmup = 3, active = 20, repeat = 1;
};

// What data scopes and ops of role data launch does not belong to the step, whatever the device:
// their rows have counts of their own.
struct StepSample {
  int64_t number = 0, round = 0;  // both from 0; a round is one turn of the schedule
  int64_t t0 = 0, t1 = 0;
  int64_t allocs = 0;      // tensor memory asked of the device's allocator
  int64_t launches = 0;    // kernels of all threads, those of CUDA graphs too
  int64_t timed = 0;       // of the launches, by the device
  int64_t api_calls = 0;   // host calls that submitted work; on cpu as launches
  int64_t copies = 0;      // memcpy and memset
  int64_t window = 0;      // steps of one window follow each other without a pause
  int64_t drain_ns = 0;    // waiting for the device behind it, at its window's end
  int64_t live_bytes = 0;  // of the device's allocator, when it began
  // What the profiler itself took of it: describing ops as it was measured, scopes, spans and
  // memory samples by scope_ns and event_ns.
  int64_t profiler_ns = 0;

  int64_t ns() const { return t1 - t0; }
  // Files have no time axis.
  SINTER_FIELD_LIST(number, round,
      named("ns", through([&] { return ns(); }, [&](auto ns) { t1 = t0 + ns; })), launches,
      api_calls, copies, allocs, newer(profiler_ns))
};

// A copy, a fill, or a kernel by its own name and footprint.
struct KernelSum {
  std::string name{};
  LaunchKind kind = LaunchKind::kernel;
  Source source = Source::none;
  int64_t launches = 0, ns = 0;
  std::optional<Footprint> footprint{};  // as far as it is known
  std::optional<Occupancy> occupancy{};  // where all that it takes to say is known
  SINTER_FIELD_LIST(name, kind, source, launches, ns, newer(footprint), newer(occupancy))
};

// All calls of one op name and role (and shapes, if asked), or of one name among the scopes of
// another kind. Ops of role data are rows of kind data.
struct Row {
  std::string name{}, shapes{};  // `matmul(wgrad)`; shapes only by shape
  ScopeKind kind = ScopeKind::op;
  Role role = Role::none;
  std::string made_of{};  // of a replayed fused op: "linear + relu"
  // Where it is known: the rows of the eager profile that a fused op stands for, see join.h.
  std::vector<int> origin{};
  std::vector<KernelSum> kernels{};  // that it launched, the longest first; cpu: none
  int64_t calls = 0, launches = 0;
  int64_t untimed = 0;   // launches without a device time
  int64_t unproved = 0;  // library calls that may have launched several kernels
  Cost cost{};
  MemoryUse memory{};
  // Sums, on the host. A row inside itself counts once in total.
  int64_t self_ns = 0, total_ns = 0, kernel_ns = 0;
  // Of its launches, and with those of its children; on cpu as kernel_ns and total_ns.
  int64_t device_ns = 0, device_total_ns = 0;
  bool on_device = false;  // an op with device times: what it is compared with is one
  // Self ns of each active step: the device's, on cpu the host's.
  std::vector<int64_t> samples{};
  // Sums as they would be if every step had taken the median: a stall is in the sums above and not
  // in these. What is shown, shares, verdicts and comparisons go by them. The first is of samples,
  // the second with its children's, the third of its kernels on cpu.
  double typical_ns = 0, typical_total_ns = 0, typical_kernel_ns = 0;
  std::optional<double> share{};  // of an op: of typical_ns over all ops, where it was measured
  std::string flags{};            // "HOT, MANY adam_update"
  std::string heaviest_child{};
  int64_t heaviest_child_ns = 0;
  RowVerdict verdict{};  // ops only
  // What the work should take under the roofs, and the share of the nearer roof that it reaches
  // (1 is all of it); nothing without roofs or times.
  std::optional<double> pred_ns{}, roof{};

  double dispatch_ns() const { return typical_ns - typical_kernel_ns; }
  // How many times pred_ns it took; 0: not known.
  double xpred() const { return roof && pred_ns > 0 ? typical_ns / *pred_ns : 0; }
  // Is it one of the table's rows? Ops, and apart from them, without a share and in no sum, what
  // takes the device's time beside them: copies, and the fetching of data. The others are scopes.
  bool in_table() const {
    return kind == ScopeKind::op || kind == ScopeKind::runtime ||
           (kind == ScopeKind::data && launches > 0);
  }
  SINTER_FIELD_LIST(name, shapes, kind, role, made_of, named("verdict", verdict.code),
      verdict.evidence, calls, launches, unproved, cost.flops, cost.bytes_read, cost.bytes_written,
      self_ns, total_ns, kernel_ns,
      named(
          "device_ns", through([&] { return on_device ? std::optional(device_ns) : std::nullopt; },
                           [&](auto ns) {
                             on_device = ns.has_value();
                             device_ns = ns.value_or(0);
                           })),
      pred_ns, roof, newer(memory), written(in_table()), newer(share), newer(typical_ns),
      newer(typical_total_ns), newer(typical_kernel_ns), newer(flags), newer(kernels), samples)
};

// Sum of the samples if every step that has any had taken their median.
double typical(const std::vector<int64_t>& samples);

// What a fusion rule would save in an eager step; from capture::candidates().
struct Candidate {
  std::string rule, ops;          // "linear_act", "linear + relu"
  std::vector<std::string> rows;  // names of the rows it would take
  int times = 1;
  int64_t launches_saved = 0, bytes_saved = 0;
  // "linear_act x2 (linear + relu): -2 launches, -196.6 kB". What that saves is measured, not told.
  std::string text() const;
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

  int64_t idle_ns() const { return data_ns + sync_ns + host_ns + gap_ns; }
  SINTER_FIELD_LIST(window_ns, busy_ns, data_ns, sync_ns, host_ns, gap_ns)
};

// What a session does not know of its run.
struct RunFacts {
  // "mlp 784-256-128-10 relu, adam": what was run; equal text, comparable runs
  std::string workload{};
  std::string command{}, build{}, seed{};
  int64_t batch = 0;  // 0: not said
};

// How a run was measured, and its steps: what a Report and its Profile have in common.
struct Measurement : RunFacts {
  std::string title;  // "CPU eager"
  int threads = 0;
  Schedule schedule;
  Device device{};
  Card card{};                   // that launches are shaped for
  std::string mode, rules;       // "eager", "fused"; rules of the latter
  std::string dtype = "f32";     // of the matrix products: chooses the roof
  bool replayed = false;         // the steps ran as a CUDA graph: no host time per row
  Source source = Source::host;  // of the device times
  std::string source_why;        // what is in the way of a better one
  std::optional<Roofs> roofs;    // without them Pred, %roof and verdicts are "-"
  int64_t working_set = 0;       // bytes of distinct storage that a step touches; 0: unknown
  Overheads overheads;
  int64_t dropped = 0;   // records lost to a full buffer, the device's own too
  int64_t invalid = 0;   // device times that cannot be
  int64_t unproved = 0;  // launches of which only "at least one kernel" is known
  // Lowest clock at the windows' edges, and what the card should run at; 0: not read
  double sm_mhz = 0, sm_standard_mhz = 0;
  // Median steps of clean rounds, or clean steps: what a step takes without the profiler
  std::vector<double> clean_us;
  // What fusing would save in an eager step, the one that saves most first; of a fused step
  // nothing more. Nothing: no graph was recorded, so no rule is known.
  std::optional<std::vector<Candidate>> candidates;
  std::vector<StepSample> steps;        // active and complete
  std::vector<std::string> incomplete;  // why not to trust this; empty: it is complete
  std::vector<std::string> notes;       // what left the statistics
  std::string disturbed{};              // how other programs were seen to disturb it, or ""

  // Index in steps, or -1 if the step is not an active one.
  int64_t step_index(uint32_t number) const;
  std::vector<double> step_ns() const;
  // Steps that follow each other without a pause.
  std::vector<std::span<const StepSample>> windows() const;
  double launches_per_step() const;
  int64_t drain_ns() const;    // of all steps
  double profiler_us() const;  // of the median step
  // By how many percent a profiled step takes longer than a clean one, the profiler's own cost
  // taken off: medians of both, a step's with its share of its window's drain. NaN where no clean
  // step was measured, and on the emulator, whose times mean nothing.
  double distortion() const;
  // Why times of this report are too unsteady to decide by (cpu only): other programs ran, too. "":
  // they are not.
  std::string busy() const;
  bool throttled() const;
  Ceiling ceiling() const;
};

// On the emulator, whose times mean nothing, all times are 0. One that was read back knows what the
// file holds: no roofs as they were measured, no working set, no candidates.
struct Profile : Measurement {
  StepVerdict verdict;
  std::optional<Ceiling> roofline;  // the roofs as this run uses them
  std::optional<Timeline> idle;     // nothing: not measured
  // Of all rows and outside of them: of the allocator, and of replays in the arena by its plan.
  MemoryUse memory, arena;
  int64_t memory_peak = 0;     // bytes
  std::string memory_peak_op;  // the innermost op that was going on when memory in use was highest
  std::vector<Row> rows;       // in the order of first sight
  std::vector<KernelSum> kernels;  // the longest first
  int64_t ops_ns = 0;              // host time of the stepping thread in ops
  int64_t replay_ns = 0;           // host time of launching whole graphs
  SINTER_FIELD_LIST(named("schema", written("sinter.profile/1")), title, workload, command, build,
      seed, device, newer(card), mode, rules, dtype, source, source_why, batch, threads,
      schedule.wait, schedule.warmup, schedule.active, schedule.repeat, named("roofs", roofline),
      overheads.scope_ns, overheads.event_ns, overheads.axis_ns, dropped, invalid, unproved, sm_mhz,
      sm_standard_mhz, verdict, idle, newer(memory), newer(arena), memory_peak, memory_peak_op,
      clean_us, incomplete, notes, steps, rows, kernels)
};

// Throws usage unless the word is known: "table: unknown columns: memry; nearest is memory; allowed
// memory, footprint".
void check_known(
    const std::string& what, std::string_view word, std::span<const std::string_view> known);

struct TableOptions {
  // torch's keys, see table.cpp; "": self time, on the device if there is one
  std::string sort_by{};
  int row_limit = 15;    // -1: all rows, none folded
  bool no_meta = false;  // leaves out what launches nothing
  std::string filter{};  // a regular expression that rows' names must hold
  bool group_by_input_shape = false;
  int group_by_module = 0;  // rows per path of that many modules
  // More of them, a list: all, memory (MemoryUse), footprint (of a row's longest kernel, see
  // occupancy.h), or titles: "p95,Disp". What is asked for goes for no width.
  std::string columns{};
  bool scopes = true;  // a second block: modules, a user's own and other scopes
  // Characters at most: columns go, names are cut. 0: 80, or as wide as it is where columns or
  // shapes are asked for.
  size_t width = 0;
};

// Error (usage): unknown sort key or columns, bad row limit or regular expression; the hint names
// the nearest.
void check(const TableOptions& options);
// The grouping is the profile's own: Report::table() asks for what the options name.
// REQUIRES: steps is not empty. Error (usage): as check().
std::string table(const Profile& profile, const TableOptions& options = {});
// Its rows as cells, for a page: the titles, then a list for each row.
std::vector<std::vector<std::string>> table_cells(
    const Profile& profile, const TableOptions& options = {});

// sinter.profile/1, the object of --profile=json, and back. Error (data) where the text is no
// profile; `file` is for the message.
std::string to_json(const Profile& profile);
Profile read_profile(const std::string& text, const std::string& file);
// Either that or a trace of PyTorch's profiler (Kineto's JSON, of torch.profiler's
// export_chrome_trace()), told by what it holds. Of a trace a row is a name and the shapes of the
// inputs, with its calls, launches and self times; what it does not say, as workload, batch and
// dtype, is empty. Error (data): neither, cut off, without ops, or with an event whose times are
// none.
Profile read_profile_or_trace(const std::string& text, const std::string& file);

}  // namespace sinter::profiler
