// Module: names, tree, summary, training flag, types, and the path that it leaves in errors.
#include "nn/module.h"

#include "autograd/autograd.h"
#include "nn/activations.h"
#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/optim.h"
#include "tests/closeness.h"
#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter::nn {
namespace {

std::vector<std::string> names(const NamedTensors& list) {
  std::vector<std::string> out;
  for (const auto& [name, _] : list) out.push_back(name);
  return out;
}
using Names = std::vector<std::string>;

TEST(Module, MlpHasPyTorchsKeysAndCounts) {
  const Mlp mlp({784, 256, 128, 10});
  EXPECT_EQ(mlp.num_parameters(), 235'146);
  EXPECT_EQ(names(mlp.named_parameters()),
      (Names{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"}));
  EXPECT_EQ(names(Mlp({4, 3, 2, 1}, {.dropout = 0.2}).state_dict()),
      (Names{"0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias"}));
  for (const auto& [name, tensor] : mlp.named_parameters()) EXPECT_EQ(tensor.autograd().name, name);
  EXPECT_EQ(mlp.named_parameters()[2].tensor.shape().str(), "[128, 256]");
}

struct Custom : Module {
  Custom() {
    add_buffer("mean", Tensor::zeros({3}));
    add_parameter("scale", Tensor::ones({3}));
    net = add(
        "net", std::make_shared<Sequential>(Linear(3, 4), Sequential{Relu(), Linear(4, 2, false)}));
  }
  Tensor forward(const Tensor& x) override { return (*net)(x * tensor(1)); }
  std::string describe() const override { return "Custom"; }
  std::shared_ptr<Sequential> net;
};

TEST(Module, TreeOfModulesNamesPrintsAndConverts) {
  Custom custom;
  EXPECT_EQ(names(custom.named_parameters()),
      (Names{"scale", "net.0.weight", "net.0.bias", "net.1.1.weight"}));
  EXPECT_EQ(names(custom.state_dict())[0], "mean");
  EXPECT_EQ(custom.net->parameters()[2].autograd().name, "net.1.1.weight");
  EXPECT_EQ(custom.str(),
      "Custom(\n"
      "  (net): Sequential(\n"
      "    (0): Linear(3 -> 4)\n"
      "    (1): Sequential(\n"
      "      (0): ReLU\n"
      "      (1): Linear(4 -> 2, no bias)\n"
      "    )\n"
      "  )\n"
      ")\n");
  custom.net->append(std::make_shared<Linear>(2, 1));  // after it was added: still knows its place
  EXPECT_EQ(custom.parameters().back().autograd().name, "net.2.bias");

  const auto before = custom.parameters()[1].to_vector<float>();
  custom.to(DType::f64);
  for (const auto& [name, tensor] : custom.state_dict())
    EXPECT_EQ(tensor.dtype(), DType::f64) << name;
  EXPECT_EQ(custom.parameters()[1].to_vector<float>(), before);
  EXPECT_TRUE(custom.parameters()[1].requires_grad());
  EXPECT_EQ(custom.parameters()[1].autograd().name, "net.0.weight");
  EXPECT_FALSE(custom.state_dict()[0].tensor.requires_grad());
  EXPECT_EQ(custom(Tensor::zeros({5, 3}, DType::f64)).describe(), "f64[5, 1] cpu");
  test::expect_error(Error::Kind::dtype, {"i32"}, [&] { custom.to(DType::i32); });
}

TEST(Module, ErrorsNameThePath) {
  Mlp mlp({8, 4, 2});
  test::expect_error(Error::Kind::shape,
      {"linear: ", "f32[3, 7] cpu", "f32[4, 8] cpu", "\n    in MLP / layers.0 / Linear(8 -> 4)"},
      [&] {
        mlp(Tensor::zeros({3, 7}));
      });
  Custom custom;
  test::expect_error(Error::Kind::shape, {"in Custom"}, [&] { custom(Tensor::zeros({3, 7})); });
  Sequential net{Sequential{Relu(), Linear(4, 3)}, Linear(8, 2)};
  test::expect_error(Error::Kind::shape, {"in Sequential / 1 / Linear(8 -> 2)"}, [&] {
    net(Tensor::zeros({3, 4}));
  });
  test::expect_error(Error::Kind::shape, {"in Sequential / 0.1 / Linear(4 -> 3)"}, [&] {
    net(Tensor::zeros({3, 5}));
  });
}

TEST(Module, SummaryCountsParametersAndFlops) {
  Mlp mlp({784, 256, 128, 10}, {.dropout = 0.5});
  mlp.layers()[1].eval();
  const std::string text = mlp.summary({128, 784});
  // 2 B I O of the product and B O of the bias; ReLU 1 per element.
  test::expect_facts(text, {"layers.0 / Linear(784 -> 256)", "[128, 256]", "200960", "51412992",
                               "layers.1 / ReLU", "32768", "235146"});
  const int64_t products = 2 * 128 * (784 * 256 + 256 * 128 + 128 * 10),
                rest = 128 * (256 + 128 + 10) + 128 * (256 + 128);
  test::expect_facts(text, {std::to_string(products + rest)});
  EXPECT_TRUE(mlp.is_training());
  EXPECT_FALSE(mlp.layers()[1].is_training());  // every flag is as it was
  EXPECT_TRUE(mlp.layers()[2].is_training());
  // Nothing is calculated: no machine has the memory of this batch.
  test::expect_facts(mlp.summary({1'000'000'000, 784}), {"[1000000000, 256]"});
}

// A model that reads numbers of words, say, whose weights are f32.
TEST(Module, SummaryOfAModelThatReadsIntegers) {
  struct Words : Module {
    Tensor forward(const Tensor& x) override {
      SINTER_CHECK(x.dtype() == DType::i64, dtype, x.describe());
      return (*linear)(cast(x, DType::f32));
    }
    std::string describe() const override { return "Words"; }
    std::shared_ptr<Linear> linear = add("linear", Linear(4, 2));
  } words;
  test::expect_facts(words.summary({3, 4}, DType::i64), {"Linear(4 -> 2)", "[3, 2]"});
  EXPECT_THROW(words.summary({3, 4}), Error);
}

TEST(Module, RefusesBadSizesAndNames) {
  using enum Error::Kind;
  test::expect_error(usage, {"Linear", "in 0"}, [] { Linear(0, 3); });
  test::expect_error(usage, {"Glu", "hidden -1"}, [] { Glu(2, -1, 3); });
  test::expect_error(usage, {"Mlp", "1 given"}, [] { Mlp({784}); });
  test::expect_error(usage, {"Dropout", "1", "p < 1"}, [] { Dropout(1); });
  test::expect_error(usage, {"activation", "rleu", "nearest is relu"}, [] {
    Mlp({3, 2, 1}, {.activation = "rleu"});
  });
  test::expect_error(
      usage, {"activation", "swishy", "allowed relu, gelu"}, [] { make_activation("swishy"); });
}

TEST(Module, ZeroGradAndTrain) {
  Mlp mlp({3, 2, 1}, {.dropout = 0.5});
  backward(mean(mlp(Tensor::ones({4, 3}))));
  EXPECT_TRUE(mlp.parameters()[0].grad().defined());
  mlp.zero_grad();
  for (const Tensor& p : mlp.parameters()) EXPECT_FALSE(p.grad().defined());
  mlp.parameters()[0].autograd().grad_taken_by = "weight_grad_update";  // as a fused step leaves it
  mlp.zero_grad();
  EXPECT_FALSE(mlp.parameters()[0].grad().defined());
  mlp.eval();
  for (const Module* m : mlp.modules()) EXPECT_FALSE(m->is_training());
  mlp.train();
  for (const Module* m : mlp.modules()) EXPECT_TRUE(m->is_training());
}

TEST(ModuleSimt, GoesToADeviceInPlace) {
  constexpr Device kSimt{Device::Type::simt, 0};
  Glu here(4, 6, 3), there(4, 6, 3);
  here.init_parameters(3);
  there.init_parameters(3);
  there.enable_bf16();
  const auto tensors = there.parameters();
  tensors[0].autograd().grad = Tensor::ones(tensors[0].shape());
  there.to(kSimt);
  EXPECT_TRUE(there.parameters()[0].is_same(tensors[0]));
  EXPECT_EQ(tensors[0].storage(), tensors[1].storage()) << "gate and up stay halves of one block";
  for (const Tensor& t : tensors) {
    EXPECT_EQ(t.device(), kSimt);
    EXPECT_EQ(t.autograd().bf16_copy.device(), kSimt);
  }
  EXPECT_EQ(tensors[0].grad().device(), kSimt);
  for (size_t i = 0; i < tensors.size(); ++i)
    EXPECT_EQ(tensors[i].to_vector<float>(), here.parameters()[i].to_vector<float>());
  there.init_parameters(4);
  here.init_parameters(4);  // drawn on the host
  EXPECT_EQ(tensors[2].to_vector<float>(), here.parameters()[2].to_vector<float>());
  copy_values(tensors[1], here.parameters()[0], "test");
  EXPECT_EQ(tensors[1].to_vector<float>(), here.parameters()[0].to_vector<float>());
  EXPECT_EQ(bf16_copy_of(tensors[1]).to_vector<float>()[5],
      float(bf16(here.parameters()[0].to_vector<float>()[5])));
  there.to(kCpu);
  EXPECT_EQ(tensors[1].data<float>()[7], here.parameters()[0].data<float>()[7]);
}

// An autoencoder whose decoder is the encoder's weight, and a module that stands in two places.
struct Tied : Module {
  std::shared_ptr<Linear> encoder = add("encoder", std::make_shared<Linear>(4, 3));
  std::shared_ptr<Linear> again;
  Tied() {
    add_parameter("own", encoder->weight());
    again = add("again", encoder);
  }
  Tensor forward(const Tensor& x) override { return (*again)(matmul((*encoder)(x), tensor(0))); }
  std::string describe() const override { return "Tied"; }
};

TEST(Module, TiedWeightsAreOneParameterUnderEveryName) {
  Tied net;
  EXPECT_EQ(names(net.named_parameters()), (Names{"own", "encoder.bias"}));
  EXPECT_EQ(net.num_parameters(), 12 + 3);
  EXPECT_EQ(names(net.state_dict()),
      (Names{"own", "encoder.weight", "encoder.bias", "again.weight", "again.bias"}));
  EXPECT_EQ(net.modules().size(), 2u);
  EXPECT_EQ(net.encoder->weight().autograd().name, "own");
  EXPECT_EQ(net.encoder->bias().autograd().name, "encoder.bias");

  // The optimizer sees it once: a step of plain SGD takes its gradient off once.
  Sgd sgd(net.named_parameters(), {.lr = 0.5, .momentum = 0});
  const Tensor before = copy(detach(net.encoder->weight()));
  backward(mean(net(Tensor::ones({2, 4}))));
  const Tensor wanted = before - scale(net.encoder->weight().grad(), 0.5);
  sgd.step();
  EXPECT_TRUE(test::close(net.encoder->weight(), wanted, {.of_each = 4 * 0x1p-24}));

  net.to(DType::f64);
  EXPECT_EQ(names(net.named_parameters()), (Names{"own", "encoder.bias"})) << "they stay tied";
}

// ---- Note [A parameter that nobody registered]

struct PlainLinear : Module {
  Linear fc{3, 4};
  Tensor forward(const Tensor& x) override { return fc(x); }
  std::string describe() const override { return "Net"; }
};
struct PlainTensor : Module {
  Tensor weight = Tensor::ones({3}).set_requires_grad(true);
  Tensor forward(const Tensor& x) override { return x * weight; }
  std::string describe() const override { return "Net"; }
};
struct PlainDropout : Module {
  Dropout drop{0.5};
  Relu act;
  Tensor forward(const Tensor& x) override { return act(drop(x)); }
  std::string describe() const override { return "Net"; }
};

TEST(Module, AModuleAsAPlainMemberIsAnErrorWithAHint) {
  PlainLinear net;
  test::expect_error(Error::Kind::usage,
      {"Linear(3 -> 4) is called in the forward of Net", "no module has it as a child",
          "add(\"NAME\", std::make_shared"},
      [&] {
        net(Tensor::ones({2, 3}));
      });
  PlainDropout drops;
  test::expect_error(Error::Kind::usage, {"Dropout(0.5)"}, [&] { drops(Tensor::ones({2, 3})); });
}

TEST(Module, AChildThatHoldsItsParentIsRefused) {
  struct Node : Module {
    Tensor forward(const Tensor& x) override { return x; }
    std::string describe() const override { return "Node"; }
    void hold(const std::shared_ptr<Module>& child) { add("next", child); }
  };
  const auto a = std::make_shared<Node>(), b = std::make_shared<Node>();
  const auto refused = [](const std::function<void()>& f) {
    test::expect_error(Error::Kind::usage, {"child next may not hold Node"}, f);
  };
  refused([&] { a->hold(a); });
  a->hold(b);
  refused([&] { b->hold(a); });
  EXPECT_EQ(a->modules().size(), 2u);
}

TEST(Module, ATensorAsAPlainMemberIsAnErrorWithAHint) {
  PlainTensor net;
  test::expect_error(Error::Kind::usage,
      {"mul: a parameter that was never registered: f32[3] cpu", "in the forward of Net",
          "add_parameter(\"NAME\", tensor)"},
      [&] {
        net(Tensor::ones({2, 3}));
      });
  backward(sum(net.weight * 2));  // outside of a module it is a leaf like any other
  EXPECT_EQ(net.weight.grad().to_vector<float>()[0], 2);
}

TEST(Module, WhatSomebodyAnswersForIsAllowed) {
  const Tensor x = Tensor::ones({2, 3});
  PlainLinear net;
  {
    const NoGrad no_grad;
    EXPECT_EQ(net(x).size(1), 4);
  }
  PlainLinear frozen;
  for (const Tensor& t : {frozen.fc.weight(), frozen.fc.bias()}) {
    Tensor handle = t;
    handle.set_requires_grad(false);
  }
  EXPECT_EQ(frozen(x).size(1), 4);
  PlainLinear critic;  // of its own optimizer
  Sgd optimizer(critic.fc.named_parameters());
  EXPECT_EQ(critic(x).size(1), 4);
  PlainTensor stepped;
  Sgd by_hand({{"weight", stepped.weight}});
  EXPECT_EQ(stepped(x).size(1), 3);
  // An input that requires grad, at any depth, and modules made on the way that hold nothing.
  Sequential outer{Sequential{Relu(), Linear(3, 2)}, Tanh()};
  Tensor input = Tensor::ones({2, 3}).set_requires_grad(true);
  backward(sum(outer(input)));
  EXPECT_TRUE(input.grad().defined());
  Activation inner("inner", [](const Tensor& v) { return Relu()(v); });
  EXPECT_EQ(inner(x).size(1), 3);
  // Converted parameters are still known.
  Mlp mlp({3, 2});
  mlp.to(DType::f64);
  backward(sum(mlp(cast(x, DType::f64))));
}

}  // namespace
}  // namespace sinter::nn
