// Bytes of device memory that a row of a profile takes, gives back and keeps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/fields.h"

namespace sinter::profiler {

// Of one op, or of the calls of a row: sums but for `peak`. Of an op that runs by itself they are
// the allocator's numbers; of a node of a captured step, whose buffers have their places in the
// arena beforehand, those of the memory plan: a buffer is allocated by the node that touches it
// first and freed by the last, and one that the caller reads is never freed.
struct MemoryUse {
  int64_t allocated = 0, freed = 0;
  int64_t peak = 0;  // most in use while it ran, of the allocator's blocks or of the arena
  int64_t kept = 0;  // of what it allocated in the forward pass, what is held when backward begins

  MemoryUse& operator+=(const MemoryUse& other) {
    allocated += other.allocated;
    freed += other.freed;
    peak = std::max(peak, other.peak);
    kept += other.kept;
    return *this;
  }
  SINTER_FIELDS(MemoryUse, allocated, freed, peak, kept)
};

// Of the op that this thread runs next, a node of a captured step. Does nothing while no session
// records.
void record_planned(const MemoryUse& use) noexcept;

}  // namespace sinter::profiler
