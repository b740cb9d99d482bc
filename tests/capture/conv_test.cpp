// Convolutional nets, captured: what is fused, and that values, gradients and weights are those of
// eager steps.
#include <gtest/gtest.h>

#include "capture/explain.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/pool.h"
#include "nn/sequential.h"
#include "ops/fused/fused.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"

namespace sinter {
namespace {

using capture::Step;

// LeNet-5 with ReLU and max pooling, or pooling and ReLU; two convolutions before one pooling, or
// one with a norm behind it. 28 x 28 grey.
enum class Net { lenet, pooled_first, deep, normed };
std::shared_ptr<nn::Sequential> conv_net(Net kind) {
  const auto net = std::make_shared<nn::Sequential>();
  const auto relu = [&] { net->append(nn::make_activation("relu")); };
  const bool lenet = kind == Net::lenet || kind == Net::pooled_first;
  if (lenet) {
    for (const bool second : {false, true}) {
      if (second) {
        net->append(std::make_shared<nn::Conv2d>(6, 16, 5));
      } else {
        net->append(std::make_shared<nn::Conv2d>(1, 6, 5, 1, 2));
      }
      if (kind == Net::lenet) relu();
      net->append(std::make_shared<nn::MaxPool2d>(2));
      if (kind == Net::pooled_first) relu();
    }
  } else {
    net->append(std::make_shared<nn::Conv2d>(1, 5, 3));
    if (kind == Net::deep) relu();
    net->append(std::make_shared<nn::Conv2d>(5, 4, 3));
    if (kind == Net::normed) net->append(std::make_shared<nn::BatchNorm2d>(4));
    relu();
    net->append(std::make_shared<nn::MaxPool2d>(2));
  }
  net->append(std::make_shared<nn::Flatten>());
  net->append(std::make_shared<nn::Linear>(lenet ? 400 : 576, 10));
  return net;
}

struct ConvTraining {
  std::shared_ptr<nn::Sequential> net;
  std::unique_ptr<nn::Optimizer> optimizer;
  ConvTraining(Net kind, DType dtype, Device device) : net(conv_net(kind)) {
    net->init_parameters(5);
    net->to(dtype);
    net->to(device);
    optimizer = std::make_unique<nn::Sgd>(
        net->named_parameters(), nn::SgdOptions{.lr = 0.05, .momentum = 0.9});
  }
  Step step(const char* rules) {
    return Step(
        [this](const Tensors& in) {
          optimizer->zero_grad();
          const Tensor losses = cross_entropy((*net)(in[0]), in[1]);
          backward(losses);
          optimizer->step(losses);
          return Tensors{losses};
        },
        {.rules = capture::RuleSet(rules),
            .parameters = nn::parameter_visitor(*net),
            .measure = false});
  }
};

// Free-running in f64: sums in another order part by rounding alone.
capture::Graph train_both(Net kind, Device device) {
  ConvTraining plain(kind, DType::f64, device), fused(kind, DType::f64, device);
  Step with = fused.step("all"), without = plain.step("none");
  for (uint64_t call = 0; call < 8; ++call) {
    const int64_t rows = call == 6 ? 5 : 19;  // a ragged batch
    const Tensors in{sample_tensor({rows, 1, 28, 28}, call, 0, 1).to(device),
        sample_labels(rows, 10, call + 1).to(device)};
    EXPECT_TRUE(test::close(with(in)[0], without(in)[0], {.of_largest = 1e-10})) << call;
  }
  for (size_t i = 0; i < plain.net->parameters().size(); ++i)
    EXPECT_TRUE(
        test::close(fused.net->parameters()[i], plain.net->parameters()[i], {.of_largest = 1e-10}));
  return with.captured()->fused.graph;
}

// Lenet pools with ReLU, and never stores a convolution.
void expect_fused_steps(Device device) {
  for (const Net kind : {Net::lenet, Net::pooled_first}) {
    EXPECT_EQ(ops_of(train_both(kind, device)),
        "conv_act_pool conv_act_pool linear softmax_xent matmul conv_act_pool_backward "
        "conv_act_pool_backward multi_tensor_update weight_grad_update");
  }
  const capture::Graph deep = train_both(Net::deep, device);
  EXPECT_EQ(ops_of(deep),
      "conv_act conv_act_pool linear softmax_xent matmul conv_act_pool_backward "
      "conv_act_backward multi_tensor_update weight_grad_update");
  // Note [ReLU between two convolutions]
  for (const capture::Node& node : deep.nodes) {
    if (node.op == &kConvActBackwardOp) {
      EXPECT_EQ(node.in[2], -1);
    } else if (node.op == &kConvActPoolBackwardOp) {
      EXPECT_TRUE(node.attrs.as<Conv2dGradAttrs>().relu);
    }
  }
}

TEST(ConvStep, StepsAreThoseOfEager) { expect_fused_steps(kCpu); }
TEST(ConvStepSimt, StepsAreThoseOfEager) { expect_fused_steps(kSimt); }
using ConvStepGpu = test::GpuTest;
TEST_F(ConvStepGpu, StepsAreThoseOfEager) { expect_fused_steps(test::kCuda); }

// Pooling has ReLU's forward and backward in it, whatever is in front of them.
void expect_no_relu(Device device) {
  const std::string ops = ops_of(train_both(Net::normed, device));
  EXPECT_TRUE(
      ops.starts_with("conv2d conv2d batch_norm2d max_pool2d linear softmax_xent matmul "
                      "max_pool2d_backward "))
      << ops;
}
TEST(ConvStep, ReluBehindANormIsInThePooling) { expect_no_relu(kCpu); }
TEST(ConvStepSimt, ReluBehindANormIsInThePooling) { expect_no_relu(kSimt); }

// Without backward nothing is kept, and a convolution takes norm and ReLU.
TEST(ConvStep, InEvaluationPoolingStaysBehindAFoldedRelu) {
  const std::shared_ptr<nn::Sequential> net = conv_net(Net::normed);
  net->init_parameters(5);
  net->eval();
  const NoGrad no_grad;
  Step step([&](const Tensors& in) { return Tensors{(*net)(in[0])}; },
      {.parameters = nn::parameter_visitor(*net), .measure = false});
  for (int call = 0; call < 3; ++call) step({Tensor::ones({2, 1, 28, 28})});
  EXPECT_EQ(ops_of(step.captured()->fused.graph), "conv2d conv_norm_act max_pool2d linear");
}

TEST(ConvStep, PoolingSaysWhyItStaysBehindRelu) {
  ConvTraining training(Net::lenet, DType::f32, kCpu);
  nn::Sequential& net = *training.net;
  Step step(
      [&](const Tensors& in) {
        training.optimizer->zero_grad();
        const Tensor a = relu(net[0](in[0]));
        const Tensor losses = mean(max_pool2d(a), {1, 2, 3}) + mean(a, {1, 2, 3});
        backward(losses);
        return Tensors{losses};
      },
      {.parameters = nn::parameter_visitor(net), .measure = false});
  for (int call = 0; call < 3; ++call) step({Tensor::ones({2, 1, 28, 28})});
  const std::string text = explain(*step.captured(), capture::RuleSet());
  EXPECT_NE(text.find("rule conv_act_pool: what relu gives is also read by"), std::string::npos)
      << text;
}

// A padded convolution, batch norm and ReLU; another convolution and batch norm; the mean.
struct NormedConvolutions {
  nn::Sequential net;
  NormedConvolutions() {
    net.append(std::make_shared<nn::Conv2d>(2, 5, 3, 1, 1));
    net.append(std::make_shared<nn::BatchNorm2d>(5));
    net.append(nn::make_activation("relu"));
    net.append(std::make_shared<nn::Conv2d>(5, 4, 3, 2, 0, false));
    net.append(std::make_shared<nn::BatchNorm2d>(4));
    net.init_parameters(5);
    net.to(DType::f64);
  }
  Step step() {
    return Step(
        [this](const Tensors& in) {
          return Tensors{detach(mean(net(in[0]), {2, 3}))};
        },
        {.parameters = nn::parameter_visitor(net), .measure = false});
  }
};

TEST(ConvStep, BatchNormIsFoldedInEvaluation) {
  NormedConvolutions model;
  const NoGrad no_grad;
  const auto images = [](uint64_t seed) { return sample_tensor({18, 2, 9, 8}, seed, -1, 2); };
  for (uint64_t seed = 0; seed < 5; ++seed) model.net(images(seed));  // moves the statistics
  model.net.eval();
  Step step = model.step();
  for (uint64_t call = 5; call < 9; ++call) {
    const Tensor wanted = mean(model.net(images(call)), {2, 3});
    EXPECT_TRUE(test::close(step({images(call)})[0], wanted, {.of_largest = 1e-13})) << call;
  }
  EXPECT_EQ(ops_of(step.captured()->fused.graph), "conv_norm_act conv_norm_act mean");
  // The statistics are operands: what moves them later counts.
  model.net.train();
  model.net(images(20));
  model.net.eval();
  EXPECT_TRUE(
      test::close(step({images(5)})[0], mean(model.net(images(5)), {2, 3}), {.of_largest = 1e-13}));
}

TEST(ConvStep, BatchNormInTrainingSaysWhyItIsNotFolded) {
  NormedConvolutions model;
  Step step = model.step();
  for (int call = 0; call < 3; ++call) step({Tensor::ones({3, 2, 9, 8}, DType::f64)});
  const std::string text = explain(*step.captured(), capture::RuleSet());
  for (const char* part :
      {"rule conv_norm_act: batch_norm2d takes the moments of this batch", "to fuse: call eval()"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace sinter
