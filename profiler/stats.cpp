#include "profiler/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

double quantile_of_sorted(std::span<const double> sorted, double q) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = q * double(sorted.size() - 1);
  const auto below = size_t(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - double(below)) * (sorted[above] - sorted[below]);
}

double median_in_place(std::vector<double>& samples) {
  const size_t half = samples.size() / 2;
  std::nth_element(samples.begin(), samples.begin() + half, samples.end());
  if (samples.size() % 2 == 1) return samples[half];
  return (samples[half] + *std::max_element(samples.begin(), samples.begin() + half)) / 2;
}

}  // namespace

double quantile(std::span<const double> samples, double q) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return quantile_of_sorted(sorted, q);
}

bool Estimate::is_noisy() const { return has_interval && noise() > kNoisy; }

Estimate median_interval(std::span<const double> samples) {
  Estimate estimate{.value = median(samples)};
  estimate.low = estimate.high = estimate.value;
  if (samples.size() < size_t(kMinPairs)) return estimate;
  // Its bits are the standard's, and so is the modulo: the same on every machine.
  std::mt19937_64 engine(20240607);
  std::vector<double> medians(kResamples), draw(samples.size());
  for (double& m : medians) {
    for (double& x : draw) x = samples[engine() % samples.size()];
    m = median_in_place(draw);
  }
  std::sort(medians.begin(), medians.end());
  // 2.5 %; the same count at both ends keeps the interval of B against A the inverse of A's
  // against B.
  constexpr size_t kTail = kResamples / 40;
  estimate.low = medians[kTail];
  estimate.high = medians[kResamples - 1 - kTail];
  estimate.has_interval = true;
  return estimate;
}

Estimate paired_ratio(std::span<const double> before, std::span<const double> after) {
  SINTER_CHECK(before.size() == after.size() && !before.empty(), usage,
      cat("paired_ratio: rounds must come in pairs: ", before.size(), " before, ", after.size(),
          " after"));
  std::vector<double> logs(before.size());
  for (size_t i = 0; i < logs.size(); ++i) {
    SINTER_CHECK(before[i] > 0 && after[i] > 0, usage,
        cat("paired_ratio: times must be positive: round ", i, " took ", before[i], " and ",
            after[i]));
    logs[i] = std::log(before[i]) - std::log(after[i]);
  }
  Estimate ratio = median_interval(logs);
  ratio.value = std::exp(ratio.value);
  ratio.low = std::exp(ratio.low);
  ratio.high = std::exp(ratio.high);
  return ratio;
}

double distortion(std::span<const double> profiled, std::span<const double> clean) {
  return 100 * (median(profiled) / median(clean) - 1);
}

std::string factor_text(const Estimate& ratio, size_t pairs) {
  if (!ratio.has_interval)
    return fmt::format("no factor: {} pairs, {} are needed", pairs, kMinPairs);
  if (ratio.is_noisy())
    return fmt::format("machine busy: no factor [{:.2f},{:.2f}]", ratio.low, ratio.high);
  if (ratio.contains(1.0))
    return fmt::format("no difference shown [{:.2f},{:.2f}]", ratio.low, ratio.high);
  return fmt::format("{:.2f}x [{:.2f},{:.2f}]", ratio.value, ratio.low, ratio.high);
}

}  // namespace sinter::profiler
