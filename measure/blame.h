// Blame: which kernel gives wrong numbers? Walks a captured step op by op, as it was recorded and
// as the rules rewrote it for each device, and holds each op against f64.
//
//   const capture::Graph& graph = step.captured()->recorded;
//   const measure::Blame blame = measure::blame(graph, {x, labels}, {.devices = {kCpu}});
//   std::cout << blame.table() << blame.verdict() << "\n";
//
// Note [Every op gets the right inputs]
//   The values between ops are those of the step in f64, each rounded to the type in which the step
//   keeps it: an op that errs spoils nothing for those behind it. So the first op that exceeds its
//   bound is the one to look at, and the only one if one kernel is wrong. Bounds: Note [How far a
//   kernel may be from f64], measure/rounding.h.
//
// The step's own memory stays as it is. Not looked at: the step's scalars (loss sums, counters).
// Used by `mnist compare` and `geglu`; one thread.
#pragma once

#include <functional>
#include <optional>

#include "capture/step.h"
#include "core/fields.h"
#include "measure/rounding.h"

namespace sinter::measure {

struct BlameOptions {
  std::vector<Device> devices{kCpu};
  capture::RuleSet rules;
  // Runs a call's kernel. Tests put a wrong one in its place.
  std::function<void(const Call&)> launch = launch_op;
};

// One op of the step on one device, eager or fused.
struct CheckedOp {
  Device device;
  bool fused;        // in the rewritten step
  std::string op;    // "%21 linear_act"; the number is that of the graph's text
  const char* rule;  // that made it, or nullptr
  std::string module;
  Deviation worst;
  SINTER_FIELD_LIST(device, fused, op,
      named("rule", written(rule ? std::optional<std::string>(rule) : std::nullopt)), module,
      worst.error, worst.bound)
};

struct Blame {
  std::vector<CheckedOp> ops;
  // Of the first op that exceeds its bound: its number in `ops`, where its worst element is, and
  // the operands of the smallest sizes that show it still.
  std::optional<size_t> first;
  std::string element, smallest;
  // Of the first op whose exact result has a NaN: where, and what it had to go by. Kernels that
  // have it, too, are right.
  std::optional<size_t> first_nan;
  std::string nan;  // "nan at [0, 3] of result 0; operands ..; operand 1, 0.weight, has nan at .."

  // Of at most `width` columns; 0: as wide as it is.
  std::string table(size_t width = 0) const;
  // "none of 34 ops exceeds its bound", or which one does, by how much, its rule, its smallest
  // shape; and which op makes the first NaN.
  std::string verdict() const;
};

// `recorded`: of capture::Captured, on any device; `inputs`: of that step. Throws device or
// not_built for a device that cannot be used.
Blame blame(
    const capture::Graph& recorded, const Tensors& inputs, const BlameOptions& options = {});

}  // namespace sinter::measure
