// Training with bf16 copies of the weights: launches, one step fused against eager, and copies that
// always equal the rounded masters.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using capture::Step;

// Eager rounds the gradient of the logits by a cast of its own, one more than in f32; fused has
// none.
TEST(Bf16, Launches) {
  for (const std::string optimizer : {"adam", "sgd", "rmsprop", "lion"}) {
    for (const auto& [rules, launches] :
        {std::pair{"none", 26u}, {"all,-weight_grad_update", 10u}, {"all", 9u}}) {
      Training training({.optimizer = optimizer, .dtype = DType::bf16});
      Step step(training.function(), training.step_options(rules));
      for (int i = 0; i < 2; ++i) step(batch_of(training.options, 128, 1));
      const std::string ops = ops_of(step.captured()->fused.graph);
      EXPECT_EQ(step.captured()->executor->launches(), launches)
          << optimizer << " " << rules << ": " << ops;
      EXPECT_EQ(ops.find("cast") == std::string::npos, rules != std::string("none")) << ops;
    }
  }
}

// bf16 rounds by at most u = 2^-8 of a value. On the way to the first layer's gradient lie 5
// rounded intermediates (both hidden layers, the gradients of the logits and of both hidden
// layers); where fused and eager round one differently, or only one of them rounds, each moves the
// result by u of its norm.
constexpr double kGradientBound = 5 * 0x1p-8;
// SGD's update is linear in the gradient. Lion's is lr whatever the size of the gradient, and so is
// about that of Adam, and RMSprop's first one, 10 lr: its sign counts. Errors of a share e turn
// those of e / pi of normally distributed gradients, which moves the update by 2 sqrt(e / pi) of
// its norm; twice as much, as small ones are more frequent than that.
double update_bound(const std::string& optimizer) {
  return optimizer == "sgd" ? kGradientBound : 4 * std::sqrt(kGradientBound / std::numbers::pi);
}

TEST(Bf16, OneStepAgreesWithEager) {
  for (const std::string optimizer : {"adam", "sgd", "rmsprop", "lion"}) {
    for (const char* activation : {"relu", "gelu", "tanh"}) {
      for (const int64_t rows : {1, 17, 97}) {
        if (test::kSanitized && rows != 17) continue;
        SCOPED_TRACE(cat(optimizer, " ", activation, " rows ", rows));
        const TrainOptions options{.sizes = {77, 333, 61, 10},
            .activation = activation,
            .optimizer = optimizer,
            .dtype = DType::bf16};
        Training eager(options), fused(options), grads(options);
        Step step(fused.function(), fused.step_options()),
            grad_step(grads.function(), grads.step_options("all,-weight_grad_update"));
        const auto run = [&](uint64_t seed) {
          const Tensors in = batch_of(options, rows, seed);
          const Tensor loss = eager(in)[0];
          // two hidden layers
          EXPECT_TRUE(test::near(step(in)[0], loss, 2 * 0x1p-8 * test::norm(loss)));
          grad_step(in);
        };
        for (uint64_t i = 0; i < 3; ++i) {  // the third replays
          std::vector<Tensor> before;
          for (size_t p = 0; p < eager.net.parameters().size(); ++p) {  // equal weights and state
            const Tensor e = eager.net.parameters()[p];
            before.push_back(copy(detach(e)));
            for (Training* t : {&fused, &grads})
              nn::copy_values(t->net.parameters()[p], detach(e), "test");
          }
          for (size_t s = 0; s < eager.optimizer->state_tensors().size(); ++s) {
            for (Training* t : {&fused, &grads})
              nn::copy_values(t->optimizer->state_tensors()[s].tensor,
                  eager.optimizer->state_tensors()[s].tensor, "test");
          }
          run(20 + i);
          for (size_t p = 0; p < before.size(); ++p) {
            const Tensor e = eager.net.parameters()[p], f = fused.net.parameters()[p],
                         g = grads.net.parameters()[p];
            EXPECT_TRUE(test::near(g.grad(), e.grad(), kGradientBound * test::norm(e.grad())))
                << "gradient " << p << " step " << i;
            const double allowed =
                update_bound(optimizer) * test::distance(e, before[p]) + 1e-6 * test::norm(e);
            EXPECT_TRUE(test::near(f, e, allowed)) << "weight " << p << " step " << i;
            EXPECT_TRUE(test::near(g, e, allowed)) << "weight " << p << " step " << i;
          }
        }
        EXPECT_EQ(step.stats().replays, 1);
      }
    }
  }
}

TEST(Bf16, CopiesEqualTheRoundedMasters) {
  for (const std::string& optimizer : nn::optimizer_names()) {
    for (const char* rules : {"eager", "none", "all,-weight_grad_update",
             "all,-weight_grad_update,-multi_tensor_update", "all"}) {
      Training training({.sizes = {77, 333, 61, 10}, .optimizer = optimizer, .dtype = DType::bf16});
      Step step(training.function(),
          training.step_options(rules == std::string("eager") ? "none" : rules));
      const std::vector<float> start = training.net.parameters()[0].to_vector<float>();
      for (uint64_t i = 0; i < 4; ++i) {
        const Tensors in = batch_of(training.options, 33, 40 + i);
        if (rules == std::string("eager")) {
          training(in);
        } else {
          step(in);
        }
        size_t copies = 0;
        for (const Tensor& p : training.net.parameters()) {
          const Tensor low = p.autograd().bf16_copy;
          if (!low.defined()) continue;
          ++copies;
          const NoGrad no_grad;
          EXPECT_EQ(low.to_vector<float>(), cast(p, DType::bf16).to_vector<float>())
              << optimizer << " " << rules << " step " << i << " " << p.autograd().name;
        }
        EXPECT_EQ(copies, 3u);
      }
      EXPECT_NE(training.net.parameters()[0].to_vector<float>(), start);
    }
  }
}

}  // namespace
}  // namespace sinter
