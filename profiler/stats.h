// The statistics of tables and comparisons: quantiles, medians with a bootstrap 95 % interval,
// ratios of paired rounds.
//
// The one statistic for "how much faster" is the median over pairs of the ratio of a pair's rounds;
// it is taken of logarithms, so that B against A is the inverse of A against B. Fixed seed: equal
// samples give equal intervals. Pure functions.
#pragma once

#include <cmath>
#include <span>
#include <string>

namespace sinter::profiler {

// Linear between order statistics (numpy's default); NaN if empty. 0 <= q <= 1.
double quantile(std::span<const double> samples, double q);
inline double median(std::span<const double> samples) { return quantile(samples, 0.5); }
inline double p95(std::span<const double> samples) { return quantile(samples, 0.95); }

// A median, or a ratio, with its 95 % interval; fewer than 6 samples have none.
struct Estimate {
  double value = 0, low = 0, high = 0;
  bool has_interval = false;

  bool contains(double x) const { return has_interval && low <= x && x <= high; }
  // Half the width of the interval, in parts of the value; equal for a ratio and its inverse.
  double noise() const { return low > 0 ? std::sqrt(high / low) - 1 : 0; }
  // Is the interval too wide to say anything (kNoisy)? Then the machine was busy with something
  // else.
  bool is_noisy() const;
  // As a ratio: is there a difference?
  bool is_shown() const { return has_interval && !is_noisy() && !contains(1); }
};

Estimate median_interval(std::span<const double> samples);

// How many times faster `after` is than `before`: median of before[i] / after[i]. One value per
// round: its median step; round i of both ran beside each other. Error (usage): unequal or no
// rounds, or a time that is not positive.
Estimate paired_ratio(std::span<const double> before, std::span<const double> after);

// How many percent longer the profiled steps took than the clean ones, by their medians: negative
// if they took less; NaN if there are none of either.
double distortion(std::span<const double> profiled, std::span<const double> clean);

// "2.56x [2.49,2.62]"; "no difference shown [0.97,1.05]"; "machine busy: no factor [0.61,2.70]";
// "no factor: 4 pairs, 6 are needed" - never a factor without its interval.
std::string factor_text(const Estimate& ratio, size_t pairs);

}  // namespace sinter::profiler
