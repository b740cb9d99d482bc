// The flags of a profile's files, --profile=FORMATS -o NAME --force, as `compare`, `bench` and `geglu` share them.
#pragma once

#include "capture/ledger.h"
#include "examples/cli/flags.h"
#include "profiler/exports.h"

namespace sinter::cli {

struct ExportFlags {
  std::string text;  // of --profile
  std::vector<std::string> formats;
  std::string name;  // empty: named after the case
  bool force = false;

  profiler::Exports exports(const std::string& standard_name, bool pair) const {
    return {name.empty() ? standard_name : name, formats, pair};
  }
};
// `allowed`: empty means every format; --profile alone is the first.
void add_export_flags(Flags& flags, ExportFlags& files, std::vector<std::string> allowed = {}, std::string help = "");
// Before the run: one file that will be written. Error: usage.
void check_writable(const std::string& file, const char* flag, bool force);

// The ledger as the HTML page draws it.
profiler::Comparison comparison_of(const capture::Ledger& ledger, std::string headline, std::vector<std::string> proof);

}  // namespace sinter::cli
