// Timer: the time since it was made, for times that are shown; records have profiler/clock.h. And
// ns_per_call(), which every loop that times something asks.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/device/memory.h"
#include "profiler/clock.h"

namespace sinter::measure {

// What all timers read: in tests a clock that moves only when told, else (null) the steady one.
inline std::atomic<profiler::Clock*> clock_of_timers{nullptr};

class Timer {
 public:
  double seconds() const { return 1e-9 * ns(); }
  double us() const { return 1e-3 * ns(); }
  double ns() const { return double(now() - begin_); }

 private:
  static int64_t now() {
    profiler::Clock* const given = clock_of_timers.load(std::memory_order_relaxed);
    return given ? given->now() : profiler::SteadyClock().now();
  }
  int64_t begin_ = now();
};

// ns of one of `calls` calls in a row. The device is waited for once, behind the last: what was
// asked of it before must be over.
template <class F> double ns_per_call(Device device, int64_t calls, F&& call) {
  const Timer timer;
  for (int64_t i = 0; i < calls; ++i) call();
  synchronize(device);
  return timer.ns() / double(calls);
}

}  // namespace sinter::measure
