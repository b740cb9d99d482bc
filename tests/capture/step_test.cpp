#include "capture/step.h"

#include <gtest/gtest.h>

#include "tests/capture/step_util.h"
#include "tests/counting_new.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::message_of;

using capture::Captured;
using capture::Step;

const Captured& capture_default(Training& training, Step& step, int64_t rows = 128) {
  const Tensors in = batch_of(training.options, rows, 1);
  step(in);
  step(in);
  return *step.captured();
}

int64_t total_bytes(const capture::Graph& graph) {
  int64_t bytes = 0;
  for (const capture::Node& node : graph.nodes) bytes += graph.cost(node).bytes();
  return bytes;
}
int64_t total_flops(const capture::Graph& graph) {
  int64_t flops = 0;
  for (const capture::Node& node : graph.nodes) flops += graph.cost(node).flops;
  return flops;
}

struct Count {
  const char *optimizer, *rules;
  size_t launches;
  int64_t bytes;  // of the default step at batch 128, from the sizes of the operands by hand
};
class Launches : public testing::TestWithParam<Count> {};

TEST_P(Launches, OfTheDefaultStep) {
  Training training({.optimizer = GetParam().optimizer, .momentum = 0});
  Step step(training.function(), training.step_options(GetParam().rules));
  const Captured& c = capture_default(training, step);
  EXPECT_EQ(c.recorded.nodes.size(), 25u);
  EXPECT_EQ(c.fused.graph.nodes.size(), GetParam().launches);
  EXPECT_EQ(total_bytes(c.fused.graph), GetParam().bytes);
  // Of products 2 (2 * 234752 + 34048) for each of 128 rows, of updates 13 or 2 for each of 235146
  // parameters; the rest is what the ops count for each element.
  const bool adam = GetParam().optimizer == std::string("adam");
  EXPECT_EQ(total_flops(c.recorded), adam ? 132177282 : 129590676);
  EXPECT_EQ(total_flops(c.fused.graph), total_flops(c.recorded)) << "fusing changes no FLOP";
}

INSTANTIATE_TEST_SUITE_P(RuleSets, Launches,
    testing::Values(Count{"adam", "none", 25, 11685736},
        Count{"adam", "all,-weight_grad_update", 10, 10676072}, Count{"adam", "all", 9, 8794904},
        Count{"sgd", "none", 25, 7923400}, Count{"sgd", "all,-weight_grad_update", 10, 6913736},
        Count{"sgd", "all", 9, 5032568}));

// The next layer keeps what dropout gives, so ReLU's gradient reads that.
TEST(Step, NothingIsKeptForAReluBehindWhichIsADropout) {
  Training training({.dropout = 0.5});
  Step step(training.function(), training.step_options());
  const capture::Graph& graph = capture_default(training, step).fused.graph;
  int backwards = 0;
  for (const capture::Node& node : graph.nodes) {
    if (node.op->text() != "relu_backward") continue;
    ++backwards;
    const auto made_by = std::ranges::find_if(graph.nodes,
        [&](const capture::Node& n) { return !n.out.empty() && n.out[0] == node.in[1]; });
    ASSERT_NE(made_by, graph.nodes.end());
    EXPECT_EQ(made_by->op, &kDropoutOp);
  }
  EXPECT_EQ(backwards, 2);
}

TEST(Step, AReplayAllocatesNothing) {
  Training training;
  Step step(training.function(), training.step_options());
  const Tensors in = batch_of(training.options, 17, 1);
  for (int i = 0; i < 4; ++i) step(in);
  ASSERT_EQ(step.stats().replays, 3);
  const Tensors other = batch_of(training.options, 17, 2);
  step(other);
  const int64_t requests = allocator(kCpu).stats().requests, calls = test::new_calls;
  step(other);
  EXPECT_EQ(allocator(kCpu).stats().requests, requests);
  EXPECT_EQ(test::new_calls, calls);
}

TEST(Step, ARaggedBatchHasItsOwnCapture) {
  Training training({.sizes = {20, 16, 10}});
  Step step(training.function(), training.step_options());
  for (int epoch = 0; epoch < 4; ++epoch) {
    step(batch_of(training.options, 32, 1));
    step(batch_of(training.options, 5, 2));
  }
  EXPECT_EQ(step.stats().captures, 2);
  EXPECT_EQ(step.stats().replays, 6);
}

TEST(Step, TheCacheIsBounded) {
  Training training({.sizes = {20, 16, 10}});
  capture::StepOptions options = training.step_options();
  options.cache_size = 2;
  Step step(training.function(), options);
  for (const int64_t rows : {3, 4, 5}) {
    for (int i = 0; i < 2; ++i) step(batch_of(training.options, rows, 1));
  }
  EXPECT_EQ(step.stats().evictions, 1);
  step(batch_of(training.options, 3, 1));
  EXPECT_EQ(step.stats().evictions, 2) << "the key that went must be captured again";
}

TEST(Step, AHostReadInsideIsAnError) {
  Training training({.sizes = {20, 16, 10}});
  Step step([&](const Tensors& in) {
    const Tensors out = training(in);
    out[0].to_vector<float>();
    return out;
  });
  test::expect_facts(message_of([&] { step(batch_of(training.options, 4, 1)); }),
      {"read on the host inside a captured step"});
  EXPECT_EQ(Tensor::ones({1}).item(), 1) << "and allowed again after the error";
}

TEST(Step, ATensorMadeAnewIsAnError) {
  Tensor b;
  Step step([&](const Tensors& in) { return Tensors{add(in[0], b)}; });
  const Tensors in{Tensor::ones({3, 4})};
  b = Tensor::ones({4});
  step(in);
  b = Tensor::ones({4});
  test::expect_facts(message_of([&] { step(in); }), {"no op produced"});
}

TEST(Step, ChangedGuardsCaptureAgain) {
  Training training({.sizes = {20, 16, 10}});
  std::vector<Tensor> parameters = training.net.parameters();
  capture::StepOptions options;
  options.parameters = [&](const capture::ParameterVisitor& visit) {
    for (const Tensor& p : parameters) visit(p);
  };
  Step step(training.function(), options);
  const Tensors in = batch_of(training.options, 4, 1);
  for (int i = 0; i < 3; ++i) step(in);
  ASSERT_EQ(step.stats().replays, 2);

  parameters.push_back(Tensor::ones({1}));
  step(in);
  ASSERT_EQ(step.stats().misses.size(), 1u);
  test::expect_facts(step.stats().misses[0], {"parameter list: one more"});

  parameters.back() = Tensor::ones({1});
  step(in);
  test::expect_facts(step.stats().misses[1], {"storage address"});

  parameters.back().set_requires_grad(true);
  step(in);
  test::expect_facts(step.stats().misses[2], {"requires_grad"});
  EXPECT_EQ(step.stats().replays, 2);
  for (int i = 0; i < 3; ++i) step(in);
  EXPECT_EQ(step.stats().replays, 5);
}

TEST(Step, ChoicesOfAnEarlierRunAreTakenNotMeasuredAgain) {
  Training first({.sizes = {20, 16, 10}}), second({.sizes = {20, 16, 10}});
  Step fused(first.function(), first.step_options());
  const auto& group = capture_default(first, fused, 8).fused.groups.at(0);
  capture::StepOptions options = second.step_options();
  options.measure = true;
  options.choices = {{{group.rule, group.origin.front()}}};
  Step again(second.function(), options);
  const Captured& c = capture_default(second, again, 8);
  EXPECT_EQ(again.choices(), options.choices);
  EXPECT_EQ(fused.choices().size(), 0u);
  EXPECT_EQ(c.fused.groups.size() + 1,
      fused.captured()->fused.groups.size());  // all others are fused: nothing was timed
  EXPECT_EQ(c.fused.graph.nodes.size(),
      fused.captured()->fused.graph.nodes.size() + size_t(group.launches_saved));
}

TEST(RuleSet, ReadsListsFromLeftToRight) {
  EXPECT_TRUE(capture::RuleSet("all").has("linear_act"));
  EXPECT_FALSE(capture::RuleSet("none").has("linear_act"));
  EXPECT_FALSE(capture::RuleSet("-linear_act").has("linear_act"));
  EXPECT_TRUE(capture::RuleSet("-linear_act").has("softmax_xent"));
  EXPECT_TRUE(capture::RuleSet("linear_act").has("linear_act"));
  EXPECT_FALSE(capture::RuleSet("linear_act").has("softmax_xent"));
  EXPECT_TRUE(capture::RuleSet("none,linear_act,-linear_act,linear_act").has("linear_act"));
  test::expect_facts(
      message_of([] { capture::RuleSet("all,-linear_atc"); }), {"nearest is linear_act"});
  test::expect_facts(message_of([] { capture::RuleSet("all,"); }), {"empty item"});
}

}  // namespace
}  // namespace sinter
