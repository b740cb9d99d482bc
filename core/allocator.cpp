#include "core/allocator.h"

#include <bit>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/error.h"

namespace sinter {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCache = false;
#else
constexpr bool kCache = true;
#endif

// Four size classes per power of two: at most a quarter of a block is lost, and neighbouring sizes share blocks.
size_t size_class(size_t bytes) {
  const size_t step = std::max<size_t>(kAlignment, std::bit_floor(bytes) / 4);
  return (bytes + step - 1) / step * step;
}

class CpuAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    ++stats_.requests;
    stats_.live_bytes += static_cast<int64_t>(size);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    if (auto& list = free_[size]; !list.empty()) {
      void* block = list.back();
      list.pop_back();
      return block;
    }
    void* block = std::aligned_alloc(kAlignment, size);
    if (!block) {
      const MemoryStats now = stats_;
      stats_.live_bytes -= static_cast<int64_t>(size);
      throw Error(Error::Kind::memory, cat("cpu: out of memory asking ", size >> 20, " MiB; ", now.live_bytes >> 20, " MiB in use by tensors"));
    }
    ++stats_.system_allocations;
    stats_.reserved_bytes += static_cast<int64_t>(size);
    return block;
  }

  void release(void* block, size_t bytes) noexcept override {
    if (!block) return;
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    stats_.live_bytes -= static_cast<int64_t>(size);
    if (kCache) {
      free_[size].push_back(block);
    } else {
      stats_.reserved_bytes -= static_cast<int64_t>(size);
      std::free(block);
    }
  }

  MemoryStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
  }

  void trim() override {
    const std::lock_guard lock(mutex_);
    for (auto& [size, list] : free_) {
      for (void* block : list) std::free(block);
      stats_.reserved_bytes -= static_cast<int64_t>(size * list.size());
      list.clear();
    }
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;
  MemoryStats stats_;
};

}  // namespace

Allocator& allocator(Device device) {
  // Never destroyed: tensors in static storage may outlive any order of destruction.
  static CpuAllocator& cpu = *new CpuAllocator;
  SINTER_CHECK(device.type == Device::Type::cpu, not_built, cat(device.str(), ": not in this build: only the cpu device is there"));
  return cpu;
}

}  // namespace sinter
