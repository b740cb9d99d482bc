// The ledger's text: which rows have a ratio. The times are made up.
#include "measure/ledger.h"

#include <gtest/gtest.h>

namespace sinter::measure {
namespace {

LedgerRow row(const char* name, std::vector<double> eager_us, std::vector<double> fused_us,
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
TEST(Ledger, OnlyShownDifferencesHaveANumber) {
  const std::vector<double> slow{20, 21, 20, 20, 21, 20}, fast{10, 10.5, 10, 10, 10.5, 10};
  Ledger ledger;
  ledger.rows = {row("faster", slow, fast), row("equal", slow, {21, 20, 20, 21, 20, 20}),
      row("kernel", slow, fast, "unchanged"), row("jumping", {20, 300, 20, 250, 20, 400}, fast)};
  ledger.total = row("TOTAL", slow, fast);
  const std::string text = ledger.table();
  EXPECT_NE(line_of(text, "faster").find("-50%"), std::string::npos) << text;
  EXPECT_NE(line_of(text, "faster").find("2.00x [2.00,2.00]"), std::string::npos) << text;
  EXPECT_NE(line_of(text, "equal").find("- no difference"), std::string::npos) << text;
  EXPECT_NE(line_of(text, "kernel").find("- unchanged"), std::string::npos) << text;
  EXPECT_NE(line_of(text, "jumping").find("- machine busy"), std::string::npos) << text;
  for (const char* name : {"equal", "kernel", "jumping", "TOTAL"}) {
    EXPECT_EQ(line_of(text, name).find('%'), std::string::npos) << text;
    EXPECT_EQ(line_of(text, name).find("x ["), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace sinter::measure
