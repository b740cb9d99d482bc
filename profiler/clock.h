// Where time comes from: the steady clock, or in tests one that moves only when told
// (tests/profiler/fake_clock.h). All are thread safe.
#pragma once

#include <chrono>
#include <cstdint>

namespace sinter::profiler {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now() noexcept = 0;  // ns; never runs backwards
};

class SteadyClock final : public Clock {
 public:
  int64_t now() noexcept override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace sinter::profiler
