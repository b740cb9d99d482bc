#include "core/device/simt_worker.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>

#include "core/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
// This file is compiled without -fsanitize=thread even in the tsan build, so a macro of our own
// tells (cmake/SinterLibrary.cmake).
#if defined(SINTER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace sinter::simt {
namespace {

namespace context = boost::context::detail;

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 << 10;  // ASan's red zones make frames several times larger
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr size_t kPage = 4096, kHotBytes = 1024;  // about what a waiting kernel has on its stack

// Mapped, so pages that no kernel touches cost nothing; the lowest page is a guard.
char* map_stack() {
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SINTER_CHECK(stack != MAP_FAILED, memory, "simt: no memory for the stack of a thread");
  mprotect(stack, kPage, PROT_NONE);
  return static_cast<char*>(stack);
}

}  // namespace

Fiber::Fiber() {
#if defined(SINTER_TSAN)
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*body)(void*), void* argument, int index) : body_(body), argument_(argument) {
  char* stack = map_stack();
  stack_ = stack;
  stack_bytes_ = kStackBytes - size_t(index) % (kPage / kHotBytes) * kHotBytes;
  context_ = context::make_fcontext(
      stack + stack_bytes_, stack_bytes_ - kPage, [](context::transfer_t from) {
        auto* previous = static_cast<Fiber**>(from.data);
        Fiber* self = previous[1];
        self->arrived(previous[0], from.fctx);
        self->body_(self->argument_);
      });
#if defined(SINTER_TSAN)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

// On the new stack: notes where the fiber that came from goes on.
void Fiber::arrived(void* data, void* context) {
  auto* from = static_cast<Fiber*>(data);
  from->context_ = context;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &from->stack_, &from->stack_bytes_);
#endif
}

void Fiber::switch_to(Fiber& next) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, next.stack_, next.stack_bytes_);
#endif
#if defined(SINTER_TSAN)
  __tsan_switch_to_fiber(next.tsan_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
  Fiber* ends[2] = {this, &next};
  const context::transfer_t from = context::jump_fcontext(next.context_, ends);
  arrived(*static_cast<Fiber**>(from.data), from.fctx);
}

}  // namespace sinter::simt
