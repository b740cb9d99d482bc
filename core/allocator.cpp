#include "core/allocator.h"

#include <cstdlib>

#include "core/caching_allocator.h"
#include "core/device/cuda.h"
#include "core/device/simt.h"

namespace sinter {
namespace {

class CpuAllocator final : public CachingAllocator {
 public:
  CpuAllocator() : CachingAllocator("cpu", kCacheHostMemory) {}

 private:
  void* system_allocate(size_t bytes) override {
    void* block = nullptr;
    return posix_memalign(&block, kAlignment, bytes) == 0 ? block : nullptr;
  }
  void system_free(void* block, size_t) noexcept override { std::free(block); }
};

}  // namespace

Allocator& allocator(Device device) {
  // Never destroyed: tensors in static storage may outlive any order of destruction.
  static CpuAllocator& cpu = *new CpuAllocator;
  if (device.type == Device::Type::simt) return simt::allocator();
  if (device.type == Device::Type::cuda) return cuda::allocator(device.index);
  return cpu;
}

}  // namespace sinter
