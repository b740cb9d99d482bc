// DeviceTimer: what time it was on a device, asked by the calling thread of its stream. The
// profiler owns one per session.
//
// Either by marks: a mark is a position in the stream, whose time is known after the device has
// passed it (events, of about 0.5 us). Or by records: what the device itself kept of each launch,
// in ns (CUPTI, core/device/cupti.h); the timer is told which launch is being submitted, and marks
// are of no use. edge() ties the device's clock to the host's for both. Tests bring a timer of
// their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace sinter {

class DeviceTimer {
 public:
  static constexpr int64_t kLost = INT64_MIN;
  struct Edge {
    int mark = -1;  // -1: the device does not answer
    int64_t host_ns = 0,
            half_ns = 0;    // the mark's moment on the host's clock, and how sure that is
    int64_t device_ns = 0;  // the device's own clock then; for records
  };
  virtual ~DeviceTimer() = default;

  virtual void wait() noexcept = 0;  // until the stream is idle
  // Waits for the stream, then keeps the narrowest of several brackets (host clock; mark and wait;
  // host clock).
  virtual Edge edge(const std::function<int64_t()>& host_now) = 0;
  // -1: the pool is used up, or the call failed.
  virtual int mark() noexcept = 0;
  // ns of every mark since the first; kLost where the read failed. Marks and records begin anew.
  // REQUIRES: an edge was the last mark.
  virtual std::vector<int64_t> read() = 0;

  // What one launch ran, or one op of a launched CUDA graph: from the first begin to the last end,
  // on the host's axis.
  struct Ran {
    uint64_t launch = 0;         // the id it was submitted with
    uint32_t node = 0;           // 1 + the op of GraphBuilder::captured(); 0: not of a graph
    int kernels = 0;             // copies and fills too; 0: some were lost
    int64_t begin = 0, end = 0;  // both 0: the device did not stamp them
  };
  struct Records {
    std::vector<Ran> ran;  // sorted by launch, then node; a launch that is missing was lost
    int64_t dropped = 0;   // records that the device had no room for
  };
  virtual bool has_records() const { return false; }
  virtual void submitting(uint64_t /*launch*/) noexcept {}  // ids from 1
  virtual void submitted() noexcept {}
  // Since the last reading. REQUIRES: the streams are idle.
  virtual Records records(const Edge&, const Edge&) { return {}; }

  // MHz now, and by the card's data sheet; 0: not known.
  struct SmClock {
    double now = 0, standard = 0;
  };
  virtual SmClock sm_clock() noexcept { return {}; }
};

namespace cuda {
// Records where CUPTI can be had and they are wanted, else events, and `why` says what is in its
// way. nullptr in a build without the toolkit. Throws device. `marks`: the size of the pool of
// events, which is made now.
std::unique_ptr<DeviceTimer> make_timer(int marks, std::string& why, bool records = true);
// Would that be records?
bool has_records();
// A number for each timer with records; 0: none lives, so graphs that are captured now will have
// none.
int records_turn() noexcept;
// Of the card in use, by the driver's management library; not known where that is not there.
DeviceTimer::SmClock sm_clock() noexcept;
}  // namespace cuda

}  // namespace sinter
