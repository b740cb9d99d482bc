// TrainingFlag: a module's "training or evaluation?", on to begin with. A captured step asks which
// flags its function looked at, so that it knows when one of these changes, whatever other modules
// and threads do with theirs. A flag is its module's, so not thread-safe; what is static is.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

namespace sinter {

class TrainingFlag {
 public:
  TrainingFlag() = default;
  TrainingFlag(TrainingFlag&& other) noexcept
      : on_(std::exchange(other.on_, true)), number_(std::exchange(other.number_, next())) {}
  TrainingFlag& operator=(TrainingFlag&&) = delete;
  ~TrainingFlag() { set(true); }

  operator bool() const {
    if (asked) asked->insert(number_);
    return on_;
  }
  void set(bool on);

  using Numbers = std::set<uint64_t>;
  static Numbers off();       // those of the process that are off
  static uint64_t changes();  // how often a flag of the process was set
  // Gets the flags that this thread asks for, if it is set.
  static inline thread_local Numbers* asked = nullptr;

 private:
  static uint64_t next();
  bool on_ = true;
  uint64_t number_ = next();  // no other flag ever has it
};

}  // namespace sinter
