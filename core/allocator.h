// The caching allocator behind every device: four size classes per power of two; freed blocks are
// kept by class and handed out again, so a steady training loop asks the system for nothing. A
// device gives the two system calls. One per device; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/device/device.h"

namespace sinter {

inline constexpr size_t kAlignment = 64;  // of every block: one cache line, one AVX-512 vector

// Under AddressSanitizer every block of the host's memory goes back at once, and is as long as was
// asked for, so that each use after release and beyond the end is seen.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCacheHostMemory = false;
#elif defined(__has_feature)
inline constexpr bool kCacheHostMemory = !__has_feature(address_sanitizer);
#else
inline constexpr bool kCacheHostMemory = true;
#endif

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
  virtual void* allocate(size_t bytes);
  virtual void release(void* block, size_t bytes) noexcept;
  MemoryStats stats() const;
  void reset_peak();
  // Gives cached blocks back to the system.
  void trim();

  // The bytes that a request of `bytes` really gets where blocks are kept; elsewhere, what it asks
  // for.
  static size_t size_class(size_t bytes);

 protected:
  // `name` and "cpu: out of memory asking ..": for messages. `cache`: keep freed blocks.
  Allocator(const char* name, bool cache) : name_(name), cache_(cache) {}
  // May a cached block be handed out to this thread? If not, another is looked for. First those
  // for which nobody has to wait.
  virtual bool may_reuse(void* /*block*/, bool /*wait*/) { return true; }
  // nullptr: no memory.
  virtual void* system_allocate(size_t bytes) = 0;
  virtual void system_free(void* block, size_t bytes) noexcept = 0;

 private:
  void trim_locked();
  void tell(const void* block, int64_t change) const noexcept;  // the profiler
  const char* name_;
  bool cache_;
  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  MemoryStats stats_;
};

// The allocator of a device; throws not_built for a device that this build lacks.
Allocator& allocator(Device device);

}  // namespace sinter
