// The table's text: which rows have a ratio. The times are made up.
#include "measure/comparison_table.h"

#include <gtest/gtest.h>

#include "tests/test_util.h"

namespace sinter::measure {
namespace {

ComparedRow row(const char* name, std::vector<double> eager_us, std::vector<double> fused_us,
    const char* verdict = "") {
  return {.fused = name,
      .eager = "parts",
      .verdict = verdict,
      .eager_launches = 2,
      .fused_launches = 1,
      .eager_us = std::move(eager_us),
      .fused_us = std::move(fused_us)};
}
std::string line_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name) + 1;
  return text.substr(at, text.find('\n', at) - at);
}

// The headline is the step's own ratio: no row, and not the total, says anything that it may
// contradict.
TEST(ComparisonTable, OnlyShownDifferencesHaveANumber) {
  const std::vector<double> slow{20, 21, 20, 20, 21, 20}, fast{10, 10.5, 10, 10, 10.5, 10};
  ComparisonTable table;
  table.rows = {row("faster", slow, fast), row("equal", slow, {21, 20, 20, 21, 20, 20}),
      row("kernel", slow, fast, "same op"), row("jumping", {20, 300, 20, 250, 20, 400}, fast)};
  table.total = row("TOTAL", slow, fast);
  const std::string text = table.text();
  test::expect_facts(line_of(text, "faster"), {"20.00 -> 10.00", "2.00x [2.00,2.00]"});
  test::expect_facts(line_of(text, "equal"), {"  no difference"});
  test::expect_facts(line_of(text, "kernel"), {"  same op"});
  test::expect_facts(line_of(text, "jumping"), {"  machine busy"});
  for (const char* name : {"equal", "kernel", "jumping", "TOTAL"}) {
    EXPECT_EQ(line_of(text, name).find("x ["), std::string::npos) << text;
  }
}

// Names are cut: of what a row stands for as much is told as there is room for.
TEST(ComparisonTable, ARowIsOneLineAndNoneIsLongerThanTheTerminal) {
  ComparisonTable table;
  const std::vector<double> slow{100, 101, 100, 102, 101, 100}, fast{90, 91, 92, 90, 92, 90};
  table.rows = {row("weight_grad_update x3", slow, fast)};
  table.rows[0].eager =
      "matmul(wgrad) x3, sum_rows(bgrad) x3, adam_update x6, and what else there is";
  table.total = row("TOTAL", {1000}, {900});
  for (const size_t width : {60, 72, 80, 100, 120, 160}) {
    const std::string text = table.text(width);
    EXPECT_EQ(test::lines_of(text).size(), 3U) << text;
    for (const std::string& line : test::lines_of(text)) EXPECT_LE(line.size(), width) << line;
    test::expect_facts(text, {"weight_grad_update", "1.110x [1.087,1.128]"});
  }
  test::expect_facts(table.text(), {table.rows[0].eager, "kB moved"});
}

// Units are those of the step.
TEST(ComparisonTable, LargeStepsAreInMillisecondsAndMegabytes) {
  ComparisonTable table;
  table.rows = {row("product", {250'000}, {120'000})};
  table.rows[0].eager_bytes = 300'000'000;
  table.rows[0].fused_bytes = 100'000'000;
  table.total = table.rows[0];
  test::expect_facts(table.text(), {"ms, self CPU", "250.0 -> 120.0", "MB moved", "300 -> 100"});
  table.rows.push_back(row("small", {30}, {20}));
  table.rows[1].eager_bytes = 33'000;
  table.rows[1].fused_bytes = 21'000;
  test::expect_facts(line_of(table.text(), "small"), {"0.033 -> 0.021"});
}

}  // namespace
}  // namespace sinter::measure
