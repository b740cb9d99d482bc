// A fiber: a function with a stack of its own that can stop in the middle and go on later. The
// emulator runs one per CUDA thread and keeps them for the next block. Tells AddressSanitizer and
// ThreadSanitizer of each switch, which otherwise would see one wild stack. Fibers switch to each
// other directly, on one OS thread at a time. One with a stack is never destroyed: its body does
// not end.
#pragma once

#include <cstddef>

namespace sinter::simt {

class Fiber {
 public:
  // The OS thread that constructs it, as a fiber to switch from and back to.
  Fiber();
  // body(argument) must not return and must not throw. `index` moves the top of the stack a little:
  // tops that are whole pages apart would compete for the same lines of the cache.
  Fiber(void (*body)(void*), void* argument, int index);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Stops here, goes on there; returns when somebody switches to this fiber, which must be the
  // running one. Not within a catch block: the exception being handled belongs to the OS thread.
  void switch_to(Fiber& next);

 private:
  void arrived(void* data, void* context);
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* context_ = nullptr;      // boost's; where to go on
  const void* stack_ = nullptr;  // lowest address
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
};

}  // namespace sinter::simt
