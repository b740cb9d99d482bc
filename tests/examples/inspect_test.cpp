// `mnist inspect` as a user would have it; its page in a browser, where one is installed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/examples/browser.h"
#include "tests/test_util.h"

namespace sinter::test {
namespace {

using Json = nlohmann::json;

const Words kInspectSmall = {
    "inspect", "-q", "--data", "synthetic", "--limit", "64", "--threads", "1"};

struct InspectCase {
  const char* name;
  Words words;
};
const InspectCase kInspectCases[] = {{"mlp", {"--device", "cpu", "--hidden", "16"}},
    {"mlp bf16", {"--device", "cpu", "--hidden", "16", "--dtype", "bf16"}},
    {"lenet", {"--device", "cpu", "--model", "lenet", "--batch", "4"}},
    {"lenet bf16", {"--device", "cpu", "--model", "lenet", "--dtype", "bf16", "--batch", "4"}},
    {"geglu", {"--device", "cpu", "--model", "geglu", "--hidden", "16"}},
    {"geglu bf16", {"--device", "cpu", "--model", "geglu", "--hidden", "16", "--dtype", "bf16"}}};
const InspectCase kInspectOnSimt[] = {
    {"mlp", {"--device", "simt", "--hidden", "16", "--batch", "2"}},
    {"mlp bf16", {"--device", "simt", "--hidden", "16", "--batch", "2", "--dtype", "bf16"}},
    {"geglu", {"--device", "simt", "--model", "geglu", "--hidden", "8", "--batch", "2"}},
    {"geglu bf16", {"--device", "simt", "--model", "geglu", "--hidden", "8", "--batch", "2",
                       "--dtype", "bf16"}},
    {"lenet", {"--device", "simt", "--model", "lenet", "--batch", "1"}},
    {"lenet bf16", {"--device", "simt", "--model", "lenet", "--batch", "1", "--dtype", "bf16"}}};

// A page, in windows of these widths as well, and the walk in text.
void expect_opened(const InspectCase& c, const std::vector<int>& widths = {}) {
  SCOPED_TRACE(c.name);
  const Program program;
  expect_facts(program.run(0, kInspectSmall + c.words).out, {"step.html: open it in a browser"});
  const std::string folder = program.folder(), text = text_of(folder + "/step.html");
  EXPECT_LE(text.size(), size_t{3} << 20);
  const Result walk = program.run(0, kInspectSmall + c.words + Words{"--text"});
  expect_facts(walk.out, {"eager: ", "fused: ", "formula ", "in      ", "when the loss is known"});
  for (const int width : widths) {
    const test::Opened opened = open_page(folder, "step.html", "step_page.js", width);
    expect_facts(opened.dom, {"data-selfcheck=\"ok: ops ", "data-test=\"as the data say\""});
    EXPECT_FALSE(opened.said_something()) << opened.log;
  }
}

TEST(Inspect, OpensEachModel) {
  for (const InspectCase& c : kInspectCases) expect_opened(c);
}
TEST(Inspect, OpensEachModelOnSimt) {
  for (const InspectCase& c : kInspectOnSimt) expect_opened(c);
}
TEST(Inspect, ThePageIsWalkedThroughByKeys) {
  if (browser().empty()) GTEST_SKIP() << "no chromium";
  expect_opened(kInspectCases[0], {420, 768, 1280, 3840});
  for (const int i : {2, 4}) expect_opened(kInspectCases[i], {420});
}

// The page's switches, for all rules, none, and one or two of them.
TEST(Inspect, SwitchesCountWhatCompareCounts) {
  for (const int i : {0, 2, 4}) {
    if (test::kSanitized && i > 0) break;  // the same code, for a minute
    SCOPED_TRACE(kInspectCases[i].name);
    const Words words = kInspectSmall + kInspectCases[i].words + Words{"--batch", "4", "--json"};
    const Program program;
    const Json switches = Json::parse(program.run(words).out)["switches"];
    const size_t rules = switches["names"].size(), all = (size_t{1} << rules) - 1;
    for (const size_t off : {size_t{0}, all, size_t{1}, size_t{1} << (rules - 1), size_t{3}}) {
      std::string set = switches["set"];
      for (size_t r = 0; r < rules; ++r) {
        if (off >> r & 1) set += ",-" + switches["names"][r].get<std::string>();
      }
      SCOPED_TRACE(set);
      Words compare = words + Words{"--rules", set, "--rounds", "1", "--steps", "1"};
      compare[0] = "compare";
      const Json counted = Json::parse(program.run(compare).out);
      const Json opened = Json::parse(program.run(words + Words{"--rules", set}).out);
      const Json& wanted = switches["counts"][all & ~off];
      EXPECT_EQ(wanted[0], counted["launches"]["fused"]);
      EXPECT_EQ(wanted[1], counted["bytes"]["fused"]);
      EXPECT_EQ(wanted[2], opened["steps"][1]["arena_bytes"]);
    }
  }
}

TEST(Inspect, JsonIsTheWalkAndNoPageIsWrittenOverUnasked) {
  const Program program;
  const Words words = kInspectSmall + kInspectCases[0].words;
  const Json walk = json_of(program, words);
  EXPECT_EQ(walk["schema"], "sinter.inspect/1");
  EXPECT_EQ(walk["steps"][0]["mode"], "eager");
  EXPECT_GT(walk["steps"][0]["launches"], walk["steps"][1]["launches"]);
  EXPECT_FALSE(std::filesystem::exists(program.folder() / "step.html"));
  program.run(0, words);
  expect_facts(program.run(2, words).err, {"-o: a file is there: step.html"});
  program.run(0, words + Words{"--force"});
}

}  // namespace
}  // namespace sinter::test
