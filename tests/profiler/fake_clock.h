// A clock that moves only when told.
#pragma once

#include <atomic>

#include "profiler/clock.h"

namespace sinter::profiler {

class FakeClock final : public Clock {
 public:
  int64_t now() noexcept override { return now_.load(); }
  void advance(int64_t ns) noexcept { now_.fetch_add(ns); }

 private:
  std::atomic<int64_t> now_{1'000'000};
};

}  // namespace sinter::profiler
