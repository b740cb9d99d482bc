// Timer: the time since it was made, for times that are shown; records have profiler/clock.h. And
// ns_per_call(), which every loop that times something asks.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/device/memory.h"

namespace sinter::measure {

class Timer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double us() const { return 1e6 * seconds(); }
  double ns() const { return 1e9 * seconds(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
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
