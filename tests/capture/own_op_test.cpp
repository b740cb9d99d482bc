// Ops that a program brings along, in a captured step: they fuse as ours do.
#include <gtest/gtest.h>

#include "capture/rules.h"
#include "ops/pointwise/pointwise_op.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

struct OwnSoftsign : pointwise::Unary<pointwise::Facts{
                         .saves = pointwise::Saves::output, .flops = 3, .backward_flops = 3}> {
  SINTER_POINTWISE(OwnSoftsign, "own_softsign")
  template <class T> SINTER_FN T forward(T x) const { return x / (T(1) + (x < 0 ? -x : x)); }
  template <class T> SINTER_FN T grad(T dy, T y) const {
    const T slope = T(1) - (y < 0 ? -y : y);
    return dy * slope * slope;
  }
};
template <class Number>
struct OwnShiftOf : pointwise::Unary<pointwise::Facts{
                        .saves = pointwise::Saves::nothing, .flops = 1, .backward_flops = 0}> {
  Number by = Number(0);
  SINTER_POINTWISE(OwnShiftOf, "own_shift", by)
  static constexpr auto number() { return &OwnShiftOf::by; }
  template <class T> SINTER_FN T forward(T x) const { return x + T(by); }
  template <class T> SINTER_FN T grad(T dy) const { return dy; }
};
// Two attributes: a step of a chain has room for one.
struct OwnLine : pointwise::Unary<pointwise::Facts{
                     .saves = pointwise::Saves::nothing, .flops = 2, .backward_flops = 1}> {
  double slope = 1, offset = 0;
  SINTER_POINTWISE(OwnLine, "own_line", slope, offset)
  template <class T> SINTER_FN T forward(T x) const { return x * T(slope) + T(offset); }
  template <class T> SINTER_FN T grad(T dy) const { return dy * T(slope); }
};

Tensor softsign(const Tensor& x) { return apply1(pointwise_op<OwnSoftsign>(), {x}, OwnSoftsign{}); }
Tensor shift(const Tensor& x, double by) {
  OwnShiftOf<double> op;
  op.by = by;
  return apply1(pointwise_op<OwnShiftOf<double>>(), {x}, op);
}
Tensor line(const Tensor& x) {
  OwnLine op;
  op.slope = 2;
  op.offset = 3;
  return apply1(pointwise_op<OwnLine>(), {x}, op);
}

// The fused graph's ops after three calls; every call gives what the function gives, to the bit.
std::string replayed_ops(const Step::Function& function, const Tensor& x) {
  Step step(function);
  const std::vector<double> wanted = function({x})[0].to_vector<double>();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step({x})[0].to_vector<double>(), wanted) << "call " << i;
  return ops_of(step.captured()->fused.graph);
}

TEST(OwnPointwise, IsAStepOfAChain) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{5, 7}, Shape{3000}, Shape{1}}) {
      const Tensor x = cast(sample_tensor(shape, 1), dtype);
      EXPECT_EQ(
          replayed_ops(
              [](const Tensors& in) { return Tensors{exp(shift(softsign(in[0]), 0.25))}; }, x),
          "pointwise_chain");
    }
  }
}

TEST(OwnPointwise, AndSoIsItsBackward) {
  Tensor w = sample_tensor({4, 5}, 1).set_requires_grad(true);
  const auto function = [&](const Tensors& in) {
    w.autograd().grad = {};
    backward(softsign(in[0] * w) * in[0]);
    return Tensors{w.grad()};
  };
  const std::string ops = replayed_ops(function, sample_tensor({4, 5}, 2));
  EXPECT_EQ(ops.find("own_softsign"), std::string::npos) << ops;
}

TEST(OwnPointwise, WithMoreThanOneNumberStaysALaunch) {
  EXPECT_EQ(replayed_ops([](const Tensors& in) { return Tensors{exp(line(neg(in[0])))}; },
                sample_tensor({4, 5}, 1)),
      "neg own_line exp");
}

TEST(OwnPointwise, ChainsOfItPrintAndParse) {
  softsign(Tensor::ones({1}));
  ChainProgram program;
  ASSERT_TRUE(parse_value("1;own_softsign(0);exp(1);2", program));
  EXPECT_EQ(print_value(program), "1;own_softsign(0);exp(1);2");
}

TEST(Numbers, AreConstantsOfACapturedStep) {
  EXPECT_EQ(replayed_ops([](const Tensors& in) { return Tensors{(1 - (in[0] + 2)) > 0.5}; },
                sample_tensor({4, 5}, 1, 0.6, 1)),
      "pointwise_chain");
  double changing = 1;
  Step step([&](const Tensors& in) { return Tensors{in[0] + (changing *= 2)}; });
  step({Tensor::ones({2})});
  test::expect_error(
      Error::Kind::state, {"a constant, is 2 in", "4 in"}, [&] { step({Tensor::ones({2})}); });
}

TEST(OwnRule, NamesAreUnique) {
  test::expect_error(Error::Kind::usage, {"two rules of one name: softmax_xent"},
      [] { add_rule(kSoftmaxXentOp); });
}

// What is missing is said before anything asks for it.
TEST(OwnRule, AnIncompleteOneIsRefused) {
  static const OpDef no_cost{.name = "own_fusion",
      .infer = [](Operands in, const Attrs&) { return Tensors{in[0]}; },
      .cpu = [](const Call&) {},
      .reference = [](Operands in, const Attrs&) { return Tensors{neg(in[0])}; },
      .forms =
          [] {
            return std::vector<Form>{{{Tensor::meta({2})}, {}}};
          }};
  test::expect_error(
      Error::Kind::usage, {"no fused op: own_fusion", ".cost"}, [] { add_rule(no_cost); });
}

TEST(OwnOp, AnIncompleteOneIsRefused) {
  const auto infer = [](Operands in, const Attrs&) { return Tensors{Tensor::meta(in[0].shape())}; };
  const auto cost = [](Operands in, Operands out, const Attrs&) { return cost_of(0, in, out); };
  static const OpDef no_infer{.name = "no_infer", .cost = cost, .cpu = [](const Call&) {}},
      no_cost{.name = "no_cost", .infer = infer, .cpu = [](const Call&) {}};
  for (const OpDef* op : {&no_infer, &no_cost}) {
    test::expect_error(Error::Kind::usage, {op->name.c_str(), "its OpDef lacks .cost, or"},
        [&] { apply(*op, {Tensor::ones({2})}); });
  }
}

}  // namespace
}  // namespace sinter::capture
