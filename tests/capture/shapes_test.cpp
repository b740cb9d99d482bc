// A dense value in another shape is the same value to the rules: a step of x[.., I] runs the ops of
// one of x[B, I], to the bit, whatever the rank of x and of what is added to it. Note [A value in
// another shape] in capture/shapes.cpp.
#include <gtest/gtest.h>

#include <cstring>

#include "capture/executor.h"
#include "capture/recording.h"
#include "capture/rules.h"
#include "nn/glu.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

Tensor sample(const Shape& shape, uint64_t seed, Device device, DType dtype = DType::f32) {
  return cast(sample_tensor(shape, seed, -1, 1), dtype).to(device);
}
void expect_bits_of(const Tensors& wanted, const Tensors& got) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor a = got[i].to(kCpu), b = wanted[i].to(kCpu);
    ASSERT_EQ(a.numel(), b.numel());
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), size_t(a.numel()) * size_of(a.dtype())), 0)
        << "result " << i << ": " << a << " and " << b;
  }
}

struct Ran {
  std::string ops;
  size_t launches = 0;
  Tensors results;  // losses of the last call, then parameters
};

// Four calls of a step of [B, I], seen in another shape: forward, loss, backward, update.
struct StepOptionsOfTest {
  DType dtype = DType::f32;
  double dropout = 0;
  bool gated = false, residual = false;
};
Ran run(const Shape& shape, const Device device, const StepOptionsOfTest& o) {
  constexpr int64_t kIn = 12, kHidden = 16, kOut = 5;
  manual_seed(3);
  nn::Linear first(kIn, kHidden), second(kHidden, kHidden), last(kHidden, kOut);
  nn::Glu glu(kHidden, kHidden, kHidden, nn::Gate::silu);
  uint64_t seed = 1;
  nn::NamedTensors named;
  const auto add_module = [&](nn::Module& module, const char* name) {
    module.init_parameters(seed++);
    if (o.dtype == DType::bf16)
      module.enable_bf16();
    else
      module.to(o.dtype);
    module.to(device);
    for (const nn::NamedTensor& p : module.named_parameters())
      named.push_back({str(name, ".", p.name), p.tensor});
  };
  add_module(first, "first");
  add_module(second, "second");
  add_module(last, "last");
  if (o.gated) add_module(glu, "glu");
  nn::Adam optimizer(named, {});
  const auto f = [&](const Tensors& in) {
    optimizer.zero_grad();
    Tensor h = relu(first(in[0]));
    if (o.dropout > 0) h = dropout(h, o.dropout);
    Tensor y = gelu(second(h));
    if (o.residual) y = add(h, y);
    if (o.gated) y = glu(y);
    const Tensor logits = last(y);
    const Tensor loss = cross_entropy(reshape(logits, {logits.numel() / kOut, kOut}), in[1]);
    backward(loss);
    optimizer.step(loss);
    return Tensors{detach(loss)};
  };
  Step step(f, {.parameters =
                       [&](const auto& visit) {
                         for (const nn::NamedTensor& p : named) visit(p.tensor);
                       },
                   .measure = false});
  Ran ran;
  for (uint64_t call = 0; call < 4; ++call) {
    const Tensor x = sample({shape.numel() / kIn, kIn}, 10 + call, device,
        o.dtype == DType::bf16 ? DType::bf16 : o.dtype);
    ran.results = step({reshape(x, shape), sample_labels(x.size(0), kOut, call).to(device)});
  }
  for (const nn::NamedTensor& p : named) ran.results.push_back(p.tensor);
  ran.ops = ops_of(step.captured()->fused.graph);
  ran.launches = step.captured()->fused.graph.launches();
  return ran;
}

void check_steps(Device device) {
  const StepOptionsOfTest all[] = {{}, {.dtype = DType::bf16}, {.dtype = DType::f64},
      {.dropout = 0.25}, {.gated = true}, {.residual = true},
      {.dtype = DType::bf16, .gated = true, .residual = true}};
  // The emulator is slow, and the rules are the same: the richest step in two shapes.
  const bool few = device == kSimt;
  for (const StepOptionsOfTest& o : std::span(all).subspan(few ? std::size(all) - 1 : 0)) {
    const Ran flat = run({24, 12}, device, o);
    for (const Shape& shape : {Shape{4, 6, 12}, Shape{1, 24, 12}, Shape{24, 1, 12},
             Shape{2, 3, 4, 12}, Shape{2, 3, 2, 2, 12}}) {
      if (few && shape.rank() == 3 && shape[0] != 4) continue;
      SCOPED_TRACE(str(shape.str(), " on ", device.str(), " in ", name_of(o.dtype),
          o.dropout > 0 ? ", dropout" : "", o.gated ? ", gated" : "",
          o.residual ? ", residual" : ""));
      const Ran ran = run(shape, device, o);
      EXPECT_EQ(ran.ops, flat.ops);
      EXPECT_EQ(ran.launches, flat.launches);
      expect_bits_of(flat.results, ran.results);
    }
  }
}
TEST(Shapes, AStepOfAnyRankRunsTheOpsOfTwoDims) { check_steps(kCpu); }
TEST(ShapesSimt, AStepOfAnyRankRunsTheOpsOfTwoDims) { check_steps(kSimt); }

// What comes behind a layer of x[2, 3, 9], in a step without gradients.
using Function = std::function<Tensor(const Tensors&)>;
Rewriter rewritten(const Function& f, const Tensors& in, Tensors* found) {
  const NoGrad no_grad;
  Recording recording(in);
  const Graph graph = recording.finish({f(in)}, {});
  Rewriter r = rewrite(graph, RuleSet("all"), in[0].device().type);
  Executor executor(r.graph);
  executor.run(in);
  *found = executor.outputs();
  return r;
}

// Residuals, scalars, rows and columns of every rank join the product.
void check_operands(Device device) {
  const Shape shapes[] = {
      {2, 3, 11}, {1, 2, 3, 11}, {}, {1}, {1, 1}, {1, 1, 1}, {11}, {1, 11}, {1, 1, 11}, {2, 3, 1}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(str(shape.str(), " on ", device.str()));
    const Tensors in{sample({2, 3, 9}, 1, device), sample({11, 9}, 2, device),
        sample({11}, 3, device), sample(shape, 4, device)};
    const Function f = [](const Tensors& t) {
      return tanh(add(mul(linear(t[0], t[1], t[2]), t[3]), t[3]));
    };
    Tensors found;
    const Rewriter r = rewritten(f, in, &found);
    EXPECT_EQ(ops_of(r.graph), "product_chain") << dump(r.graph);
    const Tensor wanted = f(in);
    EXPECT_EQ(found[0].shape(), wanted.shape());
    // Sums of nine terms below 1 in another order, then three steps.
    EXPECT_TRUE(test::close(found[0], wanted, {.of_largest = 4 * 9 * 0x1p-23}));
  }
}
TEST(Shapes, OperandsOfAnyRankJoinAProduct) { check_operands(kCpu); }
TEST(ShapesSimt, OperandsOfAnyRankJoinAProduct) { check_operands(kSimt); }

// What really forbids an end is named, and the step is right without it.
void expect_miss(const Function& f, const Tensors& in, const char* ops, const char* why) {
  Tensors found;
  const Rewriter r = rewritten(f, in, &found);
  EXPECT_EQ(ops_of(r.graph), ops);
  ASSERT_EQ(r.misses.size(), 1u);
  EXPECT_EQ(r.misses[0].obstacle.why, why);
  EXPECT_TRUE(test::close(found[0], f(in), {.of_largest = 4 * 9 * 0x1p-23}));
}
TEST(Shapes, AViewThatForbidsAnEndIsNamed) {
  const Tensor x = sample({2, 3, 9}, 1, kCpu), w = sample({11, 9}, 2, kCpu);
  expect_miss([](const Tensors& t) { return add(linear(t[0], t[1]), t[2]); },
      {x, w, sample({3, 11}, 3, kCpu)}, "linear add",
      "add reads what linear gives, f32[6, 11] cpu, as f32[2, 3, 11] cpu, over which f32[3, 11] "
      "cpu is repeated by dims that the product has not");
  expect_miss([](const Tensors& t) { return relu(slice(linear(t[0], t[1]), 0, 1, 2)); }, {x, w},
      "linear relu", "relu reads what linear gives, f32[6, 11] cpu, in part, as f32[1, 3, 11] cpu");
  expect_miss([](const Tensors& t) { return relu(transpose(linear(t[0], t[1]), 0, 2)); }, {x, w},
      "linear relu",
      "relu reads what linear gives, f32[6, 11] cpu, in another order, as f32[11, 3, 2] cpu");
}

}  // namespace
}  // namespace sinter::capture
