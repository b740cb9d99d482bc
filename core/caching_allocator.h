// The allocator behind every device: four size classes per power of two, freed blocks kept per
// class. A device gives the two system calls.
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/allocator.h"

namespace sinter {

// Under AddressSanitizer every block of the host's memory goes back at once, and is as long as was
// asked for, so that each use after release and beyond the end is seen.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCacheHostMemory = false;
#elif defined(__has_feature)
inline constexpr bool kCacheHostMemory = !__has_feature(address_sanitizer);
#else
inline constexpr bool kCacheHostMemory = true;
#endif

class CachingAllocator : public Allocator {
 public:
  void* allocate(size_t bytes) override;
  void release(void* block, size_t bytes) noexcept override;
  MemoryStats stats() const override;
  void reset_peak() override;
  void trim() override;

  // The bytes that a request of `bytes` really gets where blocks are kept; elsewhere, what it asks
  // for.
  static size_t size_class(size_t bytes);

 protected:
  // `name` and "cpu: out of memory asking ..": for messages. `cache`: keep freed blocks.
  CachingAllocator(const char* name, bool cache) : name_(name), cache_(cache) {}
  // nullptr: no memory.
  virtual void* system_allocate(size_t bytes) = 0;
  virtual void system_free(void* block, size_t bytes) noexcept = 0;

 private:
  void trim_locked();
  void tell() const noexcept;  // the profiler, of live_bytes
  const char* name_;
  bool cache_;
  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  MemoryStats stats_;
};

}  // namespace sinter
