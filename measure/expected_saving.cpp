// expected_saving_lines().
#include <fmt/format.h>

#include <cmath>

#include "measure/comparison.h"
#include "profiler/thresholds.h"

namespace sinter::measure {
namespace {

// LOOK where the whole interval of what was saved lies outside of what was expected.
std::string saving_text(const std::string& why, double low_us, double high_us, const Unit& time,
    const profiler::Estimate& saved_us) {
  const auto side = [](double us, bool is_low) {
    return us * ((us > 0) == is_low ? profiler::kSavingLow : profiler::kSavingHigh);
  };
  const bool look = saved_us.high < side(low_us, true) || saved_us.low > side(high_us, false);
  const auto scaled = [&time](double us) { return fmt::format("{:.1f}", us / time.size); };
  return fmt::format("saving: {} | expected {}{}{}, saved {} [{},{}]{}", why,
      low_us == high_us ? "" : scaled(low_us) + " to ", scaled(high_us), time.name,
      scaled(saved_us.value), scaled(saved_us.low), scaled(saved_us.high), look ? "  LOOK" : "");
}

// Of the profiled step, less what the profiler takes.
double outside_kernels_us(const profiler::Report& report) {
  double kernels_ns = 0;
  for (const profiler::Row& row : report.rows().rows) kernels_ns += row.typical_kernel_ns;
  return (profiler::median(report.step_ns()) - kernels_ns / double(report.steps.size())) * 1e-3 -
         report.profiler_us();
}

}  // namespace

std::string estimate_text(const Saving& expected, const profiler::Estimate& saved_us) {
  const double low = expected.low_us(), high = expected.high_us();
  const Unit time = unit_of_us(std::max(high, saved_us.value)),
             size = unit_of_bytes(expected.kilobytes * 1e3);
  const std::string why =
      fmt::format("{:+.0f} launches x {:.2f}us, and {:+.1f} {} at {:.0f} GB/s = {}{:.1f}{}{}",
          -expected.launches, expected.launch_us, -expected.kilobytes * 1e3 / size.size, size.name,
          expected.copy_gbs, expected.in_cache ? "0 to " : "", expected.bytes_us() / time.size,
          time.name, expected.in_cache ? ", as they fit the cache" : "");
  return saving_text(why, low, high, time, saved_us);
}

std::vector<std::string> expected_saving_lines(const Comparison& comparison, const Outcome& o) {
  const profiler::Ceiling c = o.eager.ceiling();
  if (!o.ratio.has_interval || !c.known() ||
      o.eager.incomplete.size() + o.fused.incomplete.size() > 0)
    return {};
  if (o.ratio.is_noisy() || !o.eager.busy().empty() || !o.fused.busy().empty()) return {};
  const capture::Captured& captured = comparison.captured();
  const auto nodes = double(captured.recorded.nodes.size()),
             left = double(captured.fused.graph.nodes.size());
  const double host = o.eager.roofs->op_ns / 1e3,
               bytes = double(o.table.total.eager_bytes - o.table.total.fused_bytes);
  if (comparison.device == kCpu) {
    // What a launch costs here, as the tables above have it: all that is no kernel of either step.
    const double of_a_launch =
        (outside_kernels_us(o.eager) - outside_kernels_us(o.fused)) / (nodes - left);
    return {estimate_text(
        {nodes - left, nodes > left ? of_a_launch : 0, 1e-3 * bytes, c.bytes_per_ns, c.in_cache},
        o.saving())};
  }
  if (o.table.total.eager_us.empty()) return {};
  // A step takes the longer of what the host needs to issue it and what the device needs to run it:
  // eager the host issues every op, and beside its ops the tape; fused all at once.
  const double e = profiler::median(o.eager_us), f = profiler::median(o.fused_us),
               eager_us = o.table.total.eager_time(), fused_us = o.table.total.fused_time();
  // Kernels that share the device take longer, each of them, than in a list: no sum of them tells.
  if (fused_us > 1.1 * f)
    return {fmt::format(
        "saving: not foreseen, as branches of the graph run side by side: kernels of {:.1f}us "
        "in a step of {:.1f}us",
        fused_us, f)};
  const double gaps = left * o.fused.roofs->node_gap_ns / 1e3;
  const double issue = e > 1.1 * eager_us ? e : nodes * host, run = fused_us + gaps;
  const double expected = std::max(issue, eager_us) - std::max(host, run);
  const auto bound = [](double h, double d) { return h > d ? "host-bound" : "device-bound"; };
  return {saving_text(fmt::format("{} {:.1f} -> {} {:.1f}us, {:+.0f} launches, {:+.1f} kB",
                          bound(issue, eager_us), std::max(issue, eager_us), bound(host, run),
                          std::max(host, run), left - nodes, -1e-3 * bytes),
      expected, expected, Unit{1, "us"}, o.saving())};
}

}  // namespace sinter::measure
