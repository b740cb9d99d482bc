// What a session sees of a device: the hook that turns the device layer's calls into launch records
// and sync scopes, and the device times that its timer recorded of them. Behind Session; nobody
// else includes this.
//
// Until a turn is resolved, a launch of source `cupti` holds its id in dev_t1.
#pragma once

#include <span>

#include "core/allocator.h"
#include "core/device/timing.h"
#include "profiler/report.h"

namespace sinter::profiler::detail {

// Listens from now on. `timer` may be null, or without records: launches are counted and not timed.
// `memory`: the allocator whose blocks are recorded, or null.
void install_hook(const Allocator* memory, DeviceTimer* timer) noexcept;
void remove_hook() noexcept;

// What the device ran of the active steps of one turn of the schedule.
struct Turn {
  int64_t first_step = 0, end_step = 0;
  std::vector<DeviceTimer::Ran> ran{};
};

// Gives launches their device times; what has none stays without. `turns`: in the order of their
// steps.
void resolve(Trace& trace, std::span<const Turn> turns);

}  // namespace sinter::profiler::detail
