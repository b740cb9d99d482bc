// Exports: the files of --profile=FORMATS. Of one report BASE.txt .json .csv .trace.json.gz .folded
// .html; of two (eager and fused) text and HTML hold both, and the others are BASE_eager.* and
// BASE_fused.*. Used by every program that profiles.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "profiler/profile.h"

namespace sinter::profiler {

// "table,json,html" -> its words. Error (usage, beginning with `what`): unknown, empty or repeated;
// the nearest is named.
std::vector<std::string> parse_formats(const std::string& text, const std::string& what);

struct Exports {
  std::string base;
  std::vector<std::string> formats;
  bool pair = false;  // two reports

  bool has(std::string_view format) const;
  std::vector<std::string> files() const;
  // Before the run. Error (usage): a folder is not there or cannot be written to, or a file is
  // there and `force` is not given.
  void check(bool force) const;
  // Writes files(); returns what is to be said: what the trace left out. `table` is the text of
  // .txt.
  std::vector<std::string> write(std::span<const Report> reports, const RunFacts& run,
      const std::string& table, const Comparison* comparison = nullptr) const;
};

// The HTML report; each part may be missing.
struct HtmlParts {
  std::string title{}, command{};
  std::span<const Report> reports{};
  RunFacts run{};
  const Comparison* comparison = nullptr;
  const Sweep* sweep = nullptr;
};
std::string html_report(const HtmlParts& parts);

}  // namespace sinter::profiler
