// What a program does from its start to its first replay, on one axis: for who wants it to start
// faster. Each span of the caller's thread begins where the last one ended, the first where the
// program began; what is opened beside overlaps them. `mnist train -v` prints it.
//
//   StartTimeline start;
//   start.open_beside(device, false);
//   const Dataset data = load_dataset();
//   start.done("data");  // what was done since the program began
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/device/device.h"

namespace sinter::measure {

class StartTimeline {
 public:
  struct Span {
    std::string what;
    double begin_ms, end_ms;  // since the program began
    bool beside;              // on another thread than the caller's
  };

  StartTimeline() = default;
  ~StartTimeline();  // waits for what is opened
  StartTimeline(const StartTimeline&) = delete;
  StartTimeline& operator=(const StartTimeline&) = delete;

  // The caller's thread has done this since the last call.
  void done(const std::string& what) { add(what, last_ms_, false); }
  // On a thread of its own, where the device is a card: what the first step would wait for, see
  // cuda::warm_up(). convolves: does it have convolutions?
  void open_beside(Device device, bool convolves);
  // In the order in which they ended.
  std::vector<Span> spans() const;
  // A line each: "start      12.0 ..   112.4 ms  data".
  std::string text() const;

 private:
  void add(const std::string& what, double& last_ms, bool beside);

  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  double last_ms_ = 0;
  std::thread beside_;
};

}  // namespace sinter::measure
