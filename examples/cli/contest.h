// The contest of measure/contest.h as a program has it: its flags, its output, its JSON. Shared by
// `mnist compare` and `geglu`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "examples/cli/flags.h"
#include "examples/cli/output.h"
#include "examples/cli/profile.h"
#include "measure/contest.h"

namespace sinter::cli {

using measure::Contest, measure::Outcome;

struct ContestFlags : measure::ContestOptions {
  ViewFlags view{.table = {.scopes = false}};
  bool tables = false;  // of both modes, before the ledger
  std::optional<double> max_rel;
};
// Topic "comparison": --steps --warmup --rounds --max-rel; topic "table": those of ViewFlags
void add_contest_flags(Flags& flags, ContestFlags& contest);

// Chooses the steps of a round and, where they were not given, rounds and warm-up, so that all
// rounds of one mode have `steps` in all; but never fewer rounds than `fewest`, nor than one step
// in each.
void fit_rounds(ContestFlags& contest, const Flags& given, double steps, int64_t fewest);

// Runs it with the roofs of this machine, until a signal comes.
Outcome run_contest(const Contest& contest, ContestFlags flags, Output& out);
// What --expect and --fail-on look at.
Measured measured(const Contest& contest, const Outcome& outcome);
// The title, the tables, and measure::report().
void print_contest(const Contest& contest, const ContestFlags& flags, const Outcome& outcome,
    const std::string& parity, bool explain, Output& out);
// The keys from "eager_us" to "ledger" of an object of --json.
void add_json(nlohmann::ordered_json& object, const Contest& contest, const Outcome& outcome);

}  // namespace sinter::cli
