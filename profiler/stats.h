// The statistics of tables and comparisons: quantiles, medians with a bootstrap 95 % interval,
// ratios of paired rounds.
//
// The one statistic for "how much faster" is the quotient of the two medians over the rounds, each
// rounded as it is printed: whoever divides the two times finds the factor beside them. Its
// interval draws pairs of rounds anew, so that what slows both rounds of a pair slows both medians.
// Fixed seed: equal samples give equal intervals, and B against A is the inverse of A against B.
// Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "core/fields.h"

namespace sinter::profiler {

// Linear between order statistics (numpy's default); NaN if empty. 0 <= q <= 1.
double quantile(std::span<const double> samples, double q);
inline double median(std::span<const double> samples) { return quantile(samples, 0.5); }
inline bool all_positive(std::span<const double> times) {  // and there are some
  return !times.empty() && std::ranges::all_of(times, [](double t) { return t > 0; });
}
inline double p95(std::span<const double> samples) { return quantile(samples, 0.95); }
// The width of their middle half, in parts of the median.
inline double spread(std::span<const double> samples) {
  return (quantile(samples, 0.75) - quantile(samples, 0.25)) / median(samples);
}
// "the middle half of the steps spans 46 % of the median, 25 % allowed" where that is more than
// kBusySpread: other programs ran, too. Else "".
std::string why_unsteady(const char* steps, std::span<const double> times);

// A median, or a ratio, with its 95 % interval; fewer than 6 samples have none. Or a mean.
struct Estimate {
  double value = 0, low = 0, high = 0;
  bool has_interval = false;

  // Half the width of the interval, in parts of the value; equal for a ratio and its inverse.
  double noise() const { return low > 0 ? std::sqrt(high / low) - 1 : 0; }
  // Is the interval too wide to say anything (kNoisy)? Then the machine was busy with something
  // else.
  bool is_noisy() const;
  // As a ratio: does the interval hold 1, as it is printed? 1.0004 is 1.000.
  bool holds_one() const;
  // As a ratio: is there a difference?
  bool is_shown() const { return has_interval && !is_noisy() && !holds_one(); }
  // As a ratio that leaves the program: its value is NaN where the machine was too busy for one.
  Estimate told() const { return {is_noisy() ? NAN : value, low, high, has_interval}; }
  // One of the three numbers; NaN, which JSON writes as null, without an interval.
  double known(double number) const { return has_interval ? number : NAN; }
  SINTER_FIELD_LIST(named("value", written(known(value))), named("low", written(known(low))),
      named("high", written(known(high))))
};

// A time as it is printed, to four digits: 37.4137 -> 37.41. And its text: "37.41", "5.000".
double as_told(double time);
std::string time_text(double time);

Estimate median_interval(std::span<const double> samples);
// The mean, with an interval by Student's t; fewer than 2 samples have none.
Estimate mean_interval(std::span<const double> samples);

// How many times faster `after` is than `before`: the quotient of their medians, each in four
// digits. One value per round: its median step; round i of both ran beside each other. Error
// (usage): unequal or no rounds, or a time that is not positive. Rounds i, i + layouts, .. ran in
// one layout of memory: those are drawn first, and then rounds of each.
Estimate paired_ratio(
    std::span<const double> before, std::span<const double> after, int64_t layouts = 1);
// And how much less it takes: the difference of the same two numbers.
Estimate paired_saving(
    std::span<const double> before, std::span<const double> after, int64_t layouts = 1);

// How many percent longer the profiled steps took than the clean ones, by their medians: negative
// if they took less; NaN if there are none of either.
double distortion(std::span<const double> profiled, std::span<const double> clean);

// "2.56x"; with a third decimal where the interval begins or ends near 1, from 0.9 to 1.1.
std::string times_text(const Estimate& ratio);
// "2.56x [2.49,2.62]", "1.034x [1.003,1.052]"; "no difference shown [0.985,1.031]"; "machine busy:
// no factor [0.61,2.70]"; "no factor: 4 pairs, 6 are needed" - never a factor without its interval.
std::string factor_text(const Estimate& ratio, size_t pairs);

}  // namespace sinter::profiler
