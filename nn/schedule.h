// Learning-rate schedules: the rate of step s = 0, 1, .. of a run of `steps`, the first `warmup` of
// which rise to the peak `lr`.
//
//   while s < w    lr (s + 1) / w;  onecycle: lr (1 + 12 (1 - cos(pi s / w))) / 25, from lr/25 up
//   after that     constant: lr;  step: lr, x 0.1 from 60 % of all steps, x 0.01 from 80 %;
//                  cosine, onecycle: lr (1 + cos(pi (s - w) / (S - w))) / 2
//                  linear: lr (1 - (s - w) / (S - w))
//
// Pure functions; the caller writes the result into the optimizer, before each step (set_lr) or for
// many at once (set_rates).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sinter::nn {

struct Schedule {
  enum class Kind : uint8_t { constant, cosine, step, onecycle, linear };
  static constexpr std::array<std::string_view, 5> kNames{
      "constant", "cosine", "step", "onecycle", "linear"};

  Kind kind = Kind::constant;
  double lr = 0.001;
  int64_t steps = 0;   // S, of the whole run; constant does not need it
  int64_t warmup = 0;  // w <= S
};

// s >= 0; from S on the last value of the formula stays.
double learning_rate(const Schedule& schedule, int64_t s);
// Throws usage for an unknown word, with the nearest.
Schedule::Kind parse_schedule(std::string_view name);

}  // namespace sinter::nn
