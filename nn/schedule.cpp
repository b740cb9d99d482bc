#include "nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/named_tensor.h"

namespace sinter::nn {

double learning_rate(const Schedule& schedule, int64_t s) {
  using Kind = Schedule::Kind;
  const auto [kind, lr, steps, warmup] = schedule;
  const double w = double(warmup), at = double(s);
  if (s < warmup)
    return kind == Kind::onecycle ? lr * (1 + 12 * (1 - std::cos(std::numbers::pi * at / w))) / 25
                                  : lr * (at + 1) / w;
  const double part = steps > warmup ? std::min(1.0, (at - w) / double(steps - warmup)) : 1;
  switch (kind) {
    case Kind::constant: return lr;
    case Kind::step: return s * 10 >= steps * 8 ? lr * 0.01 : s * 10 >= steps * 6 ? lr * 0.1 : lr;
    case Kind::cosine:
    case Kind::onecycle: return lr * (1 + std::cos(std::numbers::pi * part)) / 2;
    case Kind::linear: return lr * (1 - part);
  }
  SINTER_ASSERT(false, "schedule kind ", int(kind));
  return lr;
}

Schedule::Kind parse_schedule(std::string_view name) {
  return static_cast<Schedule::Kind>(place_of("schedule", name, Schedule::kNames));
}

}  // namespace sinter::nn
