// mnist compare as a user runs it.
#include <gtest/gtest.h>

#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using Words = std::vector<std::string>;

// The judged step has one learning rate on both sides, however many steps a side took before it.
TEST(MnistCompare, ParityHoldsUnderEveryScheduleAndWarmUp) {
  const Program program;
  for (const Words& words : {Words{"--schedule", "onecycle"}, {"--lr-warmup", "10"},
           {"--schedule", "cosine", "--optimizer", "sgd"},
           {"--schedule", "step", "--lr-warmup", "50%"}}) {
    Words all{"compare", "--data", "synthetic", "--hidden", "16", "--threads", "1", "--measure",
        "off", "--rounds", "1", "--steps", "1", "--warmup", "0"};
    all.insert(all.end(), words.begin(), words.end());
    const Result r = program.run(all);
    EXPECT_EQ(r.status, 0) << words[1] << r.err;
  }
}

}  // namespace
}  // namespace sinter::test
