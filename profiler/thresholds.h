// The numbers at which the profiler speaks up, or keeps silent. One place, so that tests and texts
// can name both sides of each.
#pragma once

namespace sinter::profiler {

inline constexpr double kHotShare = 0.40;  // HOT: a row with at least this share of self time
inline constexpr double kManyCalls = 5;    // MANY: at least so many calls a step
inline constexpr double kDrillFactor = 2;  // DRILL: total at least so many times self
inline constexpr double kSurprise = 3;     // SURPRISE: more than so many times what was predicted
inline constexpr double kSmallRow = 0.05;  // rows below this share of self time are folded into one
inline constexpr double kSlowStep = 2;     // a step over so many times the median is a stall
// The machine is busy: the steps' middle half is wider than this part of the median, or profiled
// steps differ from clean ones by more percent.
inline constexpr double kBusySpread = 0.25, kBusyDistortion = 25;
// Or one thread makes the step more than so many times faster than all that it has.
inline constexpr double kSlowThreads = 2;
// FLOP per byte from which a row's rate is shown in FLOP/s, below in B/s
inline constexpr double kFlopRateFrom = 4;
// Half-width of an interval in parts of its value: more, and nothing is decided
inline constexpr double kNoisy = 0.20;
inline constexpr int kMinPairs = 6;        // with fewer pairs no 95 % interval of a median exists
inline constexpr int kResamples = 10'000;  // of the bootstrap

inline constexpr double kLoad = 0.15;  // cores that others may take while roofs are measured
// THROTTLED: an SM clock below this share of the standard one
inline constexpr double kThrottled = 0.75;

// Verdicts of rows: shares of a roof.
inline constexpr double kAboveRoof = 1.05;    // more cannot be: calibrate, or the cost is too high
inline constexpr double kNearRoof = 0.60;     // at least: bound by that roof
inline constexpr double kFarFromRoof = 0.30;  // below: too little work in flight
// Verdicts of steps: shares of the window, and of self time.
inline constexpr double kInputShare = 0.20, kHostShare = 0.25, kClassShare = 0.50;

}  // namespace sinter::profiler
