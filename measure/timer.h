// The time since it was made: for times that are shown. Records have profiler/clock.h.
#pragma once

#include <chrono>

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

}  // namespace sinter::measure
