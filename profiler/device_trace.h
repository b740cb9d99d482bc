// What a session sees of a device: the hook that turns the device layer's calls into launch records and sync scopes, and the turning of
// marks into device times on the host's axis. Behind Session; nobody else includes this.
//
// Until a window is resolved, a launch of source `event` holds the number of the mark behind it in dev_t1, one of source `cupti` its id.
#pragma once

#include "core/allocator.h"
#include "core/device/timing.h"
#include "profiler/report.h"

namespace sinter::profiler::detail {

// Listens from now on. `timer` may be null: launches are counted and not timed.
// `memory`: the allocator whose blocks are recorded, or null.
void install_hook(const Allocator* memory, DeviceTimer* timer) noexcept;
void remove_hook() noexcept;

// The device's clock between two edges of a window.
struct Axis {
  DeviceTimer::Edge begin, end;
  std::vector<int64_t> marks{};  // ns since the first
  std::vector<DeviceTimer::Ran> ran{};

  bool known() const;
  int64_t host_ns(int mark) const;  // DeviceTimer::kLost if it was lost
};

// Gives the launches of a window their device times; what has none stays without. Returns how many were impossible (end before begin).
int64_t resolve(Trace& trace, const Axis& axis);

}  // namespace sinter::profiler::detail
