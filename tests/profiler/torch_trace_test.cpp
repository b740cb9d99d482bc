// PyTorch's own traces as profiles, and beside each other. Those in tests/profiler/torch are of
// make.py there.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/bytes.h"
#include "profiler/join.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

using Json = nlohmann::json;

std::string text_of(const std::string& path) {
  ByteSource source(path);
  const std::vector<uint8_t> bytes = source.read_up_to(kMaxBytes);
  return {bytes.begin(), bytes.end()};
}
std::string torch_file(const std::string& name) {
  return SINTER_SOURCE_DIR "/tests/profiler/torch/" + name;
}
Profile trace(const std::string& name) {
  const std::string file = torch_file(name + ".json.gz");
  return read_profile_or_trace(text_of(file), file);
}
// Two steps of a card's: made up, but in the form of PyTorch's.
const std::string& cuda_trace() {
  static const std::string text = text_of(SINTER_SOURCE_DIR "/tests/fuzz/corpus/trace/cuda");
  return text;
}

const Row& row_of(const Profile& p, const std::string& name) {
  for (const Row& row : p.rows) {
    if (row.name == name) return row;
  }
  throw Error(Error::Kind::internal, "no row " + name);
}

TEST(TorchTrace, SelfTimesAndCallsAreThoseOfKeyAverages) {
  for (const char* name : {"eager", "compiled"}) {
    const Profile p = trace(name);
    EXPECT_EQ(p.steps.size(), 8u) << name;
    EXPECT_TRUE(p.notes.empty()) << p.notes[0];
    std::map<std::string, std::pair<double, int64_t>> ours;  // us, calls
    for (const Row& row : p.rows) {
      ours[row.name].first += double(row.self_ns) / 1e3;
      ours[row.name].second += row.calls;
    }
    const Json said = Json::parse(text_of(torch_file(std::string(name) + ".key_averages.json")));
    size_t found = 0;
    for (const Json& row : said["rows"]) {
      const std::string key = row["name"];
      ASSERT_TRUE(ours.contains(key)) << key;
      ++found;
      EXPECT_NEAR(ours[key].first, row["self_cpu_us"].get<double>(), 0.01 * ours[key].first) << key;
      EXPECT_EQ(ours[key].second, row["count"].get<int64_t>()) << key;
    }
    EXPECT_EQ(found, ours.size());
    EXPECT_GT(found, 20u);
  }
}

// "aten::mm  747.4 -> 461.2": what the table prints is the median of PyTorch's own times in each
// step.
TEST(TorchTrace, TheTableShowsTheTimesOfPyTorch) {
  const std::string text = diff(trace("eager"), trace("compiled"));
  std::map<std::string, double> said[2];
  for (const int side : {0, 1}) {
    const Json rows = Json::parse(text_of(
        torch_file(std::string(side == 0 ? "eager" : "compiled") + ".key_averages.json")))["rows"];
    for (const Json& row : rows)
      said[side][row["name"]] = median(row["in_steps_us"].get<std::vector<double>>());
  }
  size_t compared = 0;
  for (const auto& [name, us] : said[0]) {
    const size_t at = text.find("\n" + name + "  ");  // the row of this op alone
    if (at == std::string::npos) continue;
    std::istringstream line(text.substr(at + 1 + name.size()));
    double before = 0, after = 0;
    std::string arrow;
    line >> before >> arrow >> after;
    EXPECT_NEAR(before, us, 0.01 * us) << name;
    EXPECT_NEAR(after, said[1].at(name), 0.01 * after) << name;
    ++compared;
  }
  EXPECT_GT(compared, 6u);
  test::expect_facts(text, {"\naten::mm  "});
}

TEST(TorchTrace, EachOpOfEitherIsInOneRow) {
  const Profile p[] = {trace("eager"), trace("compiled")};
  for (const bool by_shape : {false, true}) {
    std::vector<int> found[2];
    for (const JoinedRows& rows : join_rows(p[0], p[1], by_shape)) {
      found[0].insert(found[0].end(), rows.a.begin(), rows.a.end());
      found[1].insert(found[1].end(), rows.b.begin(), rows.b.end());
    }
    for (const int side : {0, 1}) {
      std::vector<int> ops;
      for (size_t i = 0; i < p[side].rows.size(); ++i) {
        if (p[side].rows[i].kind == ScopeKind::op) ops.push_back(int(i));
      }
      std::ranges::sort(found[side]);
      EXPECT_EQ(found[side], ops);
    }
  }
}

std::vector<std::string> labels(const Profile& a, const Profile& b, bool by_shape = false) {
  const auto names = [](const Profile& p, const std::vector<int>& rows) {
    std::string out;
    for (const int i : rows) {
      if (out.find(p.rows[i].name) == std::string::npos)
        out += (out.empty() ? "" : "+") + p.rows[i].name;
    }
    return out;
  };
  std::vector<std::string> out;
  for (const JoinedRows& rows : join_rows(a, b, by_shape)) {
    out.push_back((rows.attributed ? "" : "rest: ") + names(a, rows.a) + " | " + names(b, rows.b));
  }
  return out;
}

Profile of_rows(const std::vector<std::pair<std::string, std::string>>& rows) {
  Profile p;
  p.steps.resize(1);
  for (const auto& [name, shapes] : rows) {
    p.rows.push_back({.name = name, .shapes = shapes, .calls = 1, .samples = {1000}});
  }
  return p;
}

TEST(JoinRows, EqualNamesAndShapesArePairs) {
  const Profile a = of_rows({{"mm", "f32[2, 3]"}, {"mm", "f32[4, 3]"}, {"relu", "f32[2, 3]"}}),
                b = of_rows({{"relu", "f32[9]"}, {"mm", "f32[4, 3]"}, {"mm", "f32[2, 3]"}});
  EXPECT_EQ(labels(a, b), (std::vector<std::string>{"mm | mm", "relu | relu"}));
  const std::vector<JoinedRows> by_shape = join_rows(a, b, true);
  ASSERT_EQ(by_shape.size(), 3u);
  EXPECT_EQ(by_shape[0].a, std::vector<int>{0});
  EXPECT_EQ(by_shape[0].b, std::vector<int>{2});
  EXPECT_EQ(by_shape[1].b, std::vector<int>{1});
  EXPECT_EQ(by_shape[2].b, std::vector<int>{0});  // other shapes: by name alone
}

TEST(JoinRows, AFusedKernelJoinsTheOpsInItsName) {
  const Profile eager = of_rows({{"aten::addmm", ""}, {"aten::relu", ""}, {"aten::mul", ""},
                    {"aten::threshold_backward", ""}, {"aten::_log_softmax", ""}, {"aten::t", ""}}),
                compiled =
                    of_rows({{"aten::addmm", ""}, {"cpp_fused_relu_threshold_backward_1", ""},
                        {"graph_0_cpp_fused__log_softmax_nll_loss_forward_2", ""},
                        {"triton_poi_fused_sigmoid_0", ""}, {"Torch-Compiled Region: 0/0", ""}});
  EXPECT_EQ(labels(eager, compiled),
      (std::vector<std::string>{"aten::addmm | aten::addmm",
          "aten::relu+aten::threshold_backward | cpp_fused_relu_threshold_backward_1",
          "aten::_log_softmax | graph_0_cpp_fused__log_softmax_nll_loss_forward_2",
          "rest: aten::mul+aten::t | triton_poi_fused_sigmoid_0+Torch-Compiled Region: 0/0"}));
  EXPECT_EQ(labels(compiled, eager)[1],
      "cpp_fused_relu_threshold_backward_1 | aten::relu+aten::threshold_backward");
  // One kernel that holds a part of an op's work joins it, although that op has a partner.
  EXPECT_EQ(labels(eager, of_rows({{"aten::addmm", ""}, {"cpp_fused_addmm_relu_0", ""}}))[0],
      "aten::addmm+aten::relu | aten::addmm+cpp_fused_addmm_relu_0");
}

TEST(JoinRows, CompiledStandsBesideEager) {
  const std::vector<std::string> rows = labels(trace("eager"), trace("compiled"));
  const auto has = [&rows](const std::string& row) {
    return std::ranges::find(rows, row) != rows.end();
  };
  for (const char* row :
      {"aten::mm | aten::mm", "aten::add_ | aten::add_", "aten::linear+aten::addmm | aten::addmm",
          "aten::relu+aten::clamp_min | graph_0_cpp_fused_relu_0+graph_0_cpp_fused_relu_1"})
    EXPECT_TRUE(has(row)) << row << " in\n" << testing::PrintToString(rows);
  test::expect_facts(rows.back(), {"Torch-Compiled Region: 0/0"});
}

TEST(JoinRows, OursStandBesideTheirsOfTheSameOp) {
  Profile ours =
              of_rows({{"linear", ""}, {"relu", ""}, {"matmul(wgrad)", ""}, {"matmul(dgrad)", ""},
                  {"relu_backward", ""}, {"nll", ""}, {"sgd_update", ""}, {"linear_act", ""}}),
          torch = of_rows({{"aten::linear", ""}, {"aten::addmm", ""}, {"aten::mm", ""},
              {"aten::relu", ""}, {"aten::clamp_min", ""}, {"aten::threshold_backward", ""},
              {"aten::nll_loss_forward", ""}, {"aten::add_", ""}});
  EXPECT_EQ(labels(ours, torch),
      (std::vector<std::string>{"linear | aten::linear+aten::addmm",
          "relu | aten::relu+aten::clamp_min", "matmul(wgrad)+matmul(dgrad) | aten::mm",
          "relu_backward | aten::threshold_backward", "nll | aten::nll_loss_forward",
          "rest: sgd_update+linear_act | aten::add_"}));
  ours.rows.back().made_of = "linear + relu";
  EXPECT_EQ(labels(ours, torch)[0],
      "linear+relu+linear_act | aten::linear+aten::addmm+aten::relu+aten::clamp_min");
}

TEST(TorchTrace, KernelsBelongToTheOpThatLaunchedThem) {
  const Profile p = read_profile_or_trace(cuda_trace(), "F");
  EXPECT_EQ(p.title, "PyTorch CUDA");
  EXPECT_EQ(p.device.str(), "cuda:0");
  ASSERT_EQ(p.steps.size(), 2u);
  EXPECT_EQ(p.steps[0].number, 3);
  EXPECT_EQ(p.steps[1].ns(), 40'500);
  EXPECT_EQ(p.steps[0].launches, 1);
  EXPECT_EQ(p.steps[1].launches, 3);
  EXPECT_EQ(p.steps[1].copies, 1);
  const Row &addmm = row_of(p, "aten::addmm"), &relu = row_of(p, "aten::relu"),
            &graph = row_of(p, "triton_poi_fused_relu_threshold_backward_1");
  // By the runtime's call, whose time is its own.
  EXPECT_EQ(addmm.samples, (std::vector<int64_t>{30'000, 0}));
  EXPECT_EQ(addmm.self_ns, 10'000);
  EXPECT_EQ(addmm.launches, 1);
  EXPECT_EQ(addmm.shapes, "f32[256] f32[64, 784] f32[784, 256]");
  EXPECT_EQ(row_of(p, "aten::linear").self_ns, 5'000);
  EXPECT_EQ(row_of(p, "aten::linear").shapes, "f32[64, 784] f32[256, 784] f32[256]");
  EXPECT_EQ(row_of(p, "cudaLaunchKernel").kind, ScopeKind::runtime);
  // By the op's id alone, in the step of the op, although it ran after that.
  EXPECT_EQ(relu.samples, (std::vector<int64_t>{0, 4'000}));
  EXPECT_EQ(graph.launches, 2);  // of a graph: rows by their own names
  EXPECT_EQ(graph.samples, (std::vector<int64_t>{0, 7'000}));
  for (const Row& row : p.rows) EXPECT_EQ(row.name.find("linear.py"), std::string::npos);
  EXPECT_EQ(p.rows.size(), 7u);
}

TEST(TorchTrace, WithoutStepsIsOneStepAndSaysSo) {
  const Profile p = read_profile_or_trace(
      R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 3}]})",
      "F");
  ASSERT_EQ(p.steps.size(), 1u);
  EXPECT_EQ(p.steps[0].ns(), 3000);
  ASSERT_EQ(p.notes.size(), 1u);
  test::expect_facts(diff(p, p), {"A: no ProfilerStep is marked"});
}

std::string refusal(const std::string& text) {
  const std::string message =
      test::message_of([&] { read_profile_or_trace(text, "F"); }, Error::Kind::data);
  return message.substr(0, message.find('\n'));  // without the hint
}

TEST(TorchTrace, DamageIsNamed) {
  const auto event = [](const std::string& times) {
    return refusal(R"({"traceEvents": [{"ph": "M"}, {"ph": "X", "cat": "cpu_op", )"
                   R"("name": "aten::mm", )" +
                   times + "}]}");
  };
  const std::string no_ops =
      "trace: not one that can be read: F; it has no ops: no event of cat cpu_op or kernel; "
      "1 left out: traceEvents[1], aten::mm: ";
  EXPECT_EQ(event(R"("ts": 1, "dur": 2)"), "");
  EXPECT_EQ(event(R"("ts": 1)"), no_ops + "dur is missing");
  EXPECT_EQ(event(R"("ts": "1", "dur": 2)"), no_ops + "ts is string, wanted a number of us");
  EXPECT_EQ(event(R"("ts": 1, "dur": -2)"), no_ops + "dur is -2, wanted 0 or more");
  test::expect_facts(event(R"("ts": 1e300, "dur": 2)"), {"ts is 1e+300"});
  test::expect_facts(event(R"("ts": 1e999, "dur": 2)"), {"not one that can be read"});
  test::expect_facts(refusal(R"({"traceEvents": []})"), {"it has no ops"});
  test::expect_facts(refusal(R"({"traceEvents": [3]})"), {"not a list of objects"});
  test::expect_facts(refusal(R"({"traceEvents": {"a": {}}})"), {"not a list"});
  test::expect_facts(refusal(cuda_trace().substr(0, 900)), {"cut off"});
  for (const char* neither : {"", "{", "[]", "3", "{\"a\": []}", "\x1f\x8b"})
    test::expect_facts(refusal(neither), {"neither a profile nor a trace: F"});
}

// `times` of each event, in one step.
Profile of_times(const std::vector<std::string>& times) {
  std::string events;
  for (const std::string& one : times)
    events += (events.empty() ? "" : ",") +
              (R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, )" + one + "}");
  return read_profile_or_trace(R"({"traceEvents": [)" + events + "]}", "F");
}

TEST(TorchTrace, WhatCannotBeIsLeftOutCountedAndTold) {
  std::vector<std::string> times(300, R"("ts": 10, "dur": 1)");
  const Profile good = of_times(times);
  EXPECT_TRUE(good.incomplete.empty());
  for (size_t odd = 1; odd <= 6; ++odd) {
    times[odd] = R"("ts": 10, "dur": -1)";
    const Profile p = of_times(times);
    EXPECT_EQ(p.rows[0].calls, int64_t(times.size() - odd));
    test::expect_facts(p.notes.back(),
        {str(odd,
            " of 300 events left out: their times cannot be; traceEvents[1], aten::mm: dur "
            "is -1, wanted 0 or more")});
    // More than one in a hundred: no factor, even where the caller knows that both did the same.
    EXPECT_EQ(p.incomplete.size(), odd > 3);
    EXPECT_EQ(diff(good, p, {.same_work = true}).find("INCOMPLETE") != std::string::npos, odd > 3);
  }
}

// A thread does one thing at a time. Whole us may be two off.
TEST(TorchTrace, EventsThatOverlapAreTold) {
  EXPECT_EQ(of_times({R"("ts": 0, "dur": 10)", R"("ts": 2, "dur": 8)"}).notes.size(), 1u);
  EXPECT_EQ(of_times({R"("ts": 0, "dur": 10)", R"("ts": 5, "dur": 7)"}).notes.size(), 1u);
  const Profile p = of_times({R"("ts": 0, "dur": 10)", R"("ts": 5, "dur": 9)"});
  ASSERT_EQ(p.notes.size(), 2u);
  EXPECT_EQ(p.notes[1], "1 of 2 events overlap others of their thread: that time counts twice");
  EXPECT_EQ(p.incomplete.size(), 1u);
}

TEST(TorchTrace, SumsOfHugeTimesStayNumbers) {
  const Profile p = of_times(std::vector<std::string>(20'000, R"("ts": 0, "dur": 1e12)"));
  EXPECT_GE(p.rows[0].self_ns, 0);
  EXPECT_NE(diff(p, p), "");
  std::vector<std::string> crossing;
  for (int i = 0; i < 20'000; ++i) crossing.push_back(str(R"("ts": )", 3 * i, R"(, "dur": 9e11)"));
  const Profile q = of_times(crossing);
  EXPECT_GE(q.rows[0].self_ns, 0);
}

// A byte changed anywhere, and an end cut off anywhere: a profile or an Error.
TEST(TorchTrace, NoByteMakesItCrash) {
  const std::string good = cuda_trace();
  const Profile other = read_profile_or_trace(good, "F");
  int64_t read = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = "\"9-}[\xff,\0"[at % 8];
    if (!refusal(bad).empty()) continue;
    diff(read_profile_or_trace(bad, "F"), other);
    ++read;
  }
  EXPECT_GT(read, 500);
  EXPECT_LT(read, int64_t(good.size()) - 500);
  for (size_t size = 0; size + 2 < good.size(); size += 17)
    EXPECT_NE(refusal(good.substr(0, size)), "") << size;
}

TEST(TorchTrace, GivesNoFactorUnlessTheCallerKnowsThatBothDidTheSame) {
  const Profile a = trace("eager"), b = trace("compiled");
  const std::string text = diff(a, b);
  test::expect_facts(text, {"no factor: they do not say what was run"});
  EXPECT_EQ(text.find("x ["), std::string::npos) << text;
  EXPECT_EQ(text.find("Launches"), std::string::npos) << text;  // a CPU's trace knows none
  const std::string same = diff(a, b, {.same_work = true});
  EXPECT_EQ(same.find("they do not say"), std::string::npos) << same;
  Profile ours = a;
  ours.workload = "mlp";
  test::expect_facts(diff(ours, b), {"no factor: B does not say what was run"});
  test::expect_facts(diff(b, ours), {"no factor: A does not say what was run"});
}

}  // namespace
}  // namespace sinter::profiler
