// How the executor of a captured step tells a session of a replay: when the nodes of a CUDA graph
// that were timed one by one ran, and what a node does in the arena.
#pragma once

#include <cstdint>
#include <span>

#include "profiler/memory_use.h"

namespace sinter::profiler {

// One launch record per node. `node_ends`: on the host's axis, the begin of the first node and then
// the end of each, in the order of the graph; DeviceTimer::kLost where a reading failed. `kernels`:
// of each node, for a library may make a product of several; none: one each. Does nothing while no
// session records.
void record_replay(int64_t api_t0, int64_t api_t1, std::span<const int64_t> node_ends,
    std::span<const int32_t> kernels = {}) noexcept;

// Of the op that this thread runs next. Does nothing while no session records.
void record_planned(const MemoryUse& use) noexcept;

// The session's clock. REQUIRES: recording().
int64_t session_now() noexcept;

}  // namespace sinter::profiler
