// The gradients of whole nets in bf16, eager and fused, against f64: the same rounded weights and
// inputs, and each value rounded where bf16 training stores it, forward and backward. So a cast
// that is in the wrong place on both sides shows, which no comparison of fused with eager can see.
#include <gtest/gtest.h>

#include <cmath>

#include "core/context.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/net.h"
#include "nn/pool.h"
#include "nn/sequential.h"
#include "tests/capture/step_util.h"
#include "tests/closeness.h"

namespace sinter {
namespace {

using capture::Step;

constexpr double kU = 0x1p-8;  // bf16 rounds by at most this share of a value

// Where the f64 nets round. A wrong one shows that the comparison would fail.
enum class Wrong { nothing, weight_gradients, one_layer_less, factor };

struct Roundings {
  Wrong wrong = Wrong::nothing;
  mutable int layer = 0;

  static Tensor rounded(const Tensor& x) { return cast(cast(x, DType::bf16), DType::f64); }
  // A value that is stored in bf16, and so is its gradient: that of a cast is a cast.
  Tensor r(const Tensor& x) const {
    return wrong == Wrong::one_layer_less && ++layer == 2 ? x : rounded(x);
  }
  // A result in f32 whose gradient the products behind it read in bf16: x, by way of its rounding.
  Tensor g(const Tensor& x) const {
    const Tensor low = rounded(x), y = low + detach(x - low);
    return wrong == Wrong::factor ? scale(y, 1 + 32 * kU) : y;
  }
};

struct NetInBf16 {
  const char* name;
  std::function<std::shared_ptr<nn::Module>()> make;
  Shape input;
  // Its logits from its parameters in f64.
  Tensor (*exact)(const Roundings&, const Tensors& p, const Tensor& x);
};

Tensor exact_mlp(const Roundings& at, const Tensors& p, const Tensor& x) {
  Tensor h = at.r(gelu(at.r(linear(x, p[0], p[1]))));
  h = at.r(silu(at.r(linear(h, p[2], p[3]))));
  return at.g(linear(h, p[4])) + p[5];
}
Tensor exact_glu(const Roundings& at, const Tensors& p, const Tensor& x) {
  const Tensor h = at.r(gelu(at.r(linear(x, p[0], p[1]))));
  const Tensor open = at.r(gelu_tanh(at.r(linear(at.r(h), p[2]))));
  const Tensor y = at.r(linear(at.r(open * at.r(linear(at.r(h), p[3]))), p[4]));
  return at.g(linear(y, p[5])) + p[6];
}
Tensor exact_lenet(const Roundings& at, const Tensors& p, const Tensor& x) {
  const Pool2dAttrs half{2, 2, 2, 2, 0, 0};
  Tensor h = max_pool2d(relu(at.r(conv2d(x, p[0], p[1], {1, 1, 2, 2}))), half);
  h = flatten(max_pool2d(relu(at.r(conv2d(h, p[2], p[3]))), half));
  for (const size_t layer : {4, 6}) h = relu(at.r(linear(h, p[layer], p[layer + 1])));
  return at.g(linear(h, p[8])) + p[9];
}
// Batch norm and the activation behind it compute and store in f32. The convolutions have no
// biases: their gradients would be 0.
Tensor exact_batch_norm(const Roundings& at, const Tensors& p, const Tensor& x) {
  const auto normed = [](const Tensor& y, const Tensor& weight, const Tensor& bias) {
    const Shape features{weight.numel()};
    return silu(batch_norm2d(y, weight, bias, Tensor::zeros(features, DType::f64),
        Tensor::ones(features, DType::f64), Tensor::zeros({}, DType::i64)));
  };
  Tensor h = at.r(normed(at.r(conv2d(x, p[0])), p[1], p[2]));
  h = at.r(normed(at.r(conv2d(h, p[3])), p[4], p[5]));
  return at.g(linear(flatten(h), p[6])) + p[7];
}

const NetInBf16 kNets[] = {
    {"mlp",
        [] {
          return std::shared_ptr<nn::Module>(new nn::Sequential{
              nn::Linear(40, 64), nn::Gelu(), nn::Linear(64, 48), nn::Silu(), nn::Linear(48, 10)});
        },
        {64, 40}, exact_mlp},
    {"glu",
        [] {
          return std::shared_ptr<nn::Module>(new nn::Sequential{
              nn::Linear(40, 32), nn::Gelu(), nn::Glu(32, 48, 24), nn::Linear(24, 10)});
        },
        {64, 40}, exact_glu},
    {"lenet",
        [] {
          return std::shared_ptr<nn::Module>(new nn::Net(str(nn::kLenetLayers, "10"), {1, 28, 28}));
        },
        {4, 1, 28, 28}, exact_lenet},
    {"batch norm",
        [] {
          return std::shared_ptr<nn::Module>(new nn::Sequential{nn::Conv2d(2, 6, 3, 1, 0, false),
              nn::BatchNorm2d(6), nn::Silu(), nn::Conv2d(6, 8, 3, 1, 0, false), nn::BatchNorm2d(8),
              nn::Silu(), nn::Flatten(), nn::Linear(8 * 4 * 4, 10)});
        },
        {16, 2, 8, 8}, exact_batch_norm},
};

struct Gradients {
  std::vector<std::string> names;
  Tensors of;
  int roundings;  // values that an eager step stores in bf16
};

struct CountsRoundings : Recorder {
  int count = 0;
  CountsRoundings() { Context::current().recorders.push_back(this); }
  ~CountsRoundings() override { std::erase(Context::current().recorders, this); }
  void record(const Call& call) override {
    for (const Tensor& t : call.out) count += !call.op.view && t.dtype() == DType::bf16;
  }
};

Gradients in_bf16(const NetInBf16& n, const Tensors& in, const char* rules) {
  const auto net = n.make();
  net->init_parameters(3);
  net->enable_bf16();
  const auto train = [&](const Tensors& batch) {
    net->zero_grad();
    const Tensor losses = cross_entropy((*net)(batch[0]), batch[1]);
    backward(losses);
    return Tensors{losses};
  };
  Step step(train, {.rules = capture::RuleSet(rules ? rules : "none"),
                       .parameters = nn::parameter_visitor(*net),
                       .measure = false});
  Gradients found{};
  if (rules) {
    for (int call = 0; call < 3; ++call) step(in);  // the third replays
  } else {
    CountsRoundings counts;
    train(in);
    found.roundings = counts.count;
  }
  for (const auto& [name, p] : net->named_parameters()) {
    found.names.push_back(name);
    found.of.push_back(p.grad());
  }
  return found;
}

Tensors in_f64(const NetInBf16& n, const Tensors& in, Wrong wrong = Wrong::nothing) {
  const auto net = n.make();
  net->init_parameters(3);
  net->enable_bf16();
  Tensors params;
  for (const Tensor& p : net->parameters()) {
    const Tensor copy = bf16_copy_of(p);
    params.push_back(cast(copy.defined() ? copy : detach(p), DType::f64));
    params.back().set_requires_grad(true);
  }
  const Roundings at{wrong};
  backward(cross_entropy(n.exact(at, params, cast(in[0], DType::f64)), in[1]));
  Tensors found;
  for (const Tensor& p : params) {
    const bool rounds = wrong == Wrong::weight_gradients && p.rank() > 1;
    found.push_back(rounds ? Roundings::rounded(p.grad()) : p.grad());
  }
  return found;
}

Tensors batch_for(const NetInBf16& n) {
  const Tensor x = sample_tensor(n.input, 1, -1, 1);
  return {cast(cast(x, DType::bf16), DType::f32), sample_labels(n.input[0], 10, 2)};
}

// The comparison can fail: some gradient is beyond the bound, and none is refused, as a NaN is.
testing::AssertionResult some_apart(const Gradients& got, const Tensors& exact, double bound) {
  bool apart = false;
  for (size_t i = 0; i < exact.size(); ++i) {
    const test::Closeness found = test::closeness(got.of[i], exact[i], {.of_largest = bound});
    if (found.refused) return testing::AssertionFailure() << got.names[i] << ": " << found.text;
    apart = apart || found.share > 1;
  }
  return apart ? testing::AssertionSuccess() : testing::AssertionFailure() << "no difference";
}

void expect_gradients(const Gradients& got, const Tensors& exact, double bound) {
  ASSERT_EQ(got.of.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i)
    EXPECT_TRUE(test::close(got.of[i], exact[i], {.of_largest = bound})) << got.names[i];
}

// Eager rounds where the f64 net does. What is left: sums in f32 turn a rounding here and there, of
// one number among the hundreds that a gradient sums, so less than a quarter of one rounding.
constexpr double kSameRoundings = kU / 4;

TEST(Bf16Gradients, EagerRoundsWhereItShould) {
  for (const NetInBf16& n : kNets) {
    SCOPED_TRACE(n.name);
    const Tensors in = batch_for(n);
    const Gradients got = in_bf16(n, in, nullptr);
    expect_gradients(got, in_f64(n, in), kSameRoundings);
    for (const Wrong wrong : {Wrong::weight_gradients, Wrong::one_layer_less, Wrong::factor})
      EXPECT_TRUE(some_apart(got, in_f64(n, in, wrong), kSameRoundings)) << int(wrong);
  }
}

// Fused keeps some of the values in f32 that eager rounds, at most all N of them. A rounding moves
// a gradient by a number between -u and u of it, of standard deviation u / sqrt(3); N independent
// ones by less than 3.5 of sqrt(N) u / sqrt(3).
TEST(Bf16Gradients, FusedIsWithinTheRoundingsOfEager) {
  for (const NetInBf16& n : kNets) {
    SCOPED_TRACE(n.name);
    const Tensors in = batch_for(n);
    const double bound = 2 * std::sqrt(double(in_bf16(n, in, nullptr).roundings)) * kU;
    for (const char* rules : {"all", "all,-pointwise_chain,-weight_bias_grad"}) {
      const Gradients got = in_bf16(n, in, rules);
      expect_gradients(got, in_f64(n, in), bound);
      EXPECT_TRUE(some_apart(got, in_f64(n, in, Wrong::factor), bound)) << rules;
    }
  }
}

}  // namespace
}  // namespace sinter
