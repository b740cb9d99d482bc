#include "measure/expected_saving.h"

#include <fmt/format.h>

#include <cmath>

#include "profiler/thresholds.h"

namespace sinter::measure {
namespace {

// What each of the two changes should have saved of a step, by roofs and host cost, beside what it
// saved; one that is far off, by more than a tenth of the step, asks to be looked at.
std::string saving_line(const char* what, const std::string& why, double predicted, double measured,
    bool shown, double step_us) {
  if (!shown)
    return fmt::format(
        "saving by {}: {} | expected {:.1f}, no difference shown", what, why, predicted);
  const double parts = predicted != 0 ? measured / predicted : 0;
  const bool look = (parts < profiler::kSavingLow || parts > profiler::kSavingHigh) &&
                    std::abs(measured - predicted) > 0.1 * step_us;
  return fmt::format("saving by {}: {} | expected {:.1f}, saved {:.1f} ({:.0f} %){}", what, why,
      predicted, measured, 100 * parts, look ? "  LOOK" : "");
}

}  // namespace

std::string estimate_text(const Saving& expected, const profiler::Estimate& saved_us) {
  const double low = expected.low_us(), high = expected.high_us();
  const auto side = [](double us, bool is_low) {
    return us * ((us > 0) == is_low ? profiler::kSavingLow : profiler::kSavingHigh);
  };
  const bool look = saved_us.high < side(low, true) || saved_us.low > side(high, false);
  const Unit time = unit_of_us(std::max(high, saved_us.value)),
             size = unit_of_bytes(expected.kilobytes * 1e3);
  const auto scaled = [&time](double us) { return fmt::format("{:.1f}", us / time.size); };
  const std::string bytes = cat(expected.in_cache ? "0 to " : "", scaled(expected.bytes_us()),
                        time.name, expected.in_cache ? ", as they fit the cache" : ""),
                    sum = low == high ? scaled(low) : cat(scaled(low), " to ", scaled(high));
  return fmt::format(
      "saving: {:+.0f} launches x {:.2f}us, and {:+.1f} {} at {:.0f} GB/s = {} | expected {}{}, "
      "saved {} [{},{}]{}",
      -expected.launches, expected.launch_us, -expected.kilobytes * 1e3 / size.size, size.name,
      expected.copy_gbs, bytes, sum, time.name, scaled(saved_us.value), scaled(saved_us.low),
      scaled(saved_us.high), look ? "  LOOK" : "");
}

std::vector<std::string> expected_saving_lines(const Comparison& comparison, const Outcome& o) {
  const profiler::Ceiling c = o.eager.ceiling();
  if (!o.ratio.has_interval || !c.known() ||
      o.eager.incomplete.size() + o.fused.incomplete.size() > 0)
    return {};
  if (o.ratio.is_noisy() || !o.eager.busy().empty() || !o.fused.busy().empty()) return {};
  const capture::Captured& captured = comparison.captured();
  const bool shown = o.ratio.is_shown();
  const double e = profiler::median(o.eager_us), f = profiler::median(o.fused_us),
               host = o.eager.roofs->op_ns / 1e3;
  const double fewer =
      double(captured.recorded.nodes.size()) - double(captured.fused.graph.nodes.size());
  const double traffic =
      double(o.table.total.eager_bytes - o.table.total.fused_bytes) / c.bytes_per_ns / 1e3;
  if (comparison.device == kCpu) {
    const double kilobytes = 1e-3 * double(o.table.total.eager_bytes - o.table.total.fused_bytes);
    return {estimate_text({fewer, host, kilobytes, c.bytes_per_ns, c.in_cache}, o.saving())};
  }
  if (o.listed_us.empty() || o.table.total.eager_us.empty()) return {};
  // A step takes the longer of what the host needs to issue it (H) and what the device needs to run
  // it (D). What the host does beside its ops, the tape above all, a list of launches has not.
  const double listed = profiler::median(o.listed_us), n = double(captured.recorded.nodes.size()),
               m = n - fewer;
  const double de = o.table.total.eager_time(), df = o.table.total.fused_time();
  // Kernels that share the device take longer, each of them, than in a list: no sum of them tells.
  if (df > 1.1 * f)
    return {fmt::format(
        "saving: not foreseen, as branches of the graph run side by side: kernels of {:.1f}us "
        "in a step of {:.1f}us",
        df, f)};
  const double he = e > 1.1 * de ? e : n * host, hf = m * host;
  const double gaps = o.fused.source == profiler::Source::cupti
                          ? m * o.fused.roofs->node_gap_ns / 1e3
                          : 0;  // else df holds them
  const double predicted_listed = std::max(hf, df), predicted_graph = std::max(host, df + gaps);
  const auto bound = [](double h, double d) { return h > d ? "host-bound" : "device-bound"; };
  return {
      saving_line("fusion",
          fmt::format("{:+.0f} launches x {:.1f}us = {:.1f}us; {} before, {} after, {:+.1f}us on "
                      "the device and {:+.1f} kB",
              -fewer, host, fewer * host, bound(he, de), bound(hf, df), df - de,
              double(o.table.total.fused_bytes - o.table.total.eager_bytes) / 1e3),
          std::max(he, de) - predicted_listed, e - listed, shown, e),
      saving_line("replay",
          fmt::format("{} {:.1f} -> {} {:.1f}us", bound(hf, df), predicted_listed, bound(host, df),
              predicted_graph),
          predicted_listed - predicted_graph, listed - f, shown, listed),
      fmt::format("the bytes alone would save {:.1f}us", traffic)};
}

}  // namespace sinter::measure
