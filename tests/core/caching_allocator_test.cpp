#include "core/caching_allocator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

// The host may be out of memory while a device still gives blocks back. AddressSanitizer wants its own
// operator new: there this test is left out.
#if !defined(__SANITIZE_ADDRESS__)
namespace {
std::atomic<bool> g_refuse_news{false};
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (g_refuse_news) throw std::bad_alloc();
  if (void* p = std::malloc(bytes > 0 ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace sinter {
namespace {

struct HostBlocks final : CachingAllocator {
  HostBlocks() : CachingAllocator("test", true) {}
  ~HostBlocks() { trim(); }
  void* system_allocate(size_t bytes) override { return std::malloc(bytes); }
  void system_free(void* block, size_t) noexcept override {
    std::free(block);
    ++freed;
  }
  int freed = 0;
};

TEST(CachingAllocator, GivesABlockBackToTheSystemWhenItCannotKeepIt) {
  HostBlocks blocks;
  void *a = blocks.allocate(1000), *b = blocks.allocate(1000);
  g_refuse_news = true;
  blocks.release(a, 1000);
  g_refuse_news = false;
  EXPECT_EQ(blocks.freed, 1);
  EXPECT_EQ(blocks.stats().reserved_bytes, static_cast<int64_t>(CachingAllocator::size_class(1000)));
  blocks.release(b, 1000);
  EXPECT_EQ(blocks.allocate(1000), b);
  blocks.release(b, 1000);
}

}  // namespace
}  // namespace sinter
#endif
