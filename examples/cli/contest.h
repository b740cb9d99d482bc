// Contest: one step, eager and fused, against each other. What `mnist compare` and `geglu` share:
// clean rounds in pairs (A B B A) for the headline, as many profiled rounds that only apportion the
// time to the rows of the ledger, the counts, and the words for all of it.
//
// The caller brings the functions and judges parity itself, with Worst. On the emulator one step of
// each is counted and nothing is timed.
#pragma once

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "capture/ledger.h"
#include "examples/cli/flags.h"
#include "examples/cli/output.h"
#include "examples/cli/profile.h"
#include "profiler/stats.h"

namespace sinter::cli {

// The largest difference of one kind of tensor, relative to the tensor's largest value, and where.
struct Worst {
  double relative = 0, absolute = 0;
  std::string name{}, where{};

  void see(const std::string& seen, const Tensor& fused, const Tensor& eager);
};

struct ContestFlags {
  ViewFlags view{.table = {.scopes = false}};
  bool tables = false;  // of both modes, before the ledger
  int64_t steps = 20, warmup = 3, rounds = 9;
  std::optional<double> max_rel;
};
// Topic "comparison": --steps --warmup --rounds --max-rel; topic "table": those of ViewFlags
void add_contest_flags(Flags& flags, ContestFlags& contest);

// Chooses the steps of a round and, where they were not given, rounds and warm-up, so that all
// rounds of one mode have `steps` in all; but never fewer rounds than `fewest`, nor than one step
// in each.
void fit_rounds(ContestFlags& contest, const Flags& given, double steps, int64_t fewest);

struct Contest {
  Device device;
  std::string
      title;  // "mlp 784-256-128-10 relu   batch 128   f32   adam   cpu, 2 threads   rules all"
  std::function<void()> eager, fused;   // one step each
  const capture::Step* step = nullptr;  // what `fused` calls; captured: it has run twice
  std::string rules, dtype = "f32";
  bool explain = false;
  // On cuda: the fused step launched one by one, which separates fusion from replay, and the
  // unfused one replayed, whose kernels can be timed. Both have run three times.
  std::function<void()> listed{}, eager_replayed{};
  const capture::Step* eager_step = nullptr;  // of eager_replayed

  const capture::Captured& captured() const { return *step->captured(); }
  bool timed() const { return device.type != Device::Type::simt; }
  std::string rounds(const ContestFlags& flags) const;  // "9 pairs of rounds x 20 steps, 3 warm-up"
};

struct Outcome {
  std::vector<double> eager_us, listed_us, fused_us;  // clean rounds: the median step of each
  profiler::Report eager, fused;                      // profiled rounds, one after the other
  bool complete = true;                               // every step had the launches of its graph
  capture::Ledger ledger;
  profiler::Estimate ratio{};  // of the clean rounds
  std::string headline;        // "1402.1 -> 1156.9 us = 1.21x [1.19,1.23]"
  std::vector<std::string>
      proof;  // what fusion, replay and traffic should have saved, and what was saved

  Measured measured(const Contest& contest) const;
};

// What fusing should save on the CPU, beside what it saved: launches cost what a launch costs here.
// Bytes that fusing does not move cost what copying costs if they come from memory; from a cache
// they cost something between that and nothing, as the core computes meanwhile. LOOK where the
// whole interval of what was saved lies outside.
struct Saving {
  double launches = 0, launch_us = 0, kilobytes = 0, copy_gbs = 0;
  bool in_cache = false;
  double bytes_us() const { return kilobytes / copy_gbs; }
  double low_us() const {
    return launches * launch_us + (in_cache ? std::min(0.0, bytes_us()) : bytes_us());
  }
  double high_us() const {
    return launches * launch_us + (in_cache ? std::max(0.0, bytes_us()) : bytes_us());
  }
};
std::string estimate_text(const Saving& expected, const profiler::Estimate& saved_us);

// The median step of a round, after steps that warm up; each waits for the device.
double round_us(const std::function<void()>& step, Device device, int64_t warmup, int64_t steps);
// Ends early on a signal, with whole pairs of rounds; without any it throws interrupted.
Outcome run_contest(const Contest& contest, const ContestFlags& flags, Output& out);
// The lines from the ledger to the near misses; `parity` ends the line of FLOPs. With `explain` the
// explanation.
void print_contest(const Contest& contest, const ContestFlags& flags, const Outcome& outcome,
    const std::string& parity, Output& out);
// The keys from "eager_us" to "ledger" of an object of --json.
void add_json(nlohmann::ordered_json& object, const Contest& contest, const Outcome& outcome);

}  // namespace sinter::cli
