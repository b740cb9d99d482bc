#include "core/training_flag.h"

#include <atomic>
#include <mutex>

namespace sinter {
namespace {

std::atomic<uint64_t> flags_made{0}, flags_set{0};
std::mutex mutex_of_flags;

// Never destroyed: a module of static storage sets its flag after all that is.
TrainingFlag::Numbers& flags_off() {
  static auto& off = *new TrainingFlag::Numbers;
  return off;
}

}  // namespace

uint64_t TrainingFlag::next() { return ++flags_made; }
uint64_t TrainingFlag::changes() { return flags_set; }

void TrainingFlag::set(bool on) {
  if (on == on_) return;
  on_ = on;
  const std::lock_guard lock(mutex_of_flags);
  if (on) flags_off().erase(number_);
  if (!on) flags_off().insert(number_);
  ++flags_set;
}

TrainingFlag::Numbers TrainingFlag::off() {
  const std::lock_guard lock(mutex_of_flags);
  return flags_off();
}

}  // namespace sinter
