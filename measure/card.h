// A model of a card: how long the launches of a step would take on one that is not here, by their
// costs and shapes as the emulator counted them. A model, not a measurement: it knows no stalls, no
// conflicts and no clock that sinks under load.
//
//   time of a launch = gap + start + max(bytes / bandwidth, FLOPs / rate / s) / m
//
// Bytes go at the L2 cache's bandwidth where the whole step fits it, else at the memory's; FLOPs at
// the rate of their type. m: of the multiprocessors, the share that has blocks, over all waves. s:
// of a multiprocessor's schedulers, the share that its warps keep busy, which takes eight of them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "capture/graph.h"
#include "core/device/grid.h"

namespace sinter::measure {

struct Card {
  std::string_view name, text;
  double multiprocessors;
  double l2_mb, l2_gbs, memory_gbs;
  double f32_tflops, f64_tflops, tf32_tflops, bf16_tflops;  // of what mma.sync reaches
  double start_us, gap_us;  // of the shortest kernel; between two nodes of a graph
};
// "h100" or "a100"; none of another name.
std::optional<Card> card_of(std::string_view name);

// Per node of the graph, us. `launches`: those of one run of it; without them, or if nodes and
// launches do not pair up, every launch is taken to fill the card. `step_bytes`: what the whole
// step touches.
std::vector<double> modelled_us(const Card& card, const capture::Graph& graph,
    const std::vector<LaunchShape>& launches, double step_bytes);

}  // namespace sinter::measure
