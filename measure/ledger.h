// The comparison ledger: eager and fused side by side, row mapped to row by what each fused op
// stands for, never by name.
//
// Times come from profiled rounds of both runs, in pairs; a row's ratio is the median over pairs of
// the ratio of its rounds (profiler/stats.h). Counts, FLOPs and bytes come from the two graphs.
// Plain data in, text out; used by `mnist compare` and `geglu`.
#pragma once

#include "capture/step.h"
#include "profiler/report.h"
#include "profiler/stats.h"

namespace sinter::measure {

// Self time in us (on a device its device time) of every launch of a step, in the order of the
// graph: the median over the steps of one profiled round. Empty if a step does not have `nodes`
// launches.
std::vector<double> launch_times_us(const profiler::Report& report, size_t nodes);

struct LedgerRow {
  std::string fused, eager;  // "linear_act x2", "linear x2, relu x2"
  std::string verdict;       // "unchanged", "fallback", or ""; with either the kernel is the same
  int eager_launches = 0, fused_launches = 0;
  int64_t eager_bytes = 0, fused_bytes = 0, eager_flops = 0, fused_flops = 0;
  std::vector<double> eager_us, fused_us;  // per pair of rounds
};

struct Ledger {
  std::vector<LedgerRow> rows;  // in the order of the fused graph
  LedgerRow total;
  std::string times = "Self CPU us";  // the title of the times
  // The ledger as a table; without times these columns are "-".
  std::string table() const;
};

// rounds: per pair, the launch times of the eager and of the fused step (launch_times_us); empty:
// no times.
Ledger make_ledger(const capture::Captured& captured,
    const std::vector<std::pair<std::vector<double>, std::vector<double>>>& rounds);

// The nodes of the fused graph, for reports of its replays.
std::vector<profiler::GraphNode> describe_nodes(const capture::Captured& captured);
// What each rule saved in this capture, the largest saving first: advice for reports of the eager
// step.
std::vector<profiler::Candidate> candidates(const capture::Captured& captured);
// Distinct bytes that a run of the graph touches: its external buffers and inputs, and `local` of
// its own.
int64_t touched_bytes(const capture::Graph& graph, int64_t local);

}  // namespace sinter::measure
