// Replaces operator new for a test program, so that "allocates nothing" is counted and not
// believed, and so that it can refuse. Include it in one source of a program. The sanitizers bring
// an operator new of their own and want it left alone: there kCountsNew is false, and the tests
// that need it are left out or skip.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace sinter::test {

inline std::atomic<int64_t> new_calls{0};
inline std::atomic<bool> refuse_new{false};

}  // namespace sinter::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace sinter::test {
inline constexpr bool kCountsNew = false;
}
#else
namespace sinter::test {
inline constexpr bool kCountsNew = true;
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++sinter::test::new_calls;
  void* block = sinter::test::refuse_new ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (!block) throw std::bad_alloc();
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept { std::free(block); }
#endif
