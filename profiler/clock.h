// Where time comes from: the steady clock, or in tests a FakeClock that moves only when told. All
// are thread safe.
#pragma once

#include <atomic>
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

class FakeClock final : public Clock {
 public:
  int64_t now() noexcept override { return now_.load(); }
  void advance(int64_t ns) noexcept { now_.fetch_add(ns); }

 private:
  std::atomic<int64_t> now_{1'000'000};
};

}  // namespace sinter::profiler
