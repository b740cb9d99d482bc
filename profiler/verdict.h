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
  above_roof,
  launch_bound,
  compute_bound,
  memory_bound,
  latency_bound,
  mixed
};
constexpr auto names_of(RowCode) {
  return std::to_array<std::string_view>({"", "INVALID", "EMULATED", "META", "ROOF?",
      "launch-bound", "compute-bound", "memory-bound", "latency-bound", "mixed"});
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

struct RowFacts {
  bool invalid = false, emulated = false, replayed = false;
  bool busy = false;  // the machine, with something else
  int64_t launches = 0;
  double busy_ns = 0;      // device self; cpu: inside kernel calls. 0: not measured
  double host_ns = 0;      // self CPU; cpu: `Disp`
  bool has_roofs = false;  // the next two mean something
  double roof = 0;         // share of the nearer roof
  bool compute_is_nearer = false;
};
struct RowVerdict {
  RowCode code = RowCode::unknown;
  std::string evidence{};
};
RowVerdict row_verdict(const RowFacts& facts);

struct StepFacts {
  bool incomplete = false, emulated = false;
  bool on_cpu = true;
  std::string busy{};  // why nothing can be said
  bool has_roofs = false;
  double window_ns = 0;
  double data_ns = 0;  // idle time that waits for data; cpu: time in data scopes
  double host_ns = 0;  // idle time that waits for the host; cpu: `Disp`
  double busy_ns = 0;
  double self_ns = 0;  // of all rows; the next three are the parts of it in rows of that class
  double compute_ns = 0, memory_ns = 0, latency_ns = 0;
};
struct StepVerdict {
  StepCode code = StepCode::undecided;
  std::string evidence{}, advice{};
  SINTER_FIELD_LIST(code, evidence, advice)
};
StepVerdict step_verdict(const StepFacts& facts);

}  // namespace sinter::profiler
