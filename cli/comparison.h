// What programs that compare share: the comparison of measure/comparison.h with a program's
// flags, output, files, JSON and exit status. A program adds the steps and their parity.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/app.h"
#include "cli/step.h"
#include "measure/blame.h"
#include "measure/comparison.h"
#include "measure/parity.h"

namespace sinter::cli {

using measure::Comparison, measure::Outcome;

struct ComparisonFlags : measure::ComparisonOptions {
  ViewFlags view;
  ExportFlags files;
  std::optional<double> max_rel;
  bool blame = false;
  std::string devices;  // of blame; none: that of the program
};
// Topic "comparison": those of add_fusion_flags(), --steps --warmup --rounds --max-rel --blame;
// topic "table": those of ViewFlags and ExportFlags. `fewest_steps` may be 0: as many as fit.
void add_comparison_flags(
    Flags& flags, FusionFlags& fusion, ComparisonFlags& comparison, int64_t fewest_steps = 1);

// Chooses the steps of a round and, where they were not given, rounds and warm-up, so that all
// rounds of one mode have `steps` in all; but never fewer rounds than `fewest`, nor than one step
// in each.
void fit_rounds(ComparisonFlags& comparison, const Flags& given, double steps, int64_t fewest);

// What one run of the program compares.
struct CompareRun {
  const CommonFlags& common;
  const FusionFlags& fusion;
  const ComparisonFlags& flags;
  Output& out;
  std::string program, workload;  // "compare" begins messages; "mlp 784-10, adam" names profiles
  std::string case_name;          // begins the names of files: "mlp"
  int64_t batch = 0;
  Comparison comparison{};
  std::string next{};  // what a reader may try
  // Of the captured step, for --blame and the page; and the shape of a picture among them, if any.
  Tensors inputs{};
  Shape picture{};

  // Before any work: do the flags go together, can the files be written? `both`: the graphs of
  // both modes are. Error: usage.
  void check_flags(const Flags& given, bool both = true) const;
  // --blame, in place of run(): prints the error and the bound of each op of the captured step, and
  // throws check where one exceeds its bound. Errors: measure::blame().
  void blame(measure::BlameOptions options = {}) const;
  // Runs it with the roofs of this machine until a signal comes; prints the title, the tables and
  // measure::report(); writes profiles and graphs.
  Outcome run(const std::string& parity) const;
  // After a signal: says of how many pairs of rounds the tables are that are out. Returns the exit
  // status.
  int stopped(int64_t pairs) const;
  // What results may differ relative to the largest of their tensor: --max-rel, or what is usual
  // for the type.
  double allowed() const;
  // Throws check where a tensor is beyond its bound.
  void check(const measure::Parity& parity) const;
  // Throws where --expect or --fail-on ask for it.
  void check(const Outcome& outcome) const;

 private:
  measure::Exports exports() const;
  void write_files(const Outcome& outcome) const;
  std::string kept(const Outcome& outcome) const;  // lines
};
// The keys from "eager_us" to "table" of an object of --json.
void add_json(Json& object, const Comparison& comparison, const Outcome& outcome);

}  // namespace sinter::cli
