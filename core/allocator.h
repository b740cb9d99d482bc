// The caching allocator: freed blocks are kept by size and handed out again, so a steady training
// loop asks the system for nothing. One per device; thread-safe. Under AddressSanitizer nothing is
// cached, so that every overrun is seen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/device.h"

namespace sinter {

inline constexpr size_t kAlignment = 64;  // of every block: one cache line, one AVX-512 vector

struct MemoryStats {
  int64_t live_bytes = 0;          // handed out now
  int64_t reserved_bytes = 0;      // taken from the system: live and cached
  int64_t peak_bytes = 0;          // highest live_bytes since the last reset_peak
  int64_t requests = 0;            // calls of allocate so far
  int64_t system_allocations = 0;  // requests that went to the system
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // At least `bytes` bytes aligned to kAlignment; throws memory. 0 bytes give nullptr.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* block, size_t bytes) noexcept = 0;
  virtual MemoryStats stats() const = 0;
  virtual void reset_peak() = 0;
  // Gives cached blocks back to the system.
  virtual void trim() = 0;
};

// The allocator of a device; throws not_built for a device that this build lacks.
Allocator& allocator(Device device);

}  // namespace sinter
