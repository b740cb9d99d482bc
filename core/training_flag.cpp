#include "core/training_flag.h"

#include <atomic>

#include "core/rng.h"

namespace sinter {
namespace {

std::atomic<uint64_t> flags_off{0};

uint64_t draw_token() {
  static std::atomic<uint64_t> drawn{0};
  const uint64_t n = drawn++;
  return uint64_t{philox_word(n, 1, 0)} << 32 | philox_word(n, 1, 1);
}

}  // namespace

void TrainingFlag::set(bool on) {
  if (on == on_) return;
  if (token_ == 0) token_ = draw_token();
  flags_off ^= token_;
  on_ = on;
}

uint64_t TrainingFlag::all_off() { return flags_off; }

}  // namespace sinter
