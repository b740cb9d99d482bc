// DeviceTimer: when a device ran what a session launched, as the device itself has recorded it: in
// ns, on the host's clock (CUPTI, core/device/cupti.h). The profiler owns one per session and tells
// it which launch is being submitted. One without records only waits, and reads the card's clock.
// Tests bring a timer of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/footprint.h"

namespace sinter {

class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;

  virtual void wait() noexcept = 0;  // until the stream is idle

  // What one launch ran, or one op of a launched CUDA graph: from the first begin to the last end,
  // on the host's axis.
  struct Ran {
    uint64_t launch = 0;         // the id it was submitted with
    uint32_t node = 0;           // 1 + the op of GraphBuilder::captured(); 0: not of a graph
    int kernels = 0;             // copies and fills too; 0: some were lost
    int64_t begin = 0, end = 0;  // both 0: the device did not stamp them
    // Of the kernel that took longest, as the device names it; the name lives as long as the
    // process. Empty: none of them is a kernel, or that was not recorded
    std::string_view kernel{};
    Footprint footprint{};
  };
  struct Records {
    std::vector<Ran> ran;  // sorted by launch, then node; a launch that is missing was lost
    int64_t dropped = 0;   // records that the device had no room for
    int64_t axis_ns = -1;  // how sure the two clocks are tied to each other; -1: they are not
  };
  using HostClock = std::function<int64_t()>;  // ns
  virtual bool has_records() const { return false; }
  virtual void submitting(uint64_t /*launch*/) noexcept {}  // ids from 1
  virtual void submitted() noexcept {}
  // Both wait for the stream. What was recorded before begin() is forgotten; end() gives the rest.
  virtual void begin(const HostClock&) { wait(); }
  virtual Records end(const HostClock&) {
    wait();
    return {};
  }

  // MHz now, and by the card's data sheet; 0: not known.
  struct SmClock {
    double now = 0, standard = 0;
  };
  virtual SmClock sm_clock() noexcept { return {}; }
  virtual Card card() noexcept { return {}; }
};

namespace cuda {
// With records where CUPTI can be had and they are wanted; else `why` says what is in its way.
// nullptr in a build without the toolkit. Throws device.
std::unique_ptr<DeviceTimer> make_timer(std::string& why, bool records = true);
// A number for each timer with records; 0: none lives, so graphs that are captured now will have
// none.
int records_turn() noexcept;
// Tells a profiler that watches the process from outside that what it is to look at begins, or ends
// (ncu --profile-from-start off, nsys --capture-range=cudaProfilerApi).
void watch(bool begin) noexcept;
}  // namespace cuda

}  // namespace sinter
