// `geglu`, run as a subprocess: launches of every rule set on cpu and simt, parity of y and every
// gradient, and what is said and refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

Result geglu(const Words& more, int status = 0) {
  Program program;
  program.name = "geglu";
  const Words words{"--batch", "1", "--seq", "17", "--dim", "24", "--hidden", "40", "--threads",
      "1", "--rounds", "1", "--steps", "1", "--warmup", "0"};
  return program.run(status, words + more);
}
json object(const Words& more) { return json::parse(geglu(more).out); }

void check_counts(const char* device) {
  const std::pair<const char*, int> sets[] = {
      {"none", 15}, {"glu,glu_backward", 12}, {"merge_linear,glu,glu_backward", 8}, {"all", 6}};
  for (const auto& [rules, launches] : sets) {
    const json o = object({"--device", device, "--rules", rules, "--json"});
    EXPECT_EQ(o["schema"], "sinter.geglu/1");
    EXPECT_EQ(o["launches"], (json{{"eager", 15}, {"fused", launches}, {"complete", true}}))
        << rules;
    EXPECT_EQ(o["rows"][1]["launches"], launches);
    EXPECT_LE(o["parity"]["relative"], 1e-5);
  }
  const json forward = object({"--device", device, "--pass", "forward", "--json", "--gelu", "erf"});
  EXPECT_EQ(forward["launches"], (json{{"eager", 5}, {"fused", 2}, {"complete", true}}));
  const json bf16 = object({"--device", device, "--dtype", "bf16", "--json"});
  EXPECT_EQ(bf16["launches"]["fused"], 6);
  EXPECT_EQ(bf16["rows"][0]["dtype"], "bf16");
  EXPECT_LE(bf16["parity"]["relative"], 2e-2);
}
TEST(Geglu, LaunchesOfEveryRuleSet) { check_counts("cpu"); }
TEST(GegluSimt, LaunchesOfEveryRuleSet) { check_counts("simt"); }

TEST(GegluSimt, SaysTheCostFirstAndShowsTheTable) {
  const Result r = geglu({"--explain", "-v"});
  EXPECT_TRUE(r.err.starts_with("cost ")) << r.err;
  expect_facts(r.out, {"gated_linear ", "<- linear x2, gel", "gated_linear_backward", "15 ->  6",
                          "launches (claimed 6, counted 6)", "0.318 -> 0.326 MFLOP", "\nparity   ",
                          "choice   by the cost model", "15 launches -> 6 (rules all)"});
  const Result large = geglu({"--device", "simt", "--mode", "eager", "--batch", "1", "--seq", "1",
      "--dim", "1", "--hidden", "1"});
  EXPECT_EQ(large.err.find("a size that suits simt"), std::string::npos) << large.err;
  expect_facts(large.out, {"not timed on simt   15 launches"});
}

TEST(Geglu, OneModeByItself) {
  for (const auto& [mode, launches] : {std::pair{"eager", 15}, {"fused", 6}}) {
    const json o = object({"--mode", mode, "--json"});
    ASSERT_EQ(o["rows"].size(), 1u);
    EXPECT_EQ(o["rows"][0]["mode"], mode);
    EXPECT_EQ(o["rows"][0]["launches"], launches);
    EXPECT_GT(o["rows"][0]["median_us"], 0);
  }
}

TEST(Geglu, WritesTheFilesOfItsProfile) {
  Program program;
  program.name = "geglu";
  const Words small{"--device", "cpu", "--threads", "1", "--batch", "1", "--seq", "8", "--dim",
      "16", "--hidden", "24", "--dtype", "f32"};
  const Result r = program.run(0, small + Words{"--steps", "1", "--warmup", "0", "--rounds", "2",
                                              "--profile=table,json,html,trace", "-o", "block"});
  expect_facts(r.out, {"CPU eager  step#"});
  for (const char* file :
      {"block.txt", "block.html", "block_eager.json", "block_fused.json", "block.trace.json.gz"})
    EXPECT_TRUE(std::filesystem::exists(program.folder() / file)) << file;
  EXPECT_EQ(json::parse(text_of(program.folder() / "block_fused.json"))["workload"],
      "geglu 16 -> 24, seq 8, gelu tanh, forward+backward");
  program.run(2, small + Words{"--profile=html", "-o", "block"});  // it is there
}

TEST(Geglu, ParityBeyondWhatIsAllowedIsStatus7) {
  expect_facts(geglu({"--max-rel", "0", "--dtype", "bf16"}, 7).err, {"geglu: results differ: "});
}

}  // namespace
}  // namespace sinter::test
