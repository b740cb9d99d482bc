// DeviceTimer: what time it was on a device, asked by marks on the calling thread's stream. The profiler owns one per session.
//
// A mark is a position in the stream; its time is known after the device has passed it. edge() ties the device's clock to the host's.
// On CUDA marks are events, of about 0.5 us; tests bring a timer of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace sinter {

class DeviceTimer {
 public:
  static constexpr int64_t kLost = INT64_MIN;
  struct Edge {
    int mark = -1;                     // -1: the device does not answer
    int64_t host_ns = 0, half_ns = 0;  // the mark's moment on the host's clock, and how sure that is
  };
  virtual ~DeviceTimer() = default;

  virtual void wait() noexcept = 0;  // until the stream is idle
  // Waits for the stream, then keeps the narrowest of several brackets (host clock; mark and wait; host clock).
  virtual Edge edge(const std::function<int64_t()>& host_now) = 0;
  // -1: the pool is used up, or the call failed.
  virtual int mark() noexcept = 0;
  // ns of every mark since the first; kLost where the read failed. The marks begin anew. REQUIRES: an edge was the last mark.
  virtual std::vector<int64_t> read() = 0;
};

namespace cuda {
// nullptr in a build without the toolkit. Throws device. `marks`: the size of the pool, which is made now.
std::unique_ptr<DeviceTimer> make_event_timer(int marks);
}  // namespace cuda

}  // namespace sinter
