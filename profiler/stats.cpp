#include "profiler/stats.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "core/error.h"
#include "profiler/thresholds.h"

namespace sinter::profiler {
namespace {

double median_in_place(std::vector<double>& samples) {
  const size_t half = samples.size() / 2;
  std::nth_element(samples.begin(), samples.begin() + half, samples.end());
  if (samples.size() % 2 == 1) return samples[half];
  return (samples[half] + *std::max_element(samples.begin(), samples.begin() + half)) / 2;
}

// The value of all samples, and 95 % of its values where `n` of them are drawn anew: of each layout
// that is drawn as many as the one in its place has.
template <class Statistic> Estimate bootstrap(size_t n, Statistic&& statistic, size_t layouts = 1) {
  std::vector<size_t> draw(n);
  std::iota(draw.begin(), draw.end(), size_t{0});
  Estimate estimate{.value = statistic(draw)};
  estimate.low = estimate.high = estimate.value;
  if (n < size_t(kMinPairs)) return estimate;
  // Its bits are the standard's, and so is the modulo: the same on every machine.
  std::mt19937_64 engine(20240607);
  std::vector<double> values(kResamples);
  std::vector<size_t> drawn(std::min(layouts, n));
  for (double& value : values) {
    if (drawn.size() > 1) std::ranges::generate(drawn, [&] { return engine() % drawn.size(); });
    for (size_t i = 0; i < n; ++i) {
      const size_t layout = drawn[i % drawn.size()], rounds = (n - 1 - layout) / drawn.size() + 1;
      draw[i] = layout + drawn.size() * (engine() % rounds);
    }
    value = statistic(draw);
  }
  std::sort(values.begin(), values.end());
  // 2.5 %; the same count at both ends keeps the interval of B against A the inverse of A's
  // against B.
  constexpr size_t kTail = kResamples / 40;
  estimate.low = values[kTail];
  estimate.high = values[kResamples - 1 - kTail];
  estimate.has_interval = true;
  return estimate;
}

// The median of those samples that were drawn; `room` is the memory for it.
double median_of(
    std::span<const double> samples, const std::vector<size_t>& draw, std::vector<double>& room) {
  room.clear();
  for (const size_t i : draw) room.push_back(samples[i]);
  return median_in_place(room);
}

void check_pairs(std::span<const double> before, std::span<const double> after) {
  SINTER_CHECK(before.size() == after.size() && !before.empty(), usage,
      str("paired_ratio: rounds must come in pairs: ", before.size(), " before, ", after.size(),
          " after"));
  for (size_t i = 0; i < before.size(); ++i) {
    SINTER_CHECK(before[i] > 0 && after[i] > 0, usage,
        str("paired_ratio: times must be positive: round ", i, " took ", before[i], " and ",
            after[i]));
  }
}

// combine(median of before, median of after); the value itself of the printed two. What rounding
// moves it is in the interval, too.
template <class Combine>
Estimate of_medians(std::span<const double> before, std::span<const double> after, int64_t layouts,
    Combine&& combine) {
  check_pairs(before, after);
  std::vector<double> room;
  Estimate out = bootstrap(
      before.size(),
      [&](const std::vector<size_t>& draw) {
        return combine(median_of(before, draw, room), median_of(after, draw, room));
      },
      size_t(layouts));
  out.value = combine(as_told(median(before)), as_told(median(after)));
  out.low = std::min(out.low, out.value);
  out.high = std::max(out.high, out.value);
  return out;
}

// Of n degrees of freedom: the t beyond which lie 5 % of Student's distribution, on both sides
// together. With t = sqrt(n) tan(angle) its density is cos(angle)^(n - 1), which is summed up.
double student_t(int64_t n) {
  constexpr int kSlices = 100'000;
  constexpr double kSlice = std::numbers::pi / 2 / kSlices;
  const auto density = [n](int i) { return std::pow(std::cos((i + 0.5) * kSlice), double(n - 1)); };
  double all = 0, part = 0;
  for (int i = 0; i < kSlices; ++i) all += density(i);
  int at = 0;
  while (part < 0.95 * all) part += density(at++);
  return std::sqrt(double(n)) * std::tan(at * kSlice);
}

// Digits behind the point of a time of four digits.
int decimals_of(double time) {
  return time > 0 ? std::max(0, 3 - int(std::floor(std::log10(time)))) : 0;
}

// Decimals of a ratio: near 1 the third decides whether there is a difference.
int decimals_of(const Estimate& ratio) {
  const auto is_near_one = [](double x) { return 0.9 <= x && x <= 1.1; };
  return is_near_one(ratio.low) || is_near_one(ratio.high) ? 3 : 2;
}

}  // namespace

double quantile(std::span<const double> samples, double q) {
  std::vector<double> sorted(samples.begin(), samples.end());
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(sorted);
  const double at = q * double(sorted.size() - 1);
  const auto below = size_t(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - double(below)) * (sorted[above] - sorted[below]);
}

std::string why_unsteady(const char* steps, std::span<const double> times) {
  const double apart = times.empty() ? 0 : spread(times);
  if (apart <= kBusySpread) return "";
  return fmt::format("the middle half of the {} spans {:.0f} % of the median, {:.0f} % allowed",
      steps, std::ceil(100 * apart), 100 * kBusySpread);
}

bool Estimate::is_noisy() const { return has_interval && noise() > kNoisy; }

bool Estimate::holds_one() const {
  constexpr double kHalf = 0.0005;  // of the last digit that is printed near 1
  return has_interval && low < 1 + kHalf && high >= 1 - kHalf;
}

double as_told(double time) {
  if (!(time > 0)) return time;  // NaN, too
  // Powers of ten that are whole numbers, so that the result is what its text reads as.
  const int digits = 3 - int(std::floor(std::log10(time)));
  const double scale = std::pow(10.0, std::abs(digits));
  return digits >= 0 ? std::round(time * scale) / scale : std::round(time / scale) * scale;
}

std::string time_text(double time) {
  const double rounded = as_told(time);  // 9.9996 has three decimals less than 9.999
  return fmt::format("{:.{}f}", rounded, decimals_of(rounded));
}

Estimate median_interval(std::span<const double> samples) {
  std::vector<double> room;
  Estimate out;
  if (samples.empty()) return {.value = median(samples), .low = NAN, .high = NAN};
  return bootstrap(samples.size(),
      [&](const std::vector<size_t>& draw) { return median_of(samples, draw, room); });
}

Estimate mean_interval(std::span<const double> samples) {
  const auto n = double(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  if (samples.size() < 2) return {.value = mean, .low = mean, .high = mean};
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  const double half = student_t(std::ssize(samples) - 1) * std::sqrt(squares / (n - 1) / n);
  return {.value = mean, .low = mean - half, .high = mean + half, .has_interval = true};
}

Estimate paired_ratio(
    std::span<const double> before, std::span<const double> after, int64_t layouts) {
  return of_medians(before, after, layouts, std::divides());
}

Estimate paired_saving(
    std::span<const double> before, std::span<const double> after, int64_t layouts) {
  return of_medians(before, after, layouts, std::minus());
}

double distortion(std::span<const double> profiled, std::span<const double> clean) {
  return 100 * (median(profiled) / median(clean) - 1);
}

std::string times_text(const Estimate& ratio) {
  return fmt::format("{:.{}f}x", ratio.value, decimals_of(ratio));
}

std::string factor_text(const Estimate& ratio, size_t pairs) {
  if (!ratio.has_interval)
    return fmt::format("no factor: {}, {} are needed", count_of(int64_t(pairs), "pair"), kMinPairs);
  const std::string interval =
      fmt::format("[{0:.{2}f},{1:.{2}f}]", ratio.low, ratio.high, decimals_of(ratio));
  if (ratio.is_noisy()) return "machine busy: no factor " + interval;
  if (ratio.holds_one()) return "no difference shown " + interval;
  return str(times_text(ratio), " ", interval);
}

}  // namespace sinter::profiler
