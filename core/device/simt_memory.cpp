// Device memory of the emulator: host memory that begins as NaN, with gaps that nobody may touch.
#include <cstdlib>
#include <cstring>

#include "core/allocator.h"
#include "core/device/simt.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sinter::simt {
namespace {

// Behind each block: an access past the end must not land in a live neighbour, where
// AddressSanitizer would be silent.
constexpr size_t kGap = 4096;

class SimtAllocator final : public Allocator {
 public:
  SimtAllocator() : Allocator("simt", kCacheHostMemory) {}

  void* allocate(size_t bytes) override {
    void* block = Allocator::allocate(bytes);
    if (!block) return nullptr;
    std::memset(block, 0xff, kCacheHostMemory ? size_class(bytes) : bytes);
    return block;
  }
  void release(void* block, size_t bytes) noexcept override {
    if (block)
      release_when_idle(block, bytes,
          [](void* b, size_t n) { static_cast<SimtAllocator&>(allocator()).release_now(b, n); });
  }

 private:
  void release_now(void* block, size_t bytes) noexcept { Allocator::release(block, bytes); }
  void* system_allocate(size_t bytes) override {
    auto* block =
        static_cast<char*>(std::aligned_alloc(kGap, (bytes + 2 * kGap - 1) / kGap * kGap));
#if defined(__SANITIZE_ADDRESS__)
    if (block)
      ASAN_POISON_MEMORY_REGION(block + bytes, (bytes + 2 * kGap - 1) / kGap * kGap - bytes);
#endif
    return block;
  }
  void system_free(void* block, [[maybe_unused]] size_t bytes) noexcept override {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(block, (bytes + 2 * kGap - 1) / kGap * kGap);
#endif
    std::free(block);
  }
};

}  // namespace

Allocator& allocator() {
  static SimtAllocator& allocator = *new SimtAllocator;
  return allocator;
}

}  // namespace sinter::simt
