// Which op of the forward pass an op of the backward pass belongs to: the tape asks for the number
// of each op it records, and says it again round that op's backward. Read by the Chrome trace.
#pragma once

#include <utility>

#include "profiler/scope.h"

namespace sinter::profiler {
namespace detail {
struct OpNumbers {
  uint64_t last = 0, forward = 0;
};
inline constinit thread_local OpNumbers t_ops;
}  // namespace detail

// Numbers the op that this thread describes (OpInfo::uid).
inline uint64_t next_op_uid() noexcept { return ++detail::t_ops.last; }
// Of the op that this thread described last; 0 while no session records.
inline uint64_t last_op_uid() noexcept { return recording() ? detail::t_ops.last : 0; }

// What this thread runs while it lives is the backward of that op; 0: of none.
class BackwardOf {
 public:
  explicit BackwardOf(uint64_t forward_uid) noexcept
      : before_(std::exchange(detail::t_ops.forward, forward_uid)) {}
  ~BackwardOf() { detail::t_ops.forward = before_; }
  BackwardOf(const BackwardOf&) = delete;
  BackwardOf& operator=(const BackwardOf&) = delete;
  static uint64_t current() noexcept { return detail::t_ops.forward; }

 private:
  uint64_t before_;
};

}  // namespace sinter::profiler
