#include "capture/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/capture/step_util.h"
#include "tests/counting_new.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::message_of;

using capture::Captured;
using capture::Step;

void copy_into(const Tensor& to, const Tensor& from) {
  std::memcpy(to.raw(), from.raw(), static_cast<size_t>(bytes_of(to)));
}

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

TEST(Step, MomentumCountsAreTheSame) {
  Training training({.optimizer = "sgd", .momentum = 0.9});
  Step step(training.function(), training.step_options());
  EXPECT_EQ(capture_default(training, step).fused.graph.nodes.size(), 9u);
}

TEST(Step, AReplayAllocatesNothing) {
  Training training;
  Step step(training.function(), training.step_options());
  const Tensors in = batch_of(training.options, 17, 1);
  for (int i = 0; i < 4; ++i) step(in);
  ASSERT_EQ(step.stats().replays, 2);
  const Tensors other = batch_of(training.options, 17, 2);
  step(other);
  const int64_t requests = allocator(kCpu).stats().requests, calls = test::new_calls;
  step(other);
  EXPECT_EQ(allocator(kCpu).stats().requests, requests);
  EXPECT_EQ(test::new_calls, calls);
}

// Per step from equal weights: gradients with weight_grad_update off, weights with it on.
TEST(Step, GradientsAndWeightsEqualEager) {
  for (const char* optimizer : {"adam", "sgd"}) {
    for (const int64_t rows : {1, 17, 97}) {
      const TrainOptions options{
          .sizes = {77, 333, 61, 10}, .optimizer = optimizer, .dropout = 0.2};
      Training eager(options), fused(options), grads(options);
      Step step(fused.function(), fused.step_options()),
          grad_step(grads.function(), grads.step_options("all,-weight_grad_update"));
      for (uint64_t i = 0; i < 4; ++i) {  // the third and fourth replay
        const Tensors in = batch_of(options, rows, 10 + i);
        const Tensor counter = copy(rng_state());
        const auto same_draws = [&] {
          copy_into(rng_state(), counter);
          restart_random_ops();
        };
        same_draws();
        const Tensor loss = eager(in)[0];
        same_draws();
        EXPECT_TRUE(test::close(step(in)[0], loss, {.of_largest = 1e-5}));
        same_draws();
        grad_step(in);
        for (size_t p = 0; p < eager.net.parameters().size(); ++p) {
          const Tensor e = eager.net.parameters()[p], f = fused.net.parameters()[p],
                       g = grads.net.parameters()[p];
          EXPECT_TRUE(test::close(g.grad(), e.grad(), {.of_largest = 1e-5}))
              << optimizer << " rows " << rows << " parameter " << p << " step " << i;
          const double slack = std::string(optimizer) == "adam"
                                   ? 0.002 / 20
                                   : 0;  // Adam magnifies the rounding of tiny gradients
          EXPECT_TRUE(test::close(f, e, {.of_each = 5e-6, .absolute = 5e-6 + slack}))
              << optimizer << " parameter " << p << " step " << i;
          copy_into(f, e);
          copy_into(g, e);  // equal weights for the next step
        }
        const auto es = eager.optimizer->state_tensors(), fs = fused.optimizer->state_tensors(),
                   gs = grads.optimizer->state_tensors();
        for (size_t s = 0; s < es.size(); ++s) {
          EXPECT_TRUE(test::close(fs[s].tensor, es[s].tensor, {.of_largest = 1e-5})) << es[s].name;
          copy_into(fs[s].tensor, es[s].tensor);
          copy_into(gs[s].tensor, es[s].tensor);
        }
      }
      EXPECT_EQ(step.stats().replays, 2);
    }
  }
}

TEST(Step, FreeRunningInDoubleStaysTogether) {
  for (const char* optimizer : {"adam", "sgd", "adamw"}) {
    const TrainOptions options{.sizes = {31, 45, 10},
        .activation = "gelu",
        .optimizer = optimizer,
        .dropout = 0.1,
        .clip = 1.0,
        .dtype = DType::f64};
    std::vector<double> curves[2];
    for (const bool fused : {false, true}) {
      manual_seed(3);
      Training training(options);
      Step step(training.function(), training.step_options());
      for (int i = 0; i < 100; ++i) {
        training.optimizer->set_lr(0.002 * (1 + std::cos(3.14159 * i / 100)));
        const Tensors in = batch_of(options, 23, 100 + static_cast<uint64_t>(i % 7));
        restart_random_ops();
        const Tensor loss = fused ? step(in)[0] : training(in)[0];
        curves[fused].push_back(mean(loss).item());
      }
    }
    EXPECT_TRUE(test::close(curves[1], curves[0], {.absolute = 1e-8})) << optimizer;
  }
}

TEST(Step, TwoFusedRunsAreBitEqual) {
  std::vector<float> weights[2];
  for (auto& w : weights) {
    manual_seed(9);
    Training training({.dropout = 0.3});
    Step step(training.function(), training.step_options());
    for (uint64_t i = 0; i < 6; ++i) step(batch_of(training.options, 64, i));
    w = training.net.parameters()[0].to_vector<float>();
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(Step, ARaggedBatchHasItsOwnCapture) {
  Training training({.sizes = {20, 16, 10}});
  Step step(training.function(), training.step_options());
  for (int epoch = 0; epoch < 4; ++epoch) {
    step(batch_of(training.options, 32, 1));
    step(batch_of(training.options, 5, 2));
  }
  EXPECT_EQ(step.stats().captures, 2);
  EXPECT_EQ(step.stats().replays, 4);
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
  const std::string message = message_of([&] { step(batch_of(training.options, 4, 1)); });
  EXPECT_NE(message.find("read on the host inside a captured step"), std::string::npos) << message;
  EXPECT_EQ(Tensor::ones({1}).item(), 1) << "and allowed again after the error";
}

TEST(Step, ABakedNumberIsAnError) {
  double factor = 1;
  Step step([&](const Tensors& in) { return Tensors{scale(in[0], factor += 0.5)}; });
  const Tensors in{Tensor::ones({3, 4})};
  step(in);
  const std::string message = message_of([&] { step(in); });
  EXPECT_NE(message.find("op 0, scale f32[3, 4], forward: factor is 1.5 in the first recording, "
                         "2 in the second"),
      std::string::npos)
      << message;
}

TEST(Step, ATensorMadeAnewIsAnError) {
  Step step([&](const Tensors& in) { return Tensors{add(in[0], Tensor::ones({4}))}; });
  const Tensors in{Tensor::ones({3, 4})};
  step(in);
  const std::string message = message_of([&] { step(in); });
  EXPECT_NE(message.find("no op produced"), std::string::npos) << message;
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
  ASSERT_EQ(step.stats().replays, 1);

  parameters.push_back(Tensor::ones({1}));
  step(in);
  ASSERT_EQ(step.stats().misses.size(), 1u);
  EXPECT_NE(step.stats().misses[0].find("parameter list: one more"), std::string::npos);

  parameters.back() = Tensor::ones({1});
  step(in);
  EXPECT_NE(step.stats().misses[1].find("storage address"), std::string::npos);

  parameters.back().set_requires_grad(true);
  step(in);
  EXPECT_NE(step.stats().misses[2].find("requires_grad"), std::string::npos);
  EXPECT_EQ(step.stats().replays, 1);
  for (int i = 0; i < 3; ++i) step(in);
  EXPECT_EQ(step.stats().replays, 3);
}

TEST(Step, AGradientThatARuleTookSaysSo) {
  Training training({.sizes = {20, 16, 10}});
  Step step(training.function(), training.step_options());
  for (int i = 0; i < 3; ++i) step(batch_of(training.options, 4, 1));
  const std::string message = message_of([&] { training.net.parameters()[0].grad(); });
  EXPECT_NE(message.find("weight_grad_update"), std::string::npos) << message;
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
      fused.captured()->fused.graph.nodes.size() + static_cast<size_t>(group.launches_saved));
}

TEST(Step, EvaluationIsCapturedToo) {
  Training training({.sizes = {20, 16, 10}});
  training.net.eval();
  Step step([&](const Tensors& in) {
    const NoGrad no_grad;
    return Tensors{training.net(in[0])};
  });
  const Tensor x = batch_of(training.options, 9, 1)[0];
  Tensor logits;
  for (int i = 0; i < 3; ++i) logits = step({x})[0];
  EXPECT_EQ(step.stats().replays, 1);
  EXPECT_EQ(step.captured()->fused.graph.nodes.size(), 2u);
  const NoGrad no_grad;
  EXPECT_TRUE(test::close(logits, training.net(x), {.of_largest = 1e-5}));
}

TEST(RuleSet, ReadsListsFromLeftToRight) {
  EXPECT_TRUE(capture::RuleSet("all").has("linear_act"));
  EXPECT_FALSE(capture::RuleSet("none").has("linear_act"));
  EXPECT_FALSE(capture::RuleSet("-linear_act").has("linear_act"));
  EXPECT_TRUE(capture::RuleSet("-linear_act").has("softmax_xent"));
  EXPECT_TRUE(capture::RuleSet("linear_act").has("linear_act"));
  EXPECT_FALSE(capture::RuleSet("linear_act").has("softmax_xent"));
  EXPECT_TRUE(capture::RuleSet("none,linear_act,-linear_act,linear_act").has("linear_act"));
  const std::string message = message_of([] { capture::RuleSet("all,-linear_atc"); });
  EXPECT_NE(message.find("nearest is linear_act"), std::string::npos) << message;
  EXPECT_NE(message_of([] { capture::RuleSet("all,"); }).find("empty item"), std::string::npos);
}

}  // namespace
}  // namespace sinter
