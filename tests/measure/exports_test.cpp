#include "measure/exports.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "profiler/kernel_name.h"
#include "tests/profiler/reports.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

using Json = nlohmann::json;
using profiler::LaunchRecord, profiler::Report, profiler::advised_report, profiler::cpu_report,
    profiler::device_report;
using test::text_of;

const profiler::RunFacts kRun{"mlp 784-256-10 relu, adam", "mnist train", "sinter test", "1", 64};

struct Files : testing::Test {
  test::TempDir dir;
  std::string folder = dir.path();
  // What the page says, drawn in a DOM of our own: a browser is seldom there.
  std::string drawn(const std::string& page) const {
    const std::string file = dir.write("page.html", page), said = dir.file("said");
    const std::string script = SINTER_SOURCE_DIR "/tests/profiler/read_page.js";
    std::system(str("node ", script, " ", file, " >", said, " 2>&1").c_str());
    return text_of(said);
  }
};

std::string refusal(const std::function<void()>& f) {
  return test::message_of(f, Error::Kind::usage);
}

TEST_F(Files, AreWrittenAsNamedAndNotOverOthers) {
  const Exports one{folder + "/p", parse_formats("table,json,trace,stacks,html", "x")};
  const Exports two{folder + "/q", {"json", "html"}, true};
  one.check(false);
  const Report report = cpu_report();
  one.write({&report, 1}, kRun, "a table");
  EXPECT_EQ(text_of(folder + "/p.txt"), "a table");
  const std::vector<Report> both = {report, device_report()};
  two.write(both, kRun, "");
  for (const Exports* files : {&one, &two}) {
    for (const std::string& file : files->files())
      EXPECT_TRUE(std::filesystem::is_regular_file(file)) << file;
    test::expect_facts(refusal([&] { files->check(false); }), {"a file is there"});
    EXPECT_EQ(refusal([&] { files->check(true); }), "");
  }
  EXPECT_EQ(two.files(), (std::vector<std::string>{folder + "/q.html", folder + "/q_eager.json",
                             folder + "/q_fused.json"}));
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(folder), {}), 8);  // 5 and 3, no temporary
  test::expect_facts(refusal([&] {
    Exports{folder + "/none/p", {"json"}}.check(true);
  }),
      {"no such folder"});
  std::filesystem::create_directory(folder + "/d.json");
  test::expect_facts(refusal([&] {
    Exports{folder + "/d", {"json"}}.check(true);
  }),
      {"a folder is there"});
}

TEST(Formats, AreAListOfKnownWords) {
  EXPECT_EQ(parse_formats("json,table", "x"), (std::vector<std::string>{"json", "table"}));
  EXPECT_EQ(refusal([] { parse_formats("jsn", "usage: --profile"); }),
      "usage: --profile: unknown format: jsn; nearest is json; allowed table, json, "
      "trace, stacks, html");
  test::expect_facts(refusal([] { parse_formats("json,,html", "x"); }), {"empty item"});
  test::expect_facts(refusal([] { parse_formats("json,json", "x"); }), {"json twice"});
}

// Every view.
TEST_F(Files, ThePageDrawsAllItHolds) {
  if (std::system("command -v node >/dev/null 2>&1") != 0) GTEST_SKIP() << "no node";
  const Report reports[] = {cpu_report(), device_report()};
  const PageComparison comparison{
      .rows = {{.fused = "linear_act", .fused_launches = 1, .eager_us = {2}, .fused_us = {1}}}};
  EXPECT_EQ(drawn(html_report(
                {.title = "t", .reports = reports, .run = kRun, .comparison = &comparison})),
      "ok: rows 7, dots and rows left out 7, slices 14, rows compared 1\n");
}

// So many values are no argument list for JavaScript.
TEST_F(Files, ThePageOfALongRunIsDrawn) {
  if (std::system("command -v node >/dev/null 2>&1") != 0) GTEST_SKIP() << "no node";
  Report report = cpu_report();
  const auto step = report.steps.back();
  const int steps = test::kSanitized ? 200 : 150'000;  // the page's script is in question
  for (int n = 0; n < steps; ++n) report.steps.push_back(step);
  const std::string said = drawn(html_report({.title = "t", .reports = {&report, 1}, .run = kRun}));
  EXPECT_TRUE(said.starts_with("ok: ")) << said;
}

TEST(Html, HoldsItsDataAndAsksForNothing) {
  const Report report = cpu_report();
  const std::string page =
      html_report({.title = "t", .command = "c", .reports = {&report, 1}, .run = kRun});
  test::expect_facts(page, {"default-src 'none'"});
  EXPECT_EQ(page.find("http://www.w3.org/2000/svg"), page.find("http:"));  // a name, not an address
  EXPECT_EQ(page.find("https:"), std::string::npos);
  const std::string data = test::data_of(page);
  EXPECT_EQ(data.find("<!--"), std::string::npos);
  const Json json = Json::parse(data);
  EXPECT_EQ(json["profiles"][0]["rows"].size(), 4u);
  test::expect_facts(json["folded"][0].get<std::string>(), {"step;Linear;linear"});
}

// Advice, too, is the table's.
TEST(Html, HasTheAdviceOfTheProfile) {
  const Report report = advised_report();
  const std::string advice = report.profile().verdict.advice;
  ASSERT_NE(advice, "");
  test::expect_facts(html_report({.title = "t", .reports = {&report, 1}, .run = kRun}),
      {"\"advice\":\"" + advice + "\""});
}

// By the program: the page only shows what it is given.
TEST(Html, ReadsKernelsNamesAloud) {
  Report report = device_report();
  const std::string name = "ampere_sgemm_128x64_tn";
  for (LaunchRecord& launch : report.traces[0].launches) {
    if (launch.kernel == "gemm_128x64") launch.kernel = profiler::intern(name);
  }
  const std::string page = html_report({.title = "t", .reports = {&report, 1}, .run = kRun});
  const Json data = Json::parse(test::data_of(page));
  EXPECT_EQ(
      data["names"], (Json{{name, profiler::read_kernel_name(name)->text()},
                         {"Memcpy HtoD", profiler::read_kernel_name("Memcpy HtoD")->text()}}));
  int slices = 0;
  for (const Json& slice : data["timelines"][0]["slices"]) slices += slice["kernel"] == name;
  EXPECT_EQ(slices, 2) << "linear and matmul";
  EXPECT_EQ(data["profiles"][0]["rows"][0]["kernels"][0]["name"], name);
}

}  // namespace
}  // namespace sinter::measure
