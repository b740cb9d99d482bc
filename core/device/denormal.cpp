#include "core/device/denormal.h"

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace sinter {

bool set_flush_denormal([[maybe_unused]] bool on) {
#ifdef __SSE__
  constexpr unsigned kResults = 0x8000, kOperands = 0x0040;
  const unsigned others = _mm_getcsr() & ~(kResults | kOperands);
  _mm_setcsr(on ? others | kResults | kOperands : others);
  return true;
#else
  return false;
#endif
}

}  // namespace sinter
