// Two profiles side by side: which rows of one stand for which of the other, and the table of that.
// `mnist compare` and `diff` have this one join, and with `bench` this one table.
//
// Rows are paired by the first of these that is known:
//   origin   what a fused op stands for, where its row says that (Row::origin, made_of);
//   name     equal names, and shapes where asked for;
//   words    another name of the same op: aten::addmm is linear, aten::threshold_backward
//            relu_backward, as a table says (join.cpp);
//   tokens   the ops in a fused kernel's name: cpp_fused_relu_threshold_backward_1.
// What is then without a partner is one last row, "unattributed": nothing is guessed. Pure
// functions.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/fields.h"
#include "profiler/profile.h"
#include "profiler/stats.h"

namespace sinter::profiler {

// Rows of A, and the rows of B that stand for them: indices. Neither is empty, but in what is
// unattributed.
struct JoinedRows {
  std::vector<int> a{}, b{};
  bool attributed = true;
};
// Of the ops. With origins in the order of B's rows, else in that of A's; the unattributed last.
std::vector<JoinedRows> join_rows(const Profile& a, const Profile& b, bool by_shape = false);

// Units in which a person reads numbers of this size.
struct Unit {
  double size;
  const char* name;
};
Unit unit_of_us(double us);        // us, ms
Unit unit_of_bytes(double bytes);  // kB, MB

// Rows that are joined, as numbers of one step: of A, the eager side of a comparison, and of B, the
// fused one. A count of -1 is not known.
struct ComparedRow {
  std::string fused{}, eager{};     // "linear_act x2", "linear x2, relu x2"
  std::string verdict{};            // why there is no factor: "same op", "fallback"; or ""
  std::string row{};                // the name alone: "linear_act"
  std::vector<std::string> from{};  // and those of the eager rows: "linear", "relu"
  int eager_launches = 0, fused_launches = 0;
  int64_t eager_bytes = 0, fused_bytes = 0, eager_flops = 0, fused_flops = 0;
  std::vector<double> eager_us{}, fused_us{};  // per pair of rounds, or of steps
  std::string rule{};                          // of the fused op, or ""
  int64_t layouts = 1;                         // of memory, see paired_ratio()

  // Adds the launches, bytes and FLOPs of rows of either side.
  void add_counts(const Profile& a, const Profile& b, const JoinedRows& rows);
  // As they are printed, in us; NaN without times.
  double eager_time() const { return as_told(median(eager_us)); }
  double fused_time() const { return as_told(median(fused_us)); }
  // The quotient of the two, and 1 without an interval where they are not compared: without times
  // of both, as where no fused op stands for the eager ones, or with a verdict.
  Estimate ratio() const;
  // "2.56x [2.49,2.62]", or why there is no factor: "no difference", "same op", "-".
  std::string ratio_text() const;
  // Of a page, and of --json.
  SINTER_FIELD_LIST(fused, eager, verdict,
      named("launches", written(std::array{eager_launches, fused_launches})),
      named("self_us", written(std::array{eager_time(), fused_time()})),
      named("ratio", written(ratio().told())),
      named("bytes", written(std::array{eager_bytes, fused_bytes})), row, from,
      named("shown", written(ratio_text())))
};

struct ComparisonTable {
  std::vector<ComparedRow> rows;
  ComparedRow total{.fused = "TOTAL"};  // of add(); without a name it is not shown
  std::string names = "Fused row <- eager ops", launches = "Launches", times = "us, self CPU",
              ratio = "Eager / fused";  // titles; that of the times begins with its unit

  // A row, and to the total what it counts and its times as they are printed: as a reader would
  // add them up.
  void add(ComparedRow row);
  // The table in text, of at most `width` columns: names are cut; 0: as wide as it is. What is not
  // known is "-".
  std::string text(size_t width = 0) const;
};

struct DiffOptions {
  bool by_shape = false;   // a row per shape of the inputs, where both profiles have them
  bool same_work = false;  // the caller knows that both did the same, whatever they say
  size_t width = 0;        // columns at most: names are cut; 0: as wide as it is
};
// What B changed against A: headline and rows, with the one statistic of stats.h. Rounds are paired
// with rounds where both have several, else steps with steps.
std::string diff(const Profile& a, const Profile& b, const DiffOptions& options = {});

}  // namespace sinter::profiler
