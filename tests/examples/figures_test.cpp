// The figures that the programs print, as a reader with a calculator finds them: factors are the
// quotients of the times beside them, in text, JSON and on the page; and a profile is the same
// in all its forms.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/parallel.h"
#include "profiler/stats.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using Json = nlohmann::json;

std::string printed(const Json& us) { return profiler::time_text(us.get<double>()); }

// Every "A -> B us = Fx [L,H]" and every row "A -> B .. Fx [L,H]": F is A / B, and within [L,H].
// Returns how many factors there are.
int check_factors(const std::string& text) {
  static const std::regex line(
      R"(([\d.]+) -> +([\d.]+)(?: us| ms)?(?: = |, |  +[\d.]+ -> +[\d.]+  )([\d.]+)x \[([\d.]+),([\d.]+)\])");
  int found = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at, ++found) {
    const std::smatch& m = *at;
    const size_t digits = m.length(3) - m.str(3).find('.') - 1;
    EXPECT_EQ(fmt::format("{:.{}f}", std::stod(m[1]) / std::stod(m[2]), digits), m[3]) << m[0];
    EXPECT_LE(std::stod(m[4]), std::stod(m[3])) << m[0];
    EXPECT_GE(std::stod(m[5]), std::stod(m[3])) << m[0];
    EXPECT_TRUE(std::stod(m[4]) > 1 || std::stod(m[5]) < 1) << m[0];
  }
  return found;
}

// All "Nx [" of the text.
int count_factors(const std::string& text) {
  static const std::regex factor(R"([\d.]+x \[)");
  return int(std::distance(std::sregex_iterator(text.begin(), text.end(), factor), {}));
}

// On a busy machine a run may have no factor to look at; then another has, or this is no test, and
// says so. `factors` runs a program and returns how many there were.
template <class F> void expect_factors(F&& factors) {
  int found = 0;
  for (int run = 0; run < 6 && found == 0; ++run) found = factors();
  if (found == 0) GTEST_SKIP() << "six runs without a factor: nothing was compared";
}

// The JSON of a comparison, the text file and the page that the same run wrote. Returns how many
// factors there are.
int check_comparison(const Json& json, const std::string& text, const Json& page) {
  const int factors = check_factors(text);
  EXPECT_EQ(factors, count_factors(text)) << text;
  const std::string times = printed(json["eager_us"]) + " -> " + printed(json["fused_us"]) + " us";
  expect_facts(text, {"\nstep " + times});
  EXPECT_EQ(page["headline"].get<std::string>().find(times), 0u) << page["headline"];
  expect_facts(text, {"\nstep " + page["headline"].get<std::string>() + "\n"});
  if (!json["ratio"]["value"].is_null()) {
    EXPECT_EQ(json["ratio"]["value"].get<double>(),
        json["eager_us"].get<double>() / json["fused_us"].get<double>());
  }

  double eager = 0, fused = 0;
  EXPECT_EQ(json["table"].size(), page["rows"].size());
  for (size_t i = 0; i < json["table"].size(); ++i) {
    const Json &row = json["table"][i], &drawn = page["rows"][i];
    const Json &a = row["self_us"][0], &b = row["self_us"][1];
    EXPECT_EQ(row, drawn);
    expect_facts(text,
        {printed(a) + " -> " + printed(b) + "  ", "  " + drawn["shown"].get<std::string>() + "\n"});
    if (!row["ratio"]["value"].is_null()) {
      EXPECT_EQ(row["ratio"]["value"].get<double>(), a.get<double>() / b.get<double>());
    }
    eager += a.get<double>();
    fused += b.get<double>();
  }
  expect_facts(text, {profiler::time_text(eager) + " -> " + profiler::time_text(fused) + "  "});
  return factors;
}

TEST(Figures, AFactorIsTheQuotientOfTheTimesBesideIt) {
  const Words few{"--threads", "1", "--rounds", "9", "--steps", "4", "--warmup", "1", "--json",
      "--profile=table,html", "-o", "c", "--force"};
  const std::pair<const char*, Words> programs[] = {
      {"mnist", {"compare", "--data", "synthetic", "--batch", "1", "--hidden", "16,16"}},
      {"geglu", {"--batch", "1", "--seq", "8", "--dim", "16", "--hidden", "24"}}};
  Program program;
  for (const auto& [name, words] : programs) {
    program.name = name;
    expect_factors([&] {
      const Result r = program.run(0, words + few);
      const Json page = Json::parse(data_of(text_of(program.folder() / "c.html")));
      return check_comparison(
          Json::parse(r.out), text_of(program.folder() / "c.txt"), page["comparison"]);
    });
  }
}

TEST(Figures, ARowOfBenchIsTheQuotientOfItsTimes) {
  expect_factors([] {
    const Result r = Program().run(0, {"bench", "--device", "cpu", "--threads", "1", "--batch",
                                          "1,8", "--hidden", "8", "--json"});
    const Json rows = Json::parse(r.out)["rows"];
    EXPECT_EQ(rows.size(), 2U);
    int factors = 0;
    for (const Json& row : rows) {
      if (row["ratio"]["value"].is_null()) continue;
      ++factors;
      EXPECT_EQ(row["ratio"]["value"].get<double>(),
          row["self_us"][0].get<double>() / row["self_us"][1].get<double>());
      const std::string shown = row["shown"];
      EXPECT_TRUE(!shown.ends_with(']') || has(r.err, ": " + shown + ", 1 thread"))
          << shown << r.err;
    }
    return factors;
  });
}

// The cells of a line of the table, by the titles above it: columns are apart by two spaces, and
// what is empty stands last.
std::map<std::string, std::string> cells_of(
    const std::vector<std::string>& titles, const std::string& line) {
  static const std::regex gap("  +");
  const std::string text = line.substr(line.find_first_not_of(' '));
  std::map<std::string, std::string> out;
  size_t i = 0;
  for (std::sregex_token_iterator at(text.begin(), text.end(), gap, -1), end;
       at != end && i < titles.size(); ++at, ++i)
    out[titles[i]] = *at;
  return out;
}

// The rows of the table, the first block.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& table) {
  std::vector<std::map<std::string, std::string>> rows;
  std::vector<std::string> titles;
  for (const std::string& line : lines_of(table)) {
    if (line.starts_with("ops ")) break;
    if (!titles.empty()) rows.push_back(cells_of(titles, line));
    if (!has(line, "Self%")) continue;
    static const std::regex title(R"(\S+( \S+)?)");
    for (std::sregex_iterator at(line.begin(), line.end(), title), end; at != end; ++at)
      titles.push_back(at->str());
  }
  return rows;
}

std::string no_dash(const std::string& text) { return text == "-" ? "" : text; }

TEST(Figures, AProfileIsTheSameInAllItsForms) {
  const Program program;
  const Result r = program.run(
      0, {"train", "--data", "synthetic", "--limit", "512", "--hidden", "32,16", "--steps", "40",
             "--batch-size", "16", "--threads", "1", "--device", "cpu", "--out", "run", "--val",
             "0", "--profile=table,json,html", "--rows", "-1", "--columns", "CPU total,Flags"});
  const auto text = [&](const char* name) { return text_of(program.folder() / "run" / name); };
  expect_facts(r.err, {"files   run/profile.txt, run/profile.html, run/profile.json\n"});
  const Json json = Json::parse(text("profile.json"));
  EXPECT_EQ(Json::parse(data_of(text("profile.html")))["profiles"][0], json);
  const std::string table = text("profile.txt"), advice = json["verdict"]["advice"],
                    evidence = json["verdict"]["evidence"];
  const std::string prose = std::regex_replace(table, std::regex("\n  (?=\\S)"), " ");
  expect_facts(prose, {evidence + (advice.empty() ? "" : " Do: " + advice + ".") + "\n"});

  std::map<std::string, Json> in_json;
  for (const Json& row : json["rows"]) {
    if (row["in_table"]) in_json[row["name"]] = row;
  }
  EXPECT_TRUE(in_json.contains("gather_batch"));
  const double steps = double(json["steps"].size());
  const auto us = [steps](const Json& ns) {
    return fmt::format("{:.1f}", ns.get<double>() / steps / 1e3);
  };
  const auto rows = rows_of(table);
  EXPECT_EQ(rows.size(), in_json.size());
  double shares = 0, ops_us = 0;
  for (auto row : rows) {
    const std::string name = row["Name"];
    ASSERT_TRUE(in_json.contains(name)) << name << "\n" << table;
    const Json& wanted = in_json[name];
    // What fetches the batch is no op: it has no share.
    const bool is_op = wanted["kind"] == "op";
    EXPECT_EQ(wanted["share"].is_number(), is_op) << name;
    const double share = is_op ? wanted["share"].get<double>() : 0;
    EXPECT_EQ(row["Self%"], is_op ? fmt::format("{:.1f}", 100 * share) : "-") << name;
    EXPECT_EQ(row["Self CPU"], us(wanted["typical_ns"]) + "us") << name;
    EXPECT_EQ(row["CPU total"], us(wanted["typical_total_ns"]) + "us") << name;
    EXPECT_EQ(no_dash(row["Verdict"]), is_op ? wanted["verdict"] : wanted["kind"]) << name;
    EXPECT_EQ(row["Flags"], wanted["flags"].get<std::string>()) << name;
    EXPECT_GE(wanted["typical_total_ns"], wanted["typical_ns"]) << name;
    shares += share;
    ops_us += is_op ? std::stod(row["Self CPU"]) : 0;
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_EQ(rows.back().at("Name"), "gather_batch");
  // Rows are rounded to 0.1 us, and there are fewer than 25 of them.
  std::smatch ops;
  ASSERT_TRUE(std::regex_search(table, ops, std::regex("\nops ([0-9.]+) "))) << table;
  EXPECT_NEAR(ops_us, std::stod(ops[1]), 0.05 * double(rows.size() + 1));

  // The page as it is drawn.
  if (std::system("command -v node >/dev/null 2>&1") != 0) GTEST_SKIP() << "no node";
  const std::string said = (program.folder() / "said").string();
  const std::string command = "node " SINTER_SOURCE_DIR "/tests/profiler/read_page.js " +
                              (program.folder() / "run/profile.html").string() + " rows >" + said;
  ASSERT_EQ(std::system(command.c_str()), 0);
  const Json drawn = Json::parse(text_of(said));
  ASSERT_EQ(drawn.size(), 2 * (rows.size() + 1)) << "and a table of their memory";
  for (size_t i = 1; i <= rows.size(); ++i) {
    std::map<std::string, std::string> page;
    for (size_t c = 0; c < drawn[i].size(); ++c) {
      std::string title = drawn[0][c];
      title = title.substr(0, title.find(" \u25be"));
      page[title] = drawn[i][c];
    }
    auto row =
        *std::ranges::find_if(rows, [&](const auto& r) { return r.at("Name") == page["Name"]; });
    for (const auto& [title, cell] : row) {  // a column that no row knows is not drawn
      if (title == "Rate") continue;
      EXPECT_EQ(no_dash(page[title]), no_dash(cell)) << page["Name"] << " " << title;
    }
  }
  EXPECT_EQ(drawn[rows.size() + 1][1], "Alloc kB");
  for (size_t i = rows.size() + 2; i < drawn.size(); ++i) {
    const Json& memory = in_json.at(drawn[i][0])["memory"];
    const double kB = memory["allocated"].get<double>() / steps / 1e3;
    EXPECT_EQ(drawn[i][1], fmt::format("{:.{}f}", kB, kB < 100 ? 1 : 0));
    EXPECT_EQ(drawn[i][3], fmt::format("{:.1f}", memory["peak"].get<double>() / 1e3));
  }
}

// The emulator's times mean nothing, so nothing is said of how profiling changes them.
TEST(Figures, OnTheEmulatorSimtThereIsNoDistortion) {
  const Program program;
  const Result r =
      program.run(0, {"train", "--data", "synthetic", "--device", "simt", "--limit", "64",
                         "--batch-size", "8", "--hidden", "8", "--val", "0", "--steps", "7",
                         "--profile=table,json", "--profile-steps", "0:1:2", "--out", "run"});
  expect_facts(r.out, {"times are the emulator's and mean nothing"});
  for (const char* word : {"distortion", "clean median"}) EXPECT_FALSE(has(r.out, word)) << r.out;
  EXPECT_EQ(Json::parse(text_of(program.folder() / "run/profile.json"))["clean_us"], Json::array());
}

TEST(Figures, OnTheEmulatorSimtAComparisonSpeaksOfNoTimes) {
  const Result r = Program().run(0, {"compare", "--data", "synthetic", "--device", "simt",
                                        "--batch", "2", "--hidden", "8", "--threads", "1"});
  expect_facts(
      r.out, {"\nstep     not timed on simt\n", "\nnext     what was fused and why: --explain\n"});
  for (const char* word : {"kernels' times", "gain ", "limit "}) EXPECT_FALSE(has(r.out, word));
}

std::string match_of(const std::string& text, const char* pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match.str(1) : "not there: " + text;
}

// Without --threads the first of them tries, and all have what it chose, in every mode: it stands
// in the line of the time and in the configuration, and a resumed run keeps its own.
TEST(Figures, TheThreadsOfAModelAndABatchAreChosenOnce) {
  if (available_cores() == 1) GTEST_SKIP() << "one core";
  Program program;
  program.environment = {"XDG_CACHE_HOME=" + (program.folder() / "cache").string()};
  const Words small{"--data", "synthetic", "--batch", "2", "--hidden", "8,8"};
  const auto train = [&](const char* out, const Words& more = {}) {
    return program.run(
        0, Words{"train", "--limit", "64", "--val", "0", "--epochs", "1", "--out", out} + small +
               more);
  };
  const Result first = train("a");
  const std::string n = match_of(first.err, R"((\d+) threads? \(tried 1: .*/step, 2: )");
  const char* time = R"(time    .* of training, 32 steps, [0-9.]+ us/step, (\d+) threads?\n)";
  EXPECT_EQ(match_of(first.out, time), n);
  EXPECT_EQ(match_of(text_of(program.folder() / "a/config.toml"), R"(\nthreads = (\d+)\n)"), n);

  const char* kept = R"((\d+) threads? \(kept\))";
  EXPECT_EQ(match_of(train("b", {"--mode", "fused"}).err, kept), n);
  for (const Words& words : {Words{"compare", "--rounds", "1", "--steps", "1"} + small,
           Words{"inspect", "--text"} + small,
           Words{"bench", "--batch", "2", "--hidden", "8", "--device", "cpu"}}) {
    EXPECT_EQ(match_of(program.run(0, words).err, kept), n) << words[0];
  }
  // Another batch, type, or model is another work.
  for (const Words& other : {Words{"--batch", "4"}, {"--dtype", "bf16"}, {"--act", "gelu"}})
    expect_facts(train("c", other + Words{"--force"}).err, {" (tried 1: "});
  expect_facts(train("d", {"--threads", "1"}).err, {", 1 thread   f32"});
  const std::string more = n == "1" ? "2" : "1";
  train("e", {"--threads", more});
  expect_facts(program.run(0, {"train", "--resume", "e", "--epochs", "2"}).err,
      {more == "1" ? ", 1 thread   f32" : ", " + more + " threads   f32"});

  program.run({"calibrate"});  // which refuses a busy machine, and forgets all the same
  expect_facts(train("f").err, {" (tried 1: "});

  Program geglu;
  geglu.name = "geglu";
  geglu.environment = program.environment;
  const Words words{"--batch", "1", "--seq", "8", "--dim", "16", "--hidden", "24", "--rounds", "1",
      "--steps", "1"};
  expect_facts(geglu.run(words).err, {" (tried 1: "});
  expect_facts(geglu.run(words).err, {" (kept)"});
}

// The line speaks of the row with the figures that stand beside it in the table above.
TEST(Figures, LimitSaysWhatTheTableSaysOfTheRow) {
  const Result r = Program().run(
      0, {"compare", "--data", "synthetic", "--threads", "1", "--batch", "1", "--hidden", "64,64",
             "--rounds", "7", "--steps", "6", "--profile", "--rows", "-1", "--columns", "%roof"});
  static const std::regex busy("\nstep [^\n]*machine busy");
  if (std::regex_search(r.out, busy)) {
    for (const char* line : {"\nlimit ", "x ["}) EXPECT_FALSE(has(r.out, line)) << r.out;
    return;
  }
  static const std::regex limit(
      R"(\nlimit    (\w+)(?: x\d+)?: \d+ % of the fused rows, (\d+) % of the (copy|GEMM) roof\n)");
  std::smatch said;
  ASSERT_TRUE(std::regex_search(r.out, said, limit)) << r.out;
  const auto rows = rows_of(r.out.substr(r.out.find("CPU fused")));
  const auto row =
      std::ranges::find_if(rows, [&](const auto& row) { return row.at("Name") == said[1]; });
  ASSERT_NE(row, rows.end()) << r.out;
  EXPECT_EQ(row->at("%roof"), said[2]) << r.out;
}

}  // namespace
}  // namespace sinter::test
