// Convolutional nets, captured, in evaluation and where a rule must hold back; step_matrix_test.cpp
// trains them.
#include <gtest/gtest.h>

#include "capture/explain.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/net.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using capture::Step;

Step step_of(const nn::Module& net, Step::Function function) {
  return Step(std::move(function), {.parameters = nn::parameter_visitor(net), .measure = false});
}

// Without backward nothing is kept, and a convolution takes norm and ReLU.
TEST(ConvStep, InEvaluationPoolingStaysBehindAFoldedRelu) {
  nn::Net net("conv 5 3; conv 4 3; batchnorm; relu; pool 2; flatten; linear 10", {1, 28, 28});
  net.init_parameters(5);
  net.eval();
  const NoGrad no_grad;
  Step step = step_of(net, [&](const Tensors& in) { return Tensors{net(in[0])}; });
  for (int call = 0; call < 3; ++call) step({Tensor::ones({2, 1, 28, 28})});
  EXPECT_EQ(ops_of(step.captured()->fused.graph), "conv2d conv_norm_act max_pool2d linear");
}

TEST(ConvStep, PoolingSaysWhyItStaysBehindRelu) {
  nn::Net net("conv 6 5 pad 2", {1, 28, 28});
  net.init_parameters(5);
  Step step = step_of(net, [&](const Tensors& in) {
    net.zero_grad();
    const Tensor a = relu(net(in[0]));
    const Tensor losses = mean(max_pool2d(a), {1, 2, 3}) + mean(a, {1, 2, 3});
    backward(losses);
    return Tensors{losses};
  });
  for (int call = 0; call < 3; ++call) step({Tensor::ones({2, 1, 28, 28})});
  test::expect_facts(explain(*step.captured(), capture::RuleSet()),
      {"rule conv_act_pool: what relu gives is also read by"});
}

// A padded convolution, batch norm and ReLU; another convolution and batch norm; the mean.
struct NormedConvolutions {
  nn::Sequential net{nn::Conv2d(2, 5, 3, 1, 1), nn::BatchNorm2d(5), nn::Net("relu", {5, 9, 8}),
      nn::Conv2d(5, 4, 3, 2, 0, false), nn::BatchNorm2d(4)};
  NormedConvolutions() {
    net.init_parameters(5);
    net.to(DType::f64);
  }
  Tensor operator()(const Tensor& x) { return detach(mean(net(x), {2, 3})); }
  Step step() {
    return step_of(net, [this](const Tensors& in) { return Tensors{(*this)(in[0])}; });
  }
};

TEST(ConvStep, BatchNormIsFoldedInEvaluation) {
  NormedConvolutions model;
  const NoGrad no_grad;
  const auto images = [](uint64_t seed) { return sample_tensor({18, 2, 9, 8}, seed, -1, 2); };
  for (uint64_t seed = 0; seed < 5; ++seed) model(images(seed));  // moves the statistics
  model.net.eval();
  Step step = model.step();
  const auto expect_eager = [&](uint64_t seed) {
    EXPECT_TRUE(test::close(step({images(seed)})[0], model(images(seed)), {.of_largest = 1e-13}));
  };
  for (uint64_t call = 5; call < 9; ++call) expect_eager(call);
  EXPECT_EQ(ops_of(step.captured()->fused.graph), "conv_norm_act conv_norm_act mean");
  // The statistics are operands: what moves them later counts.
  model.net.train();
  model(images(20));
  model.net.eval();
  expect_eager(5);
}

TEST(ConvStep, BatchNormInTrainingSaysWhyItIsNotFolded) {
  NormedConvolutions model;
  Step step = model.step();
  for (int call = 0; call < 3; ++call) step({Tensor::ones({3, 2, 9, 8}, DType::f64)});
  test::expect_facts(explain(*step.captured(), capture::RuleSet()),
      {"rule conv_norm_act: batch_norm2d takes the moments of this batch", "to fuse: call eval()"});
}

}  // namespace
}  // namespace sinter
