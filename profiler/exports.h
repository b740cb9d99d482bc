// Exports: the files of --profile=FORMATS. Of one report BASE.txt .json .trace.json.gz .folded
// .html; of two (eager and fused) text, trace and HTML hold both, and the others are BASE_eager.*
// and BASE_fused.*. Used by every program that profiles.
#pragma once

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/fields.h"
#include "profiler/report.h"

namespace sinter::profiler {

// "table,json,html" -> its words. Error (usage, beginning with `what`): unknown, empty or repeated;
// the nearest is named.
std::vector<std::string> parse_formats(const std::string& text, const std::string& what);

// Eager and fused side by side: a row per fused op and what it stands for. Made by
// measure::make_table().
struct ComparedRow {
  std::string fused{}, eager{};  // "linear_act x2", "linear x2, relu x2"
  std::string verdict{};  // "unchanged", "fallback", or ""; with either the kernel is the same
  std::string row{};      // the name alone: "linear_act"
  std::vector<std::string> from{};  // and those of the eager rows: "linear", "relu"
  int eager_launches = 0, fused_launches = 0;
  int64_t eager_bytes = 0, fused_bytes = 0, eager_flops = 0, fused_flops = 0;
  std::vector<double> eager_us{}, fused_us{};  // of a step, per pair of rounds
  std::string rule{};                          // of the fused op, or ""

  // As they are printed, in us; NaN without times.
  double eager_time() const { return four_digits(median(eager_us)); }
  double fused_time() const { return four_digits(median(fused_us)); }
  // The quotient of the two, and 1 without an interval where they are not compared: without times,
  // with a verdict, or where no fused op stands for the eager ones.
  Estimate ratio() const;
  // "2.56x [2.49,2.62]", or why there is no factor: "no difference", "unchanged", "-".
  std::string ratio_text() const;
  // Of a page, and of --json.
  SINTER_FIELD_LIST(fused, eager, verdict,
      named("launches", written(std::array{eager_launches, fused_launches})),
      named("self_us", written(std::array{eager_time(), fused_time()})),
      named("ratio", written(ratio())),
      named("bytes", written(std::array{eager_bytes, fused_bytes})), row, from,
      named("shown", written(ratio_text())))
};
struct Comparison {
  std::string headline{};  // "1402 -> 1157 us = 1.21x [1.19,1.23]"
  std::vector<ComparedRow> rows{};
  std::vector<std::string> expected_saving{};  // lines
  std::string summary{};                       // lines: where the time went, what was counted
  SINTER_FIELD_LIST(headline, summary, rows, expected_saving)
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
  // Writes files(); returns what is to be said: what the trace left out. `table` is the text of
  // .txt.
  std::vector<std::string> write(std::span<const Report> reports, const RunFacts& run,
      const std::string& table, const Comparison* comparison = nullptr) const;
};

// Throws usage, beginning with `what`, where `file` cannot be written: its folder is not there or
// not open to us, a folder bears its name, or, unless `force` is given, a file does; then `hint`.
void check_writable(
    const std::string& file, const std::string& what, bool force, const std::string& hint);

// The text of a trace as BASE.trace.json.gz.
void write_trace(const std::string& base, const std::string& text);

// The profile of a report whose run is told.
Profile profile_of(const Report& report, const RunFacts& run);

// Fused against eager over batch x hidden.
struct SweepCell {
  int64_t batch = 0, hidden = 0;
  double eager_us = 0, fused_us = 0;  // 0: not measured
  Estimate ratio{};
  SINTER_FIELD_LIST(batch, hidden, named("eager_us", written(known(eager_us))),
      named("fused_us", written(known(fused_us))),
      named("ratio", written(ratio.known(ratio.value))), written(ratio.known(ratio.low)),
      written(ratio.known(ratio.high)),
      named("shown", written(ratio.is_shown() ? times_text(ratio) : "")))

 private:
  static double known(double x) { return x > 0 ? x : NAN; }
};
struct Sweep {
  std::string title{}, crossover{};
  std::vector<int64_t> batch{}, hidden{};
  std::vector<SweepCell> cells{};
  SINTER_FIELD_LIST(title, crossover, batch, hidden, cells)
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
// A page's template with its data, a JSON text, where its mark stands.
std::string fill_page(std::string page, std::string json);

}  // namespace sinter::profiler
