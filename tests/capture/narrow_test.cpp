// narrow_mlp on the emulator: small classifiers whose whole step, or all of it behind the first
// layer, is one launch and the update; per step from equal weights against the CPU; what it
// refuses, in words.
#include <gtest/gtest.h>

#include "core/device/launch_log.h"
#include "nn/named_tensor.h"
#include "tests/capture/step_util.h"

namespace sinter::capture {
namespace {

TEST(NarrowMlpSimt, OneLaunchAndTheUpdate) {
  const auto list = [](const TrainOptions& options, const char* rules) {
    Training training(options);
    Step step(training.function(), training.step_options(rules));
    const Tensors batch = batch_of(options, 9, 1);
    for (int i = 0; i < 2; ++i) step(batch);
    const int64_t before = launch_count();
    step(batch);
    const Graph& graph = step.captured()->fused.graph;
    EXPECT_EQ(launch_count() - before, static_cast<int64_t>(graph.nodes.size()));
    return ops_of(graph);
  };
  const char* gradients = "all,-weight_grad_update";
  EXPECT_EQ(list({.sizes = {20, 16, 12, 10}, .device = kSimt}, gradients),
      "narrow_mlp multi_tensor_update");
  EXPECT_EQ(list({.sizes = {20, 16, 10}, .activation = "tanh", .optimizer = "sgd", .device = kSimt},
                gradients),
      "narrow_mlp multi_tensor_update");
  EXPECT_EQ(list({.sizes = {200, 16, 12, 10}, .device = kSimt}, gradients),
      "linear_act narrow_mlp weight_bias_grad multi_tensor_update");
  EXPECT_EQ(list({.sizes = {200, 16, 12, 10}, .device = kSimt}, "all"),
      "linear_act narrow_mlp weight_grad_update multi_tensor_update");
}

TEST(NarrowMlpSimt, StepsAreThoseOfTheCpu) {
  for (const std::vector<int64_t>& sizes :
      {std::vector<int64_t>{20, 16, 12, 10}, {150, 33, 7}, {9, 77, 5}}) {
    for (const char* optimizer : {"sgd", "adam"}) {
      TrainOptions options{.sizes = sizes,
          .activation = sizes.size() == 3 && sizes[0] == 9 ? "sigmoid" : "relu",
          .optimizer = optimizer};
      Training cpu(options);
      options.device = kSimt;
      Training other(options);
      Step step(other.function(), other.step_options("all,-weight_grad_update"));
      for (uint64_t s = 0; s < 6; ++s) {
        SCOPED_TRACE(cat(sizes[0], " inputs, ", optimizer, ", step ", s));
        const int64_t rows = s == 5 ? 3 : 70;
        const auto copy_all = [](const nn::NamedTensors& to, const nn::NamedTensors& from) {
          for (size_t i = 0; i < to.size(); ++i)
            nn::copy_values(to[i].tensor, from[i].tensor, "test");
        };
        copy_all(other.net.named_parameters(), cpu.net.named_parameters());
        copy_all(other.optimizer->state_tensors(), cpu.optimizer->state_tensors());
        const Tensor wanted = cpu(batch_of(cpu.options, rows, s))[0],
                     losses = step(batch_of(options, rows, s))[0];
        EXPECT_TRUE(test::close(losses, wanted, {.of_largest = 1e-5}));
        const auto mine = cpu.net.named_parameters(), theirs = other.net.named_parameters();
        for (size_t i = 0; i < mine.size(); ++i) {
          EXPECT_TRUE(
              test::close(theirs[i].tensor.grad(), mine[i].tensor.grad(), {.of_largest = 1e-5}))
              << mine[i].name;
          const double adam = optimizer[0] == 'a' ? 0.002 / 20 : 0;
          EXPECT_TRUE(test::close(theirs[i].tensor, mine[i].tensor, {.of_largest = 1e-5 + adam}))
              << mine[i].name;
        }
      }
      EXPECT_EQ(step.stats().replays, 3);
    }
  }
}

// Near misses of one step.
std::string misses_of(
    const TrainOptions& options, const std::function<Tensors(Training&, const Tensors&)>& f) {
  Training training(options);
  Step step([&](const Tensors& in) { return f(training, in); }, training.step_options("all"));
  for (int i = 0; i < 2; ++i) step(batch_of(options, 5, 1));
  std::string all;
  for (const Miss& miss : step.captured()->fused.misses) {
    if (std::string_view(miss.rule) == "narrow_mlp") all += cat(miss.obstacle.why, "\n");
  }
  return all;
}

TEST(NarrowMlpSimt, NearMissesNameTheCondition) {
  const auto train = [](Training& t, const Tensors& in) { return t(in); };
  EXPECT_EQ(misses_of({.sizes = {128, 128, 128, 10}, .device = kSimt}, train),
      "34048 weights; at most 16384\n17664 weights; at most 16384\n");
  EXPECT_EQ(misses_of({.sizes = {120, 120, 10}, .dtype = DType::f64, .device = kSimt}, train),
      "374688 bytes of shared memory for weights and 64 rows; at most 163840\n");
  EXPECT_EQ(misses_of({.sizes = {784, 256, 10}, .device = kSimt}, train), "") << "nowhere near";
  const std::string shown =
      misses_of({.sizes = {20, 16, 10}, .device = kSimt}, [](Training& t, const Tensors& in) {
        t.optimizer->zero_grad();
        const Tensor logits = t.net(in[0]), losses = cross_entropy(logits, in[1]);
        backward(losses);
        t.optimizer->step(losses);
        return Tensors{losses, detach(logits)};
      });
  EXPECT_EQ(shown, "what lies between is also read by a result of the step\n");
}

}  // namespace
}  // namespace sinter::capture
