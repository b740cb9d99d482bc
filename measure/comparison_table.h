// The table of a comparison: eager and fused side by side, joined (profiler/join.h) by what each
// fused op stands for, never by name.
//
// Times come from profiled rounds of both runs, in pairs: a row's are the medians over the rounds,
// its ratio is their quotient (profiler/stats.h), and TOTAL is the sum of the rows' times. Counts,
// FLOPs and bytes come from the two graphs. Plain data in, text out; used by measure::compare().
#pragma once

#include "capture/step.h"
#include "profiler/join.h"
#include "profiler/report.h"

namespace sinter::measure {

// Self time in us (on a device its device time) of every launch of a step, in the order of the
// graph: the median over the steps of one profiled round. Empty if a step does not have `nodes`
// launches.
std::vector<double> launch_times_us(const profiler::Report& report, size_t nodes);

using profiler::ComparedRow, profiler::ComparisonTable, profiler::Unit, profiler::unit_of_us,
    profiler::unit_of_bytes;

// The launch times of the eager and of the fused step in one pair of rounds (launch_times_us).
using PairOfTimes = std::pair<std::vector<double>, std::vector<double>>;
// Without `rounds` the table has no times.
ComparisonTable make_table(
    const capture::Captured& captured, const std::vector<PairOfTimes>& rounds);

// The nodes of the fused graph, for reports of its replays.
std::vector<profiler::GraphNode> describe_nodes(const capture::Captured& captured);
// What each rule saved in this capture, the largest saving first: advice for reports of the eager
// step.
std::vector<profiler::Candidate> candidates(const capture::Captured& captured);

}  // namespace sinter::measure
