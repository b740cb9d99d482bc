#include "core/allocator.h"

#include <gtest/gtest.h>

#include "tests/counting_new.h"

namespace sinter {
namespace {

struct HostBlocks final : Allocator {
  HostBlocks() : Allocator("test", true) {}
  ~HostBlocks() { trim(); }
  void* system_allocate(size_t bytes) override { return std::malloc(bytes); }
  void system_free(void* block, size_t) noexcept override {
    std::free(block);
    ++freed;
  }
  int freed = 0;
};

TEST(Allocator, GivesABlockBackToTheSystemWhenItCannotKeepIt) {
  if (!test::kCountsNew) GTEST_SKIP() << "the sanitizer has its own operator new";
  HostBlocks blocks;
  void *a = blocks.allocate(1000), *b = blocks.allocate(1000);
  test::refuse_new = true;
  blocks.release(a, 1000);
  test::refuse_new = false;
  EXPECT_EQ(blocks.freed, 1);
  EXPECT_EQ(blocks.stats().reserved_bytes, int64_t(Allocator::size_class(1000)));
  blocks.release(b, 1000);
  EXPECT_EQ(blocks.allocate(1000), b);
  blocks.release(b, 1000);
}

}  // namespace
}  // namespace sinter
