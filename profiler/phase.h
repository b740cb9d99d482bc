// A phase of the training step: forward, backward, optimizer. The profiler shows it as a span, and
// what a capture records meanwhile knows it. Opened by the outermost module, backward() and the
// optimizer; a program opens its own where it knows better.
#pragma once

#include "core/context.h"
#include "profiler/scope.h"

namespace sinter::profiler {

inline constexpr StaticName kPhaseNames[] = {"", "forward", "backward", "optimizer"};

class PhaseScope {
 public:
  explicit PhaseScope(Phase phase)
      : before_(std::exchange(Context::current().phase, phase)),
        scope_(kPhaseNames[size_t(phase)]) {}
  ~PhaseScope() { Context::current().phase = before_; }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const Phase before_;
  const Scope scope_;
};

}  // namespace sinter::profiler
