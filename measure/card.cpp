#include "measure/card.h"

#include <algorithm>
#include <cmath>

#include "ops/product/gemm_library.h"

namespace sinter::measure {
namespace {

// H100: memory and gap as measured (docs/results), start as the shortest kernel seen; A100 and
// what is left: data sheets, mma.sync at 62 % of the H100's dense rate and at all of the A100's.
constexpr Card kCards[] = {
    {"h100", "H100 SXM, 132 SMs at 1.98 GHz", 132, 50, 5500, 2800, 66.9, 33.4, 300, 610, 1.3, 0.8},
    {"a100", "A100 SXM, 108 SMs at 1.41 GHz", 108, 40, 4000, 1750, 19.5, 9.7, 156, 312, 1.6, 0.9}};

double tflops_of(const Card& card, DType dtype) {
  switch (dtype) {
    case DType::bf16: return card.bf16_tflops;
    case DType::f64: return card.f64_tflops;
    default: return allow_tf32() ? card.tf32_tflops : card.f32_tflops;
  }
}

// What a launch of this shape can use: of the multiprocessors, and of the schedulers of one.
struct Share {
  double multiprocessors = 1, schedulers = 1;
};
Share share_of(const Card& card, const LaunchShape& shape) {
  const auto blocks = double(shape.grid.blocks());
  const double waves = std::ceil(blocks / card.multiprocessors);
  const double warps = std::ceil(shape.block / 32.0) * std::min(waves, 4.0);
  return {blocks / (waves * card.multiprocessors), std::min(1.0, warps / 8)};
}

}  // namespace

std::optional<Card> card_of(std::string_view name) {
  const auto* found = std::find_if(
      std::begin(kCards), std::end(kCards), [&](const Card& c) { return c.name == name; });
  return found == std::end(kCards) ? std::nullopt : std::optional(*found);
}

std::vector<double> modelled_us(const Card& card, const capture::Graph& graph,
    const std::vector<LaunchShape>& launches, double step_bytes) {
  const double gbs = step_bytes < card.l2_mb * 1e6 ? card.l2_gbs : card.memory_gbs;
  const bool paired = launches.size() == graph.nodes.size();
  std::vector<double> us;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const capture::Node& node = graph.nodes[n];
    const Cost cost = graph.cost(node);
    const auto given = std::ranges::find_if(node.in, [](int value) { return value >= 0; });
    const DType dtype = given == node.in.end() ? DType::f32 : graph.values[*given].dtype;
    const Share share = paired ? share_of(card, launches[n]) : Share{};
    const double flops_us = double(cost.flops) * 1e-6 / tflops_of(card, dtype) / share.schedulers;
    const double bytes_us = double(cost.bytes()) * 1e-3 / gbs;
    us.push_back(
        card.gap_us + card.start_us + std::max(flops_us, bytes_us) / share.multiprocessors);
  }
  return us;
}

}  // namespace sinter::measure
