// What the emulator tells ThreadSanitizer, in files that are themselves compiled without
// -fsanitize=thread but with SINTER_TSAN; else nothing.
#pragma once

#if defined(SINTER_TSAN)
#include <sanitizer/tsan_interface.h>

extern "C" void __tsan_ignore_thread_begin();
extern "C" void __tsan_ignore_thread_end();

namespace sinter::simt {

// Who observes an address comes after all who published it.
inline void publish(void* address) { __tsan_release(address); }
inline void observe(void* address) { __tsan_acquire(address); }

// While it lives: bookkeeping that the threads of a block share. Its memmove, which TSan
// intercepts, is no race.
struct Unseen {
  Unseen() { __tsan_ignore_thread_begin(); }
  ~Unseen() { __tsan_ignore_thread_end(); }
};

}  // namespace sinter::simt
#else
namespace sinter::simt {

inline void publish(void*) {}
inline void observe(void*) {}
struct Unseen {
  Unseen() {}
};

}  // namespace sinter::simt
#endif
