// The files of --profile and the commands that read them, as a user would have them.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "data/bytes.h"
#include "tests/examples/browser.h"
#include "tests/profiler/read_trace.h"
#include "tests/profiler/trace_check.h"
#include "tests/test_util.h"

namespace sinter::test {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kTrain = {"train", "-q", "--mode", "eager", "--data", "synthetic",
    "--limit", "256", "--hidden", "16", "--steps", "24", "--batch-size", "32", "--threads", "1",
    "--device", "cpu", "--out", "run", "--force", "--val", "0", "--profile-steps", "1:1:6"};

// One run writes every format; the tests look at its files.
class ProfileFiles : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    program = new Program;
    result = program->run(with(kTrain, {"--profile=table,json,trace,stacks,html"}));
  }
  static void TearDownTestSuite() { delete program; }
  static std::string text(const std::string& name) { return text_of(program->folder() / name); }
  static Program* program;
  static Result result;
};
Program* ProfileFiles::program = nullptr;
Result ProfileFiles::result;

TEST_F(ProfileFiles, TrainWritesThemAll) {
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* ending : {"txt", "json", "trace.json.gz", "folded", "html"})
    EXPECT_GT(text(std::string("run/profile.") + ending).size(), 100u) << ending;
  const Json json = Json::parse(text("run/profile.json"));
  EXPECT_EQ(json["workload"], "mlp 784-16-10 relu, adam");
  EXPECT_EQ(json["steps"].size(), 6u);
  expect_facts(json["command"].get<std::string>(), {"mnist train -q --mode eager --data"});
  expect_facts(result.out, {text("run/profile.txt")});
}

TEST_F(ProfileFiles, TheTraceIsSoundAndOtherFilesAreNone) {
  ByteSource packed(program->folder() / "run/profile.trace.json.gz");
  const std::vector<uint8_t> bytes = packed.read_up_to(uint64_t{1} << 30);
  const profiler::TraceCheck good = profiler::validate_trace({bytes.begin(), bytes.end()});
  EXPECT_TRUE(good.problems.empty()) << good.problems[0].rule << ": " << good.problems[0].what;
  EXPECT_GT(good.slices, 0);
  const profiler::TraceCheck bad = profiler::validate_trace(text("run/profile.json"));
  ASSERT_FALSE(bad.problems.empty());
  EXPECT_EQ(bad.problems[0].rule, "schema");
}

TEST_F(ProfileFiles, DiffComparesTwoRuns) {
  const Result same = program->run(0, {"diff", "run/profile.json", "run/profile.json"});
  // Beside other programs neither run has a verdict, and so no factor is looked for.
  if (!has(same.out, "no factor: A: machine busy")) expect_facts(same.out, {"no difference shown"});
  EXPECT_EQ(same.out.find("x ["), std::string::npos) << same.out;
  const Result json = program->run({"diff", "--json", "run/profile.json", "run/profile.json"});
  EXPECT_EQ(Json::parse(json.out)["schema"], "sinter.diff/1");
  const Result wrong = program->run(3, {"diff", "run/profile.json", "run/config.toml"});
  expect_facts(wrong.err, {"neither a profile nor a trace: run/config.toml"});
  program->run(2, {"diff", "run/profile.json"});
}

// A fused row stands beside the rows of the ops that it is made of, on a CPU too.
TEST_F(ProfileFiles, DiffPairsEagerWithFused) {
  program->run(
      0, {"train", "-q", "--data", "synthetic", "--limit", "256", "--val", "0", "--threads", "1",
             "--hidden", "16", "--steps", "24", "--batch-size", "32", "--mode", "fused", "--out",
             "fused", "--profile=json", "--profile-steps", "3:1:6"});
  const Result r = program->run(0, {"diff", "run/profile.json", "fused/profile.json"});
  expect_facts(
      r.out, {"linear_act + linear <- linear + relu ", "weight_grad_update <- matmul(wgrad) + "});
  EXPECT_EQ(r.out.find("unattributed"), std::string::npos) << r.out;
}

TEST_F(ProfileFiles, DiffReadsTracesOfPyTorch) {
  const std::string folder = SINTER_SOURCE_DIR "/tests/profiler/torch/",
                    eager = folder + "eager.json.gz", compiled = folder + "compiled.json.gz";
  const Result two = program->run(0, {"diff", eager, compiled});
  expect_facts(two.out, {"no factor: they do not say what was run"});
  expect_facts(two.err, {"--same-work"});
  const Result same = program->run({"diff", eager, compiled, "--same-work"});
  EXPECT_EQ(same.out.find("no factor"), std::string::npos) << same.out;
  expect_facts(program->run({"diff", "run/profile.json", eager}).out,
      {"aten::linear + aten::addmm <- linear ", "aten::mm <- matmul(wgrad)",
          "aten::relu + aten::clamp_min <- relu ", "aten::threshold_backward <- relu_backward "});
}

// What a real reader finds in the trace is what the profile says: every op, as often as it ran.
TEST_F(ProfileFiles, HtaFindsEveryOpOfTheCpuTrace) {
  const auto read = read_by_hta({text("run/profile.trace.json.gz")}, ".json.gz");
  if (!read) GTEST_SKIP() << no_hta();
  std::map<std::string, int64_t> expected,
      found = Json::parse(*read).at("ops").get<std::map<std::string, int64_t>>();
  const Json profile = Json::parse(text("run/profile.json"));
  for (const Json& row : profile["rows"]) {
    const std::string name = row["name"];
    if (row["kind"] == "op" || row["role"] == "data")  // an op that fetches data is a row of data
      expected[name.substr(0, name.find('('))] += row["calls"].get<int64_t>();
  }
  EXPECT_EQ(found, expected);
}

void expect_page_fits(const Program& program, const std::string& page) {
  for (const int width : {420, 768, 1280, 3840}) {
    const test::Opened opened = open_page(program.folder(), page, "report_page.js", width);
    expect_facts(opened.dom, {"data-selfcheck=\"ok: rows ", "data-test=\"all is there\""});
    EXPECT_FALSE(opened.said_something()) << opened.log;
  }
}
TEST_F(ProfileFiles, ThePageFitsItsWindowAndTakesKeys) {
  if (browser().empty()) GTEST_SKIP() << "no chromium";
  expect_page_fits(*program, "run/profile.html");
}

// Both modes and the opened step on one page of at most 3 MiB.
TEST(Compare, ThePageHoldsTheOpenedStep) {
  const Program program;
  const Result result =
      program.run(0, {"compare", "-q", "--data", "synthetic", "--limit", "64", "--threads", "1",
                         "--device", "cpu", "--hidden", "16", "--batch", "4", "--rounds", "2",
                         "--steps", "2", "--profile=html", "-o", "both"});
  const std::string page = text_of(program.folder() / "both.html");
  EXPECT_LE(page.size(), size_t{3} << 20);
  const Json data = Json::parse(data_of(page));
  EXPECT_EQ(data["profiles"].size(), 2u);
  EXPECT_EQ(data["timelines"].size(), 2u);
  EXPECT_EQ(data["opened"]["schema"], "sinter.inspect/1");
  EXPECT_EQ(data["opened"]["steps"][1]["launches"], data["profiles"][1]["steps"][0]["launches"]);
  if (browser().empty()) GTEST_SKIP() << "no chromium";
  expect_page_fits(program, "both.html");
}

TEST(Bench, TimesEachSizeAndRefusesTheEmulator) {
  const Program program;
  const Words cpu{"bench", "--device", "cpu", "--threads", "1"};
  const Result result = program.run(0, cpu + Words{"--batch", "1,8", "--hidden", "8,16"});
  std::string sizes;  // in the order of the flags, each noted as it is measured
  for (const char* size :
      {"batch 1, hidden 8", "batch 1, hidden 16", "batch 8, hidden 8", "batch 8, hidden 16"}) {
    sizes += str("size    ", size, ": .*\n");
    expect_facts(result.out, {str("\n", size, " ")});
  }
  EXPECT_TRUE(std::regex_search(result.err, std::regex(sizes))) << result.err;
  EXPECT_EQ(result.out.find("TOTAL"), std::string::npos) << result.out;
  const Result one = program.run(0, cpu + Words{"--batch", "1", "--hidden", "8", "--json"});
  const Json row = Json::parse(one.out)["rows"][0];
  EXPECT_EQ(row["batch"], 1);
  EXPECT_EQ(row["hidden"], 8);
  EXPECT_EQ(row["launches"][0], 25);
  EXPECT_LT(row["launches"][1], 25);
  EXPECT_GT(row["self_us"][0], 0);
  EXPECT_GT(row["self_us"][1], 0);
  const Result simt = program.run(2, {"bench", "--device", "simt"});
  expect_facts(simt.err, {"the device is simt"});
  program.run(2, {"bench", "--batch", "60001"});
}

}  // namespace
}  // namespace sinter::test
