// The flags of a profile's files, --profile=FORMATS -o NAME --force, as `compare`, `bench` and
// `geglu` share them.
#pragma once

#include "examples/cli/contest.h"
#include "examples/cli/flags.h"
#include "profiler/exports.h"

namespace sinter::cli {

struct ExportFlags {
  std::string text;  // of --profile
  std::vector<std::string> formats;
  std::string name;  // empty: named after the case
  bool force = false;

  profiler::Exports exports(const std::string& standard_name, bool pair) const {
    return {name.empty() ? standard_name : name, formats, pair, "usage: -o",
        "--force writes over it, -o NAME takes another name"};
  }
};
// `allowed`: empty means every format; --profile alone is the first.
void add_export_flags(
    Flags& flags, ExportFlags& files, std::vector<std::string> allowed = {}, std::string help = "");
// Before the run: one file that will be written. Error: usage.
void check_writable(const std::string& file, const char* flag, bool force);

// The files of a contest, both reports and the ledger, and a note of which they are; none without
// formats.
void write_files(const profiler::Exports& files, const Outcome& outcome, const ContestFlags& flags,
    const profiler::RunFacts& run, Output& out);

}  // namespace sinter::cli
