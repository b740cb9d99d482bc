// Verdicts: what bounds a row and a step, by the thresholds of thresholds.h. Pure functions:
// numbers in, code and evidence out; the first that matches wins. The codes' names are stable in
// exports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/fields.h"
#include "profiler/names.h"

namespace sinter::profiler {

enum class RowCode : uint8_t {
  unknown,
  invalid,
  emulated,
  meta,
  launch_bound,
  compute_bound,
  memory_bound,
  latency_bound,
  mixed
};
constexpr auto names_of(RowCode) {
  return std::to_array<std::string_view>({"", "INVALID", "EMULATED", "META", "launch-bound",
      "compute-bound", "memory-bound", "latency-bound", "mixed"});
}
enum class StepCode : uint8_t {
  undecided,
  input_bound,
  overhead_bound,
  compute_bound,
  memory_bound,
  latency_bound,
  mixed
};
constexpr auto names_of(StepCode) {
  return std::to_array<std::string_view>({"UNDECIDED", "INPUT-BOUND", "OVERHEAD-BOUND",
      "COMPUTE-BOUND", "MEMORY-BOUND", "LATENCY-BOUND", "MIXED"});
}

struct RowVerdict {
  RowCode code = RowCode::unknown;
  std::string evidence{};
};
struct StepVerdict {
  StepCode code = StepCode::undecided;
  std::string evidence{}, advice{};
  SINTER_FIELD_LIST(code, evidence, advice)
};

struct Ceiling;
struct Measurement;
struct Profile;
struct Row;
// Of an op of that run; `busy`: the machine was, with something else.
RowVerdict row_verdict(const Row& row, const Measurement& run, const Ceiling& ceiling, bool busy);
// By the verdicts of its rows, and by the window of its device.
StepVerdict step_verdict(const Profile& profile);

}  // namespace sinter::profiler
