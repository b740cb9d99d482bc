// The numbers at which the profiler speaks up, or keeps silent. One place, so that tests and texts can name both sides of each.
#pragma once

namespace sinter::profiler {

inline constexpr double kHotShare = 0.40;   // HOT: a row with at least this share of self time
inline constexpr double kManyCalls = 5;     // MANY: at least so many calls a step
inline constexpr double kDrillFactor = 2;   // DRILL: total at least so many times self
inline constexpr double kSmallRow = 0.05;   // rows below this share of self time are folded into one
inline constexpr double kSlowStep = 2;      // a step over so many times the median is listed
inline constexpr double kFlopRateFrom = 4;  // FLOP per byte from which a row's rate is shown in FLOP/s, below in B/s
inline constexpr int kMinPairs = 6;         // with fewer pairs no 95 % interval of a median exists
inline constexpr int kResamples = 10'000;   // of the bootstrap

}  // namespace sinter::profiler
