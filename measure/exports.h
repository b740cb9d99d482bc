// Exports: the files of --profile=FORMATS. Of one report BASE.txt .json .trace.json.gz .folded
// .html; of two (eager and fused) text, trace and HTML hold both, and the others are BASE_eager.*
// and BASE_fused.*. Used by every program that profiles.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/fields.h"
#include "profiler/join.h"
#include "profiler/report.h"

namespace sinter::measure {

// "table,json,html" -> its words. Error (usage, beginning with `what`): unknown, empty or repeated;
// the nearest is named.
std::vector<std::string> parse_formats(const std::string& text, const std::string& what);

struct PageComparison {
  std::string headline{};  // "1402 -> 1157 us = 1.21x [1.19,1.23]"
  std::vector<profiler::ComparedRow> rows{};
  std::string summary{};  // lines: where the time went, what was counted
  SINTER_FIELD_LIST(headline, summary, rows)
};

struct Exports {
  std::string base;
  std::vector<std::string> formats;
  bool pair = false;             // two reports
  std::string what = "profile";  // begins the messages of check()
  std::string hint{};            // of the one that a file is there

  bool has(std::string_view format) const;
  std::vector<std::string> files() const;
  void check(bool force) const;  // check_writable() of each, before the run
  // Writes files(). `table` is the text of .txt; `opened` as of HtmlParts.
  void write(std::span<const profiler::Report> reports, const profiler::RunFacts& run,
      const std::string& table, const PageComparison* comparison = nullptr,
      const std::string& opened = "") const;
};

// A report as the file that its ending names: .html, .json, .trace.json.gz, .folded (stacks), .txt.
// Throws usage for another one.
void save(
    const profiler::Report& report, const std::string& file, const profiler::RunFacts& run = {});

// Throws usage, beginning with `what`, where `file` cannot be written: its folder is not there, a
// folder bears its name, or, unless `force` is given, a file does; then `hint`. Throws checkpoint
// where the folder is not open to us.
void check_writable(
    const std::string& file, const std::string& what, bool force, const std::string& hint);

// The page, one HTML file (measure/page); each part may be missing, and is not shown then.
struct HtmlParts {
  std::string title{}, command{};
  std::span<const profiler::Report> reports{};
  profiler::RunFacts run{};
  const PageComparison* comparison = nullptr;
  // JSON: a step, of Inspection, and the digits that a model reads worst, of a program.
  std::string opened{}, worst{};
};
std::string html_report(const HtmlParts& parts);

}  // namespace sinter::measure
