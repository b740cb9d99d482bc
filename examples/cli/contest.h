// Contest: one step, eager and fused, against each other. What `mnist compare` and `geglu` share: clean rounds in pairs (A B B A) for the
// headline, as many profiled rounds that only apportion the time to the rows of the ledger, the counts, and the words for all of it.
//
// The caller brings two functions and judges parity itself, with Worst. On other devices than the CPU kernels are counted as they are
// launched; on the emulator nothing is timed.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "capture/ledger.h"
#include "examples/cli/flags.h"
#include "examples/cli/output.h"
#include "profiler/stats.h"

namespace sinter::cli {

// The largest difference of one kind of tensor, relative to the tensor's largest value, and where.
struct Worst {
  double relative = 0, absolute = 0;
  std::string name{}, where{};

  void see(const std::string& seen, const Tensor& fused, const Tensor& eager);
};

struct ContestFlags {
  int64_t steps = 20, warmup = 3, rounds = 9;
  std::optional<double> max_rel;
};
// Topic "comparison": --steps --warmup --rounds --max-rel
void add_contest_flags(Flags& flags, ContestFlags& contest);

struct Contest {
  Device device;
  std::string title;                    // "mlp 784-256-128-10 relu   batch 128   f32   adam   cpu, 2 threads   rules all"
  std::function<void()> eager, fused;   // one step each
  const capture::Step* step = nullptr;  // what `fused` calls; captured: it has run twice
  std::string rules;
  bool explain = false;

  const capture::Captured& captured() const { return *step->captured(); }
  bool timed() const { return device.type != Device::Type::simt; }
  bool profiles() const { return device == kCpu; }
  std::string rounds(const ContestFlags& flags) const;  // "9 pairs of rounds x 20 steps, 3 warm-up"
};

struct Outcome {
  std::vector<double> eager_us, fused_us;              // clean rounds: the median step of each
  std::vector<double> profiled_eager, profiled_fused;  // the same under the profiler
  int64_t counted_eager = 0, counted_fused = 0;        // launches
  bool complete = true;                                // every step had the launches of its graph
  capture::Ledger ledger;
  profiler::Estimate ratio{};  // of the clean rounds
};

// The median step of each round of one mode by itself.
std::vector<double> rounds_us(const std::function<void()>& step, Device device, const ContestFlags& flags);
// Ends early on a signal: check interrupted().
Outcome run_contest(const Contest& contest, const ContestFlags& flags);
// The lines from the ledger to the near misses; `parity` ends the line of FLOPs. With `explain` the explanation.
void print_contest(const Contest& contest, const ContestFlags& flags, const Outcome& outcome, const std::string& parity, Output& out);
// The keys from "eager_us" to "ledger" of an object of --json.
void add_json(nlohmann::ordered_json& object, const Contest& contest, const Outcome& outcome);

}  // namespace sinter::cli
