// Layers: what they compute, against compositions of ops, forward and backward; dropout; the bf16
// path.
#include <cmath>

#include "autograd/autograd.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/embedding.h"
#include "nn/glu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/mlp.h"
#include "nn/pool.h"
#include "nn/rms_norm.h"
#include "nn/safetensors.h"
#include "nn/sequential.h"
#include "tests/closeness.h"
#include "tests/data/data_test_util.h"
#include "tests/python.h"
#include "tests/test_util.h"

namespace sinter::nn {
namespace {

TEST(Layers, ActivationsAreTheirOps) {
  const Tensor x = sample_tensor({3, 5}, 1);
  const std::vector<std::pair<std::string, Tensor>> wanted{{"relu", relu(x)}, {"gelu", gelu(x)},
      {"gelu_tanh", gelu_tanh(x)}, {"silu", silu(x)}, {"tanh", sinter::tanh(x)},
      {"sigmoid", sigmoid(x)}, {"softplus", softplus(x)}, {"leaky_relu", leaky_relu(x, 0.01)},
      {"elu", elu(x, 1.0)}, {"mish", mul(x, sinter::tanh(softplus(x)))}};
  EXPECT_EQ(wanted.size(), activation_names().size());
  for (const auto& [name, y] : wanted)
    EXPECT_TRUE(test::close((*make_activation(name))(x), y,
        {.absolute = name == "mish" ? 4e-15 : 0}));  // a composition
  EXPECT_EQ(LeakyRelu(0.2)(x).to_vector<double>(), leaky_relu(x, 0.2).to_vector<double>());
}

TEST(Layers, MlpIsItsComposition) {
  Mlp mlp({5, 7, 3}, {.activation = "tanh"});
  const auto p = mlp.parameters();
  const Tensor x = cast(sample_tensor({4, 5}, 1), DType::f32);
  EXPECT_EQ(mlp(x).to_vector<float>(),
      linear(sinter::tanh(linear(x, p[0], p[1])), p[2], p[3]).to_vector<float>());
}

TEST(Layers, GluForwardAndBackwardAreTheirComposition) {
  for (const Gate gate : {Gate::gelu, Gate::gelu_tanh, Gate::silu}) {
    Glu glu(5, 6, 3, gate);
    EXPECT_EQ(glu.gate_weight().storage(), glu.up_weight().storage());  // two halves of one block
    EXPECT_EQ(glu.up_weight().offset(), glu.gate_weight().offset() + 6 * 5);
    glu.to(DType::f64);
    EXPECT_EQ(glu.gate_weight().storage(), glu.up_weight().storage());
    Tensor x = sample_tensor({4, 5}, 1).set_requires_grad(true),
           x2 = copy(detach(x)).set_requires_grad(true);
    Tensor w[3];
    for (size_t i = 0; i < 3; ++i) w[i] = copy(detach(glu.parameters()[i])).set_requires_grad(true);
    const Tensor seed = sample_tensor({4, 3}, 2);
    const Tensor y = glu(x);
    backward(y, {.gradient = seed});
    const Tensor g = matmul(x2, w[0], false, true);
    const Tensor open = gate == Gate::silu   ? silu(g)
                        : gate == Gate::gelu ? sinter::gelu(g)
                                             : gelu_tanh(g);
    const Tensor y2 = matmul(open * matmul(x2, w[1], false, true), w[2], false, true);
    backward(y2, {.gradient = seed});
    EXPECT_TRUE(test::close(y, y2, {.absolute = 1e-12}));
    EXPECT_TRUE(test::close(x.grad(), x2.grad(), {.absolute = 1e-12}));
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(test::close(glu.parameters()[i].grad(), w[i].grad(), {.absolute = 1e-12}));
  }
}

TEST(Layers, DropoutDropsInTrainingOnly) {
  manual_seed(5);
  Dropout half(0.25);
  const Tensor x = Tensor::full({100, 100}, 3);
  const auto y = half(x).to_vector<float>();
  const auto zeros = double(std::count(y.begin(), y.end(), 0.0f));
  EXPECT_NEAR(zeros / 1e4, 0.25, 0.02);
  EXPECT_EQ(double(std::count(y.begin(), y.end(), 4.0f)), 1e4 - zeros);
  half.eval();
  EXPECT_TRUE(half(x).is_same(x));
  EXPECT_TRUE(Dropout(0)(x).is_same(x));
}

TEST(Layers, LayerNormHasPyTorchsKeysAndStartsNeutral) {
  LayerNorm norm(5);
  const NamedTensors state = norm.state_dict();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "weight");
  EXPECT_EQ(state[1].name, "bias");
  EXPECT_EQ(norm.describe(), "LayerNorm(5)");
  norm.init_parameters(3);
  const Tensor x = cast(sample_tensor({2, 3, 5}, 1), DType::f32);
  const Tensor neutral = layer_norm(x, Tensor::ones({5}), Tensor::zeros({5}));
  EXPECT_EQ(norm(x).to_vector<float>(), neutral.to_vector<float>());
  EXPECT_EQ(norm(cast(x, DType::bf16)).dtype(), DType::f32);
  test::expect_error(Error::Kind::usage, {"features is 0"}, [] { LayerNorm(0); });
}

TEST(Layers, RmsNormHasPyTorchsKeyAndStartsNeutral) {
  RMSNorm norm(5), bare(5, 1e-5, false);
  ASSERT_EQ(norm.state_dict().size(), 1u);
  EXPECT_EQ(norm.state_dict()[0].name, "weight");
  EXPECT_TRUE(bare.state_dict().empty());
  EXPECT_EQ(norm.describe(), "RMSNorm(5)");
  EXPECT_EQ(bare.describe(), "RMSNorm(5, no weight)");
  norm.init_parameters(3);
  const Tensor x = cast(sample_tensor({2, 3, 5}, 1), DType::f32);
  EXPECT_EQ(norm(x).to_vector<float>(), rms_norm(x).to_vector<float>());
  EXPECT_EQ(bare(x).to_vector<float>(), rms_norm(x).to_vector<float>());
  EXPECT_EQ(norm(cast(x, DType::bf16)).dtype(), DType::f32);
  test::expect_error(Error::Kind::usage, {"features is 0"}, [] { RMSNorm(0); });
  test::expect_error(
      Error::Kind::shape, {"RMSNorm: wrong number of features", "f32[2, 4]", "5"}, [&] {
        bare(Tensor::ones({2, 4}));
      });
}

// A model of tokens: a summary needs no word of them, and its table is learned.
TEST(Layers, EmbeddingIsARowForEachToken) {
  Sequential model{Embedding(27, 6), RMSNorm(6), Linear(6, 3)};
  const NamedTensors state = model.state_dict();
  EXPECT_EQ(state[0].name, "0.weight");
  EXPECT_EQ(state[0].tensor.shape(), (Shape{27, 6}));
  model.init_parameters(4);
  const auto table = state[0].tensor.to_vector<double>();
  double squares = 0;
  for (const double v : table) squares += v * v;
  EXPECT_NEAR(squares / double(table.size()), 1, 0.4);  // 162 draws: 3.5 deviations
  test::expect_facts(model.summary({4, 8}), {"Embedding(27, 6)", "[4, 8, 6]", "[4, 8, 3]"});
  for (const DType type : {DType::i32, DType::i64}) {
    const Tensor tokens = cast(reshape(sample_labels(32, 27, 1), {4, 8}), type);
    EXPECT_EQ(model(tokens).shape(), (Shape{4, 8, 3}));
  }
  test::expect_error(
      Error::Kind::usage, {"Embedding: sizes must be 1 or more", "0"}, [] { Embedding(0, 3); });
  test::expect_error(Error::Kind::dtype, {"embedding", "tokens", "must be i32"}, [&] {
    model(Tensor::ones({2, 3}));
  });
}

TEST(Layers, Conv2dIsItsOpAndSpeaksAsPyTorch) {
  Conv2d square(3, 6, 5), other(1, 4, {3, 2}, {2, 1}, {1, 0}, false);
  EXPECT_EQ(square.describe(), "Conv2d(3, 6, kernel_size=(5, 5), stride=(1, 1))");
  EXPECT_EQ(other.describe(),
      "Conv2d(1, 4, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), bias=False)");
  const NamedTensors state = square.state_dict();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "weight");
  EXPECT_EQ(state[0].tensor.shape(), (Shape{6, 3, 5, 5}));
  EXPECT_EQ(state[1].name, "bias");
  EXPECT_EQ(other.state_dict().size(), 1u);
  const Tensor x = cast(sample_tensor({2, 3, 7, 6}, 1), DType::f32), grey = slice(x, 1, 0, 1);
  EXPECT_EQ(
      square(x).to_vector<float>(), conv2d(x, square.weight(), square.bias()).to_vector<float>());
  EXPECT_EQ(other(grey).to_vector<float>(),
      conv2d(grey, other.weight(), {}, {2, 1, 1, 0}).to_vector<float>());
}

TEST(Layers, Conv2dStartsAsInPyTorch) {
  Conv2d conv(4, 64, 5);  // fan_in 100
  for (const Tensor& p : conv.parameters()) {
    const Tensor zeros = Tensor::zeros(p.shape());
    EXPECT_TRUE(test::close(p, zeros, {.absolute = 0.1}));
    EXPECT_TRUE(test::apart(p, zeros, {.absolute = 0.09}))
        << "of 64 draws none is that large with 0.9^64 = 0.001";
  }
  using test::expect_error;
  expect_error(Error::Kind::usage, {"in 0, out 4"}, [] { Conv2d(0, 4, 3); });
  expect_error(Error::Kind::usage, {"kernel is [0]", "at least 1"}, [] { Conv2d(1, 4, 0); });
  expect_error(Error::Kind::usage, {"stride is [1, 0]"}, [] { Conv2d(1, 4, 3, {1, 0}); });
  expect_error(Error::Kind::usage, {"padding is [1, 2, 3]", "one number or two"}, [] {
    Conv2d(1, 4, 3, 1, {1, 2, 3});
  });
}

// Loads our state dict strictly, and gives back y and the gradients for a gradient of ones.
TEST(Layers, Conv2dAgreesWithTorch) {
  Conv2d conv(2, 3, {3, 2}, {2, 1}, {1, 2});
  Tensor x = cast(sample_tensor({2, 2, 7, 6}, 1), DType::f32).set_requires_grad(true);
  const test::TempDir folder;
  write_safetensors(folder.file("conv.safetensors"), conv.state_dict());
  write_safetensors(folder.file("x.safetensors"), {{"x", detach(x)}});
  const int status = test::run_python("nn/torch_conv2d.py", folder.path());
  if (status == 77) GTEST_SKIP() << test::kNoTorch;
  ASSERT_EQ(status, 0);
  const Tensor y = conv(x);
  backward(y, {.gradient = Tensor::ones(y.shape())});
  const NamedTensors torch = read_safetensors(folder.file("torch.safetensors")).tensors;
  // Sums of up to 84 terms of about 1.
  EXPECT_TRUE(test::close(y, *find(torch, "y"), {.absolute = 1e-5}));
  EXPECT_TRUE(test::close(x.grad(), *find(torch, "x"), {.absolute = 1e-5}));
  EXPECT_TRUE(test::close(conv.weight().grad(), *find(torch, "weight"), {.absolute = 1e-4}));
  EXPECT_TRUE(test::close(conv.bias().grad(), *find(torch, "bias"), {.absolute = 1e-4}));
}

TEST(Layers, PoolsAndFlattenAreTheirOps) {
  const Tensor x = sample_tensor({2, 3, 6, 8}, 1);
  Sequential net{MaxPool2d(2), AvgPool2d(3, 1, 1), Flatten()};
  EXPECT_EQ(&net[-1], &net[2]);
  for (const int64_t i : {int64_t{-1000}, int64_t{-4}, int64_t{3}, int64_t{1000}, INT64_MIN})
    test::expect_error(Error::Kind::usage,
        {str("Sequential: no such layer: ", i, " of 3; allowed -3..2")}, [&] { net[i]; });
  test::expect_error(
      Error::Kind::usage, {"no such layer: 0 of 0; it has none"}, [] { Sequential()[0]; });
  const Tensor pooled = avg_pool2d(max_pool2d(x), {3, 3, 1, 1, 1, 1});
  EXPECT_EQ(net(x).shape(), (Shape{2, 3 * 3 * 4}));
  EXPECT_EQ(net(x).to_vector<double>(), pooled.to_vector<double>());
  EXPECT_EQ(net[0].describe(), "MaxPool2d(kernel_size=2, stride=2, padding=0)");
  EXPECT_EQ(net[1].describe(), "AvgPool2d(kernel_size=3, stride=1, padding=1)");
  EXPECT_EQ(net[2].describe(), "Flatten(start_dim=1)");
  EXPECT_EQ(MaxPool2d({3, 2, 1, 2}).describe(),
      "MaxPool2d(kernel_size=(3, 2), stride=(1, 2), padding=0)");
  test::expect_error(Error::Kind::shape,
      {"max_pool2d: the window does not fit", "in MaxPool2d(kernel_size=9, stride=9"},
      [&] { MaxPool2d(9)(x); });
}

TEST(Layers, BatchNormTrainsByTheBatchAndEvaluatesByItsStatistics) {
  BatchNorm2d norm(3, 1e-5, 0.5);
  EXPECT_EQ(norm.describe(), "BatchNorm2d(3, eps=1e-05, momentum=0.5)");
  const NamedTensors state = norm.state_dict();
  std::vector<std::string> names;
  for (const auto& [name, t] : state) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "weight", "bias", "running_mean", "running_var", "num_batches_tracked"}));
  EXPECT_EQ(norm.parameters().size(), 2u) << "no optimizer sees the statistics";

  const Tensor x = cast(sample_tensor({4, 3, 5, 2}, 1, 1, 2), DType::f32);
  const Tensor ones = Tensor::ones({3}), zeros = Tensor::zeros({3});
  const Tensor mean = Tensor::zeros({3}), var = Tensor::ones({3}),
               batches = Tensor::zeros({}, DType::i64);
  const Tensor wanted = batch_norm2d(x, ones, zeros, mean, var, batches, {0.5, 1e-5});
  EXPECT_EQ(norm(x).to_vector<float>(), wanted.to_vector<float>());
  EXPECT_EQ(state[2].tensor.to_vector<float>(), mean.to_vector<float>());
  EXPECT_EQ(state[3].tensor.to_vector<float>(), var.to_vector<float>());
  EXPECT_EQ(state[4].tensor.item(), 1);

  norm.eval();
  EXPECT_EQ(
      norm(x).to_vector<float>(), batch_norm2d_eval(x, ones, zeros, mean, var).to_vector<float>());
  EXPECT_EQ(state[4].tensor.item(), 1) << "evaluation changes nothing";
  EXPECT_EQ(norm(cast(x, DType::bf16)).dtype(), DType::f32);

  norm.init_parameters(3);
  EXPECT_EQ(state[2].tensor.to_vector<float>(), zeros.to_vector<float>());
  EXPECT_EQ(state[3].tensor.to_vector<float>(), ones.to_vector<float>());
  EXPECT_EQ(state[4].tensor.item(), 0);
  test::expect_error(Error::Kind::usage, {"num_features is 0"}, [] { BatchNorm2d(0); });
}

// By hand: of 1 and 3 the mean is 2 and the variance 1, over n - 1 it is 2.
TEST(Layers, NormsHaveTheirOwnNumbers) {
  const Tensor x = Tensor::from({1, 3}, {1, 2}), column = Tensor::from({1, 3}, {2, 1});
  EXPECT_EQ(LayerNorm(2, 3)(x).to_vector<float>(), (std::vector<float>{-0.5, 0.5}));
  BatchNorm2d norm(1, 3, 0.25);
  EXPECT_EQ(norm(column).to_vector<float>(), (std::vector<float>{-0.5, 0.5}));
  const NamedTensors state = norm.state_dict();
  EXPECT_EQ(state[2].tensor.item(), 0.5);
  EXPECT_EQ(state[3].tensor.item(), 0.75 + 0.25 * 2);
  norm.eval();
  const double r = 1 / std::sqrt(1.25 + 3);
  EXPECT_TRUE(test::close(norm(column), {0.5 * r, 2.5 * r}, {.of_each = 1e-6}));
}

TEST(Layers, BatchNormConvertsWithItsStatistics) {
  BatchNorm2d norm(3);
  for (const DType dtype : {DType::f64, DType::bf16}) {
    norm.to(dtype);
    const NamedTensors state = norm.state_dict();
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(state[i].tensor.dtype(), dtype) << state[i].name;
    EXPECT_EQ(state[4].tensor.dtype(), DType::i64);
    EXPECT_EQ(norm(Tensor::ones({2, 3, 1, 1}, dtype)).dtype(), dtype);
  }
  EXPECT_EQ(norm.state_dict()[4].tensor.item(), 2);
}

TEST(Layers, Bf16KeepsMastersAndLogitsInF32) {
  Mlp mlp({32, 64, 10});
  const Tensor x = cast(sample_tensor({16, 32}, 1, -1, 1), DType::f32),
               labels = sample_labels(16, 10, 2);
  const Tensor exact = mlp(x);
  mlp.enable_bf16();
  EXPECT_EQ(mlp.layers()[0](cast(x, DType::bf16)).dtype(), DType::bf16);
  const Tensor logits = mlp(x);
  EXPECT_EQ(logits.dtype(), DType::f32);
  // Relative rounding 2^-9 of inputs, weights and activations, summed over 32 and 64 terms of about
  // 0.1.
  EXPECT_TRUE(test::close(logits, exact, {.absolute = 0.02}));
  EXPECT_NE(logits.to_vector<float>(), exact.to_vector<float>());
  mlp.zero_grad();
  backward(CrossEntropyLoss{}(logits, labels));
  for (const auto& [name, p] : mlp.named_parameters()) {
    EXPECT_EQ(p.dtype(), DType::f32) << name;
    EXPECT_EQ(p.grad().dtype(), DType::f32) << name;
    EXPECT_EQ(p.autograd().bf16_copy.defined(), name.ends_with("weight")) << name;
  }
  Glu glu(32, 16, 10);
  const Tensor before = glu(x);
  glu.enable_bf16();
  EXPECT_EQ(glu.gate_weight().autograd().bf16_copy.storage(),
      glu.up_weight().autograd().bf16_copy.storage());
  EXPECT_EQ(glu(x).dtype(), DType::f32);
  EXPECT_TRUE(test::close(glu(x), before, {.absolute = 0.02}));
}

TEST(Layers, LossesAreRowsOfTheirOps) {
  const Tensor x = sample_tensor({4, 3}, 1), t = sample_tensor({4, 3}, 2),
               labels = sample_labels(4, 3, 3);
  EXPECT_EQ(MseLoss{}(x, t).to_vector<double>(), mse(x, t).to_vector<double>());
  EXPECT_EQ(CrossEntropyLoss{0.1}(x, labels).to_vector<double>(),
      cross_entropy(x, labels, 0.1).to_vector<double>());
  EXPECT_NE(CrossEntropyLoss{0.1}(x, labels).to_vector<double>(),
      cross_entropy(x, labels).to_vector<double>());
}

}  // namespace
}  // namespace sinter::nn
