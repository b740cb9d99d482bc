// A step, opened: what the walk says of each op is what the graph says, the walk computes what the
// step computes, and it changes nothing.
#include "measure/inspect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

using Json = nlohmann::json;

struct Opened {
  TrainOptions options;
  Training training;
  capture::Step step;
  Tensors in;
  capture::RuleSet rules;
  Json json;

  explicit Opened(const TrainOptions& o, const char* rule_set = "all")
      : options(o),
        training(o),
        step(training.function(), training.step_options(rule_set)),
        in(batch_of(o, 6, 3)),
        rules(rule_set) {
    for (int i = 0; i < 2; ++i) step(in);
    json = Json::parse(opened().json());
  }
  Inspection opened() const {
    return Inspection(*step.captured(), in, {.rules = rules, .passes = 2});
  }
};

// Every figure of a step is its graph's.
void expect_of_graph(
    const Json& json, const capture::Graph& graph, const capture::MemoryPlan& plan) {
  EXPECT_EQ(json["launches"], graph.launches());
  EXPECT_EQ(json["arena_bytes"], plan.bytes);
  EXPECT_EQ(json["unshared_bytes"], plan.unshared_bytes);
  ASSERT_EQ(json["ops"].size(), graph.nodes.size());
  Cost sum;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Json& op = json["ops"][n];
    const capture::Node& node = graph.nodes[n];
    const Cost cost = graph.cost(node);
    sum += cost;
    SCOPED_TRACE(node.text());
    EXPECT_EQ(op["op"], std::string(node.text()));
    const Label* const label = find_label(node.text());
    EXPECT_EQ(op["formula"], (label ? *label : label_of(*node.op)).formula.text);
    EXPECT_EQ(op["place"], node.op->formula.place());
    EXPECT_EQ(op["flops"], cost.flops);
    EXPECT_EQ(op["read"], cost.bytes_read);
    EXPECT_EQ(op["written"], cost.bytes_written);
    EXPECT_EQ(op["origin"].get<std::vector<int>>(), node.origin);
    EXPECT_EQ(op["module"], node.module);
    ASSERT_GE(op["out"].size(), node.out.size());
    for (size_t o = 0; o < node.out.size(); ++o) {
      const Json& operand = op["out"][op["out"].size() - node.out.size() + o];
      const capture::Value& value = graph.values[node.out[o]];
      EXPECT_EQ(operand["type"], str(name_of(value.dtype), value.shape.str()));
      EXPECT_EQ(operand["buffer"], value.buffer);
      EXPECT_EQ(json["buffers"][value.buffer]["offset"], plan.offset[value.buffer]);
    }
  }
  EXPECT_EQ(json["flops"], sum.flops);
  EXPECT_EQ(json["bytes"], sum.bytes());
  for (size_t b = 0; b < graph.buffers.size(); ++b)
    EXPECT_EQ(json["buffers"][b]["bytes"], graph.buffers[b].bytes);
}

void expect_sound(const Opened& opened) {
  const capture::Captured& captured = *opened.step.captured();
  const Json& steps = opened.json["steps"];
  expect_of_graph(steps[0], captured.recorded, capture::plan_memory(captured.recorded));
  expect_of_graph(steps[1], captured.fused.graph, capture::plan_memory(captured.fused.graph));
  EXPECT_EQ(opened.json["misses"].size(), captured.fused.misses.size());
  for (const Json& step : steps) {
    for (const Json& arc : step["arcs"]) {
      EXPECT_LT(arc["from"], arc["to"]);
      EXPECT_NE(step["buffers"][arc["buffer"].get<size_t>()]["kind"], "kept");
    }
    for (const Json& op : step["ops"]) {
      EXPECT_EQ(op["ns"].is_null(), opened.options.device.type == Device::Type::simt);
      EXPECT_EQ(op["kernels"].empty(), opened.options.device == kCpu);
    }
  }
}

// From -> to, by the eager ops' names.
std::multiset<std::string> arcs_of(const Json& step) {
  std::multiset<std::string> out;
  const auto name = [&](const Json& n) {
    return step["ops"][n.get<size_t>()]["op"].get<std::string>();
  };
  for (const Json& arc : step["arcs"]) out.insert(name(arc["from"]) + " > " + name(arc["to"]));
  return out;
}

TEST(Inspect, SaysWhatTheGraphsSay) {
  const Opened opened({.sizes = {20, 16, 10}});
  expect_sound(opened);
  // What the plain ops save: inputs of the products, what relu gives, the log-probabilities (for
  // the loss alone the labels).
  EXPECT_EQ(arcs_of(opened.json["steps"][0]),
      (std::multiset<std::string>{"linear > matmul", "linear > matmul",
          "log_softmax > log_softmax_backward", "nll > nll_backward", "relu > relu_backward"}));
  EXPECT_LT(opened.json["steps"][1]["arcs"].size(), 5u);
}

TEST(Inspect, WorksForTheGatesOfBf16AndForOtherOptimizers) {
  expect_sound(Opened({.sizes = {16, 16, 8}, .dtype = DType::bf16}));
  expect_sound(Opened({.sizes = {12, 9, 4}, .activation = "gelu", .optimizer = "sgd", .clip = 1}));
  expect_sound(Opened({.sizes = {12, 9, 4}, .optimizer = "adamw", .dropout = 0.5}, "none"));
}

TEST(Inspect, SimtNamesItsKernelsAndTheirShapes) {
  const Opened opened({.sizes = {20, 16, 10}, .device = kSimt});
  expect_sound(opened);
  const Json kernel = opened.json["steps"][0]["ops"][0]["kernels"][0];
  EXPECT_FALSE(kernel["name"].get<std::string>().empty());
  EXPECT_GE(kernel["block"], 32);
  EXPECT_EQ(kernel["grid"].size(), 3u);
}

// It steps a copy, to the values that the step itself reaches next, and leaves the model alone.
TEST(Inspect, ChangesNothingAndKnowsWhatTheStepDoes) {
  Opened opened({.sizes = {20, 16, 10}});
  const nn::NamedTensors parameters = opened.training.net.named_parameters();
  std::vector<std::vector<double>> before;
  for (const auto& [name, t] : parameters) before.push_back(t.to_vector<double>());
  const Json json = Json::parse(opened.opened().json());
  for (size_t p = 0; p < parameters.size(); ++p)
    EXPECT_EQ(parameters[p].tensor.to_vector<double>(), before[p]);
  const double loss = opened.step(opened.in)[0].to_vector<double>()[0];
  ASSERT_EQ(json["parameters"].size(), parameters.size());
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto changed = test::closeness(parameters[p].tensor, before[p], {.absolute = 1});
    EXPECT_EQ(json["parameters"][p]["name"], parameters[p].name);
    EXPECT_GT(changed.error, 0);
    // Fused and plain updates may round differently.
    EXPECT_NEAR(json["parameters"][p]["most"].get<double>(), changed.error, 1e-6);
  }
  for (const Json& step : json["steps"]) {
    bool found = false;
    for (const Json& op : step["ops"]) {
      if (op["part"].get<std::string>().find("loss") == std::string::npos) continue;
      const Json& picture = step["pictures"][op["out"][0]["picture"].get<size_t>()];
      if (picture["values"].size() != 6) continue;
      found = true;
      EXPECT_NEAR(picture["values"][0].get<double>(), loss, 1e-5);
    }
    EXPECT_TRUE(found) << step["mode"];
  }
}

TEST(Inspect, TheTextWalksThroughEveryOp) {
  const Opened opened({.sizes = {20, 16, 10}});
  const std::string text = opened.opened().text();
  for (const Json& step : opened.json["steps"]) {
    for (const Json& op : step["ops"]) {
      test::expect_facts(
          text, {op["formula"].get<std::string>().substr(0, 60), op["place"].get<std::string>()});
    }
  }
  test::expect_facts(text, {"eager: 17 launches", "when the loss is known", "attrs   trans_a=1"});
  // Each buffer that is kept stands once, whatever number of ops reads it.
  size_t kept = 0, told = 0, arcs = 0;
  for (const Json& step : opened.json["steps"]) {
    std::set<int> buffers;
    for (const Json& arc : step["arcs"]) buffers.insert(arc["buffer"].get<int>());
    kept += buffers.size();
    arcs += step["arcs"].size();
  }
  for (size_t at = 0; (at = text.find("     keeps ", at)) != std::string::npos; ++at) ++told;
  EXPECT_EQ(told, kept);
  EXPECT_LT(kept, arcs) << "one is read by several";
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1)
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
}

// Rules interact, so each choice of them is captured anew, as a program with --rules would.
TEST(Inspect, SwitchesCountWhatAStepOfTheseRulesCounts) {
  const Opened opened({.sizes = {20, 16, 10}, .clip = 1});
  const Json& switches = opened.json["switches"];
  const auto names = switches["names"].get<std::vector<std::string>>();
  ASSERT_GE(names.size(), 4u);
  ASSERT_LE(names.size(), RuleSwitches::kMost);
  ASSERT_EQ(switches["counts"].size(), size_t{1} << names.size());
  std::set<Json> different;
  for (size_t choice = 0; choice < switches["counts"].size(); ++choice) {
    std::string rules = switches["set"];
    for (size_t i = 0; i < names.size(); ++i) {
      if (!(choice >> i & 1)) rules += ",-" + names[i];
    }
    SCOPED_TRACE(rules);
    Training training(opened.options);
    capture::Step step(training.function(), training.step_options(rules.c_str()));
    for (int i = 0; i < 2; ++i) step(opened.in);
    const capture::Graph& graph = step.captured()->fused.graph;
    Cost cost;
    for (const capture::Node& node : graph.nodes) cost += graph.cost(node);
    const Json counts = {graph.launches(), cost.bytes(), step.captured()->executor->plan().bytes};
    EXPECT_EQ(switches["counts"][choice], counts);
    different.insert(counts);
  }
  EXPECT_GT(different.size(), names.size());
  EXPECT_TRUE(Opened({.sizes = {20, 16, 10}}, "none").json["switches"].is_null());
}

TEST(Inspect, ThePageHoldsTheJsonAndAsksForNothing) {
  const Opened opened({.sizes = {20, 16, 10}});
  const Inspection inspection = opened.opened();
  const std::string page = inspection.page();
  EXPECT_EQ(Json::parse(test::data_of(page))["opened"], Json::parse(inspection.json()));
  test::expect_facts(page, {"default-src 'none'"});
  EXPECT_EQ(page.find("https:"), std::string::npos);
}

}  // namespace
}  // namespace sinter::measure
