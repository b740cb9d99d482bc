#include "capture/explain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/capture/recorded.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

Captured captured(const Graph& recorded, const RuleSet& rules) {
  Captured c;
  c.recorded = recorded;
  c.fused = rewrite(recorded, rules, Device::Type::cpu);
  c.executor = std::make_unique<Executor>(c.fused.graph);
  return c;
}
void expect_line(const std::string& text, const std::string& line) {
  test::expect_facts(("\n" + text), {"\n" + line + "\n"});
}

TEST(Explain, NamesGroupsByTheNumbersOfTheRecordedGraph) {
  const RuleSet all("all");
  const std::string text = explain(captured(SmallMlp().training_graph(), all), all);
  expect_line(text,
      "group 2  linear_act          <- %16 linear, %17 relu     saves 1 launch, 0.2 kB (one [4, 5] "
      "intermediate)");
  expect_line(text,
      "group 5  weight_grad_update  <- %27 matmul, %28 sum_rows, adam_update of 0.weight, "
      "adam_update of 0.bias     "
      "saves 3 launches, 0.4 kB (2 intermediates)");
  EXPECT_TRUE(text.ends_with("\n17 launches -> 6 (rules all)\n")) << text;
  EXPECT_EQ(text.find("measured"), std::string::npos) << "nothing was";
  expect_line(text, "choice   by the cost model: fewer launches and no more bytes are better");
}

TEST(Explain, RulesNoneSavesNothing) {
  const RuleSet none("none");
  const Captured c = captured(SmallMlp().training_graph(), none);
  const MemoryPlan& plan = c.executor->plan();
  EXPECT_EQ(explain(c, none),
      fmt::format("memory   {:.1f} kB in one arena, {:.1f} kB if every buffer had its own\n17 "
                  "launches -> 17 (rules none)\n",
          double(plan.bytes) / 1000, double(plan.unshared_bytes) / 1000));
  EXPECT_EQ(c.executor->launches(), 17u);
}

TEST(Explain, NearMissNamesTheRuleAndTheReader) {
  const SmallMlp mlp;
  Recording recording({mlp.x, mlp.labels});
  const Tensor hidden = relu(linear(mlp.x, mlp.params[0], mlp.params[1])),
               z = linear(hidden, mlp.params[2], mlp.params[3]), kept = exp(log_softmax(detach(z)));
  const Tensor losses = cross_entropy(z, mlp.labels);
  backward(losses);
  const Graph recorded = recording.finish({losses, kept}, mlp.params);
  for (const Tensor& p : mlp.params) p.autograd().grad = {};
  const RuleSet all("all");
  const std::string text = explain(captured(recorded, all), all);
  test::expect_facts(dump(recorded), {"%9 = linear(%8, %4, %5)"});
  test::expect_facts(text,
      {"miss     %10 log_softmax, %13 nll, %14 nll_backward, %15 log_softmax_backward     rule "
       "softmax_xent: what log_softmax gives is also read by %11 = exp(%10) f32[4, 3]     "
       "would save 3 launches\n         to fuse: let no other op read %10\n"});
}

TEST(Explain, MeasuredTimesFallbacksAndRulesWithoutKernel) {
  const RuleSet rules("all");
  Captured c = captured(SmallMlp().forward_graph(), rules);
  ASSERT_EQ(c.fused.groups.size(), 1u);
  c.fused.plan = {.candidates = {{.name = "all groups", .us = 9.14}, {.name = "none", .us = 12.3}},
      .measured = true};
  c.fused.groups[0].choice = {
      .candidates = {{.name = "with it", .us = 9.14}, {.name = "without it", .us = 12.3}},
      .measured = true};
  Group slower = c.fused.groups[0];
  slower.choice.chosen = 1;
  slower.choice.candidates[1].us = 8.7;
  c.fused.groups.push_back(slower);
  Rule rule = capture::rules()[0];
  const OpDef elsewhere{.name = "softmax_xent", .simt = [](const Call&) {}};
  rule.label.op = &elsewhere;
  const std::string text = explain(c, rules, {&rule, 1});
  EXPECT_TRUE(
      text.starts_with("group 1  linear_act  <- %5 linear, %6 relu     saves 1 launch, 0.2 kB (one "
                       "[4, 5] intermediate)   whole step measured 9.1 us, "
                       "without it 12.3\n"))
      << text;
  expect_line(text,
      "fallback linear_act <- %5 linear, %6 relu: whole step measured 8.7 us, with it 9.1: kept "
      "unfused     (1 launch not saved)");
  expect_line(text, "plan     all groups, measured 9.1 us, none 12.3");
  expect_line(text,
      "choice   measured: a group goes where the whole step is faster without it, beyond doubt");
  expect_line(text, str("off      rule ", rule.name(), ": no cpu kernel"));
  EXPECT_EQ(explain(c, RuleSet("none"), {&rule, 1}).find("off "), std::string::npos);
  c.fused.groups[0].choice.note = "the machine is too busy to decide";
  const std::string busy = explain(c, rules, {&rule, 1});
  test::expect_facts(busy, {"without it 12.3; the machine is too busy to decide\n"});
}

TEST(Explain, PredictsEachGroupUnderTheCeiling) {
  const RuleSet rules("linear_act");
  const Captured c = captured(SmallMlp().forward_graph(), rules);
  const profiler::Ceiling ceiling{.flops_per_ns = 1e9, .bytes_per_ns = 0.1, .floor_ns = 1000};
  const Node& fused = c.fused.graph.nodes[0];
  const auto us = [&](int64_t launches, int64_t bytes) {
    return 1e-3 * (1000 * double(launches) + double(bytes) / 0.1);
  };
  const int64_t bytes = c.fused.graph.cost(fused).bytes(),
                parts = c.recorded.cost(c.recorded.nodes[0]).bytes() +
                        c.recorded.cost(c.recorded.nodes[1]).bytes();
  EXPECT_EQ(parts - bytes, c.fused.groups[0].bytes_saved);
  test::expect_facts(explain(c, rules, capture::rules(), ceiling),
      {fmt::format("   predicted {:.1f} us, unfused {:.1f}\n", us(1, bytes), us(2, parts))});
}

}  // namespace
}  // namespace sinter::capture
