// What a Step keeps of a captured key: the graph as it was recorded, its rewritten form, and the
// executor that replays it; and what a replay does to the gradients.
#pragma once

#include <memory>

#include "capture/executor.h"
#include "capture/leaf.h"
#include "capture/rules.h"

namespace sinter::capture {

struct StepOptions;

struct Captured {
  Graph recorded;
  Rewriter fused;
  std::unique_ptr<Executor> executor;
  // What a replay does to a leaf's .grad, and what it must be before: of the layout of leaf.before
  // and, if that has memory, there.
  struct Gradient {
    Leaf leaf;
    enum class Need : uint8_t { any, absent, present } need;
    Tensor grad;  // if it is set; without memory if a rule took it
    const char* taken_by;
  };
  std::vector<Gradient> gradients;
  std::vector<Bf16Copy> bf16_copies;  // that it reads: up to date before each replay
  RandomOpsOfStep::Draws draws;
  bool clears_tape = false;
  std::vector<const Storage*> written;  // memory of the closure: inputs may not share it
};

// Rewrites, plans and prepares what two recordings agree on. `choices`: what measuring kept
// unfused, per capture; one is appended if options.measure. `adopted`: see Executor. Throws state
// if no replay could do what the recordings did.
std::unique_ptr<Captured> make_captured(const Recorded& first, Recorded second, Device::Type device,
    const StepOptions& options, std::vector<Refused>& choices, const Tensors& adopted);

}  // namespace sinter::capture
