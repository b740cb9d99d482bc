// TrainingFlag: a module's "training or evaluation?", on to begin with; and one number for the
// flags of all modules of the process, by which a captured step knows that some flag changed. A
// flag is its module's, so not thread-safe; the number is.
#pragma once

#include <cstdint>
#include <utility>

namespace sinter {

class TrainingFlag {
 public:
  TrainingFlag() = default;
  TrainingFlag(TrainingFlag&& other) noexcept
      : on_(std::exchange(other.on_, true)), token_(std::exchange(other.token_, 0)) {}
  TrainingFlag& operator=(TrainingFlag&&) = delete;
  ~TrainingFlag() { set(true); }

  operator bool() const { return on_; }
  void set(bool on);

  // The xor of a random number per flag that is off: equal for the same flags, and again when they
  // are as they were.
  static uint64_t all_off();

 private:
  bool on_ = true;
  uint64_t token_ = 0;  // drawn at the first use
};

}  // namespace sinter
