#include "core/allocator.h"

#include <algorithm>
#include <bit>
#include <new>

#include "core/device/launch_hook.h"
#include "core/error.h"

namespace sinter {

// At most a quarter of a block is lost, and neighbouring sizes share blocks.
size_t Allocator::size_class(size_t bytes) {
  const size_t step = std::max<size_t>(kAlignment, std::bit_floor(bytes) / 4);
  return (bytes + step - 1) / step * step;
}

void Allocator::tell(const void* block, int64_t change) const noexcept {
  if (LaunchHook* hook = g_launch_hook.load(std::memory_order_acquire))
    hook->memory(this, block, change, stats_.live_bytes);
}

void* Allocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t size = cache_ ? size_class(bytes) : bytes;
  const std::lock_guard lock(mutex_);
  ++stats_.requests;
  void* block = nullptr;
  auto& list = free_[size];
  auto newest = list.rend();
  for (const bool wait : {false, true}) {
    if (newest != list.rend()) break;
    newest = std::find_if(
        list.rbegin(), list.rend(), [&](void* cached) { return may_reuse(cached, wait); });
  }
  if (newest != list.rend()) {
    block = *newest;
    list.erase(std::next(newest).base());
  } else {
    block = system_allocate(size);
    if (!block) {
      trim_locked();  // cached blocks of other sizes may make room
      block = system_allocate(size);
    }
    SINTER_CHECK(block, memory,
        str(name_, ": out of memory asking ", size >> 20, " MiB; ", stats_.live_bytes >> 20,
            " MiB in use by tensors"));
    ++stats_.system_allocations;
    stats_.reserved_bytes += int64_t(size);
  }
  stats_.live_bytes += int64_t(size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  tell(block, int64_t(size));
  return block;
}

void Allocator::release(void* block, size_t bytes) noexcept {
  if (!block) return;
  const size_t size = cache_ ? size_class(bytes) : bytes;
  const std::lock_guard lock(mutex_);
  stats_.live_bytes -= int64_t(size);
  tell(block, -int64_t(size));
  if (cache_) {
    try {
      free_[size].push_back(block);
      return;
    } catch (const std::bad_alloc&) {  // the host has no room to remember it
    }
  }
  stats_.reserved_bytes -= int64_t(size);
  system_free(block, size);
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

void Allocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void Allocator::trim_locked() {
  for (auto& [size, list] : free_) {
    for (void* block : list) system_free(block, size);
    stats_.reserved_bytes -= int64_t(size * list.size());
    list.clear();
  }
}

}  // namespace sinter
