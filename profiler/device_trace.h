// What a session sees of a device: the hook that turns the device layer's calls into launch records
// and sync scopes, and the turning of marks into device times on the host's axis. Behind Session;
// nobody else includes this.
//
// Until a turn is resolved, a launch of source `event` holds the number of the mark behind it in
// dev_t1, one of source `cupti` its id.
#pragma once

#include <span>

#include "core/allocator.h"
#include "core/device/timing.h"
#include "profiler/report.h"

namespace sinter::profiler::detail {

// Listens from now on. `timer` may be null: launches are counted and not timed.
// `memory`: the allocator whose blocks are recorded, or null.
void install_hook(const Allocator* memory, DeviceTimer* timer) noexcept;
void remove_hook() noexcept;

// The device's clock between the edges of a turn's active steps.
struct Axis {
  int64_t first_step = 0, end_step = 0;
  DeviceTimer::Edge begin{}, end{};
  std::vector<int64_t> marks{};  // ns since the first
  std::vector<DeviceTimer::Ran> ran{};

  bool known() const;
  // When the mark was reached; DeviceTimer::kLost if it was lost.
  int64_t device_ns(int mark) const;
  int64_t host_ns(int mark) const;
};

// Gives launches their device times, each by the axis of its turn (`turns`: in the order of their
// steps); what has none stays without. Returns how many were impossible (end before begin).
int64_t resolve(Trace& trace, std::span<const Axis> turns);

}  // namespace sinter::profiler::detail
