// Ops on meta tensors: all of apply() but memory, kernel and times; and what follows from a fused
// op's reference by such a run.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "core/context.h"
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/ops.h"
#include "tests/ops/ends.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

TEST(Meta, OpsGiveMetaTensorsAndComputeNothing) {
  const Tensor x = Tensor::meta({1 << 20, 1 << 10}), w = Tensor::zeros({3, 1 << 10});
  const Tensor y = relu(linear(x, w));  // of 4 GB
  EXPECT_TRUE(x.is_meta());
  EXPECT_FALSE(w.is_meta());
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.describe(), "f32[1048576, 3] cpu");
  EXPECT_EQ(y.storage()->bytes(), 12u << 20);
  test::expect_error(Error::Kind::state, {"elements of a meta tensor"}, [&] { y.data<float>(); });
  test::expect_error(Error::Kind::shape, {"linear: input features differ"}, [&] { linear(y, w); });
}

TEST(Meta, ViewsShareAStorageAndWritesCountVersions) {
  const Tensor x = Tensor::meta({4, 6}), half = slice(x, 1, 0, 3);
  EXPECT_EQ(half.storage(), x.storage());
  EXPECT_TRUE(half.is_meta());
  EXPECT_FALSE(half.is_contiguous());
  EXPECT_NE(Tensor::meta({4, 6}).storage()->uid(), x.storage()->uid());
  accumulate(x, Tensor::meta({4, 6}));
  EXPECT_EQ(half.storage()->version(), 1u);
  EXPECT_STREQ(half.storage()->last_writer(), "accumulate");
}

TEST(Meta, BackwardGivesMetaGradients) {
  const Tensor x = Tensor::meta({4, 6}), labels = Tensor::meta({4}, DType::i32);
  Tensor w = Tensor::meta({3, 6});
  w.set_requires_grad(true);
  backward(cross_entropy(linear(x, w), labels));
  EXPECT_TRUE(w.grad().is_meta());
  EXPECT_EQ(w.grad().shape(), w.shape());
}

TEST(Reference, GivesShapesAndCost) {
  const Tensor x = Tensor::meta({4, 6}), w = Tensor::meta({3, 6}), b = Tensor::meta({3});
  const ProductChainAttrs attrs = ends::linear_act(Act::relu, true);
  const Trace trace = trace_reference(kProductChainOp, Tensors{x, w, b}, attrs);
  ASSERT_EQ(trace.ops.size(), 2u);
  EXPECT_EQ(trace.ops[0].op, &kLinearOp);
  EXPECT_EQ(trace.ops[1].op->text(), "relu");
  EXPECT_TRUE(trace.ops[1].in[0].is_same(trace.ops[0].out[0]));
  EXPECT_TRUE(trace.ops[1].out[0].is_same(trace.results[0]));
  const Tensors out = kProductChainOp.results(Tensors{x, w, b}, attrs);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].describe(), "f32[4, 3] cpu");
  EXPECT_EQ(out[1].describe(), "f32[4, 3] cpu");
  const Cost cost = kProductChainOp.cost(Tensors{x, w, b}, out, attrs);
  EXPECT_EQ(cost.flops, 12 * (2 * 6 + 1 + 1));
  EXPECT_EQ(cost.bytes_read, 4 * (24 + 18 + 3));
  EXPECT_EQ(cost.bytes_written, 4 * 2 * 12);
}

// B 4, C 5, H 6: log_softmax 5 a cell and 1 a row, nll 2 a row, their backward 4 a cell; smoothing
// 1 a cell and 2 a row; two products, a bias, relu's backward.
TEST(Reference, CountsTheFlopsOfAllItsOps) {
  const Tensor h = Tensor::meta({4, 6}), w = Tensor::meta({5, 6}), b = Tensor::meta({5}),
               z = Tensor::meta({4, 5}), labels = Tensor::meta({4}, DType::i32),
               seed = Tensor::meta({4});
  const auto flops = [](const OpDef& op, const Tensors& in, const Attrs& attrs) {
    return op.cost(in, op.results(in, attrs), attrs).flops;
  };
  EXPECT_EQ(flops(kSoftmaxXentOp, {z, labels, seed}, SoftmaxXentAttrs{}), 9 * 20 + 3 * 4);
  EXPECT_EQ(flops(kSoftmaxXentOp, {z, labels, seed}, SoftmaxXentAttrs{0.1}), 10 * 20 + 5 * 4);
  const RowChainAttrs of_relu{.input_grad = true, .of_act = true};
  const int64_t head = flops(kRowChainOp, {h, labels, seed, {}, w, b}, of_relu);
  EXPECT_EQ(head, 2 * (2 * 20 * 6) + 20 + 9 * 20 + 3 * 4 + 24);
  // The head's without the layer before it: that, and its dX.
  const Tensor x = Tensor::meta({4, 3}), w0 = Tensor::meta({6, 3}), b0 = Tensor::meta({6});
  const auto chain = [&](const RowChainAttrs& attrs) {
    return flops(kRowChainOp, {x, labels, seed, {}, w0, b0, w, b}, attrs) - head;
  };
  const int64_t layer = 2 * 4 * 6 * 3, act = 24 + 24;
  EXPECT_EQ(chain({}), layer + act);
  EXPECT_EQ(chain({.input_grad = true}), 2 * layer + act);
  EXPECT_EQ(chain(of_relu), 2 * layer + act + 12);
  EXPECT_EQ(flops(kWeightBiasGradOp, {z, h}, {}), 2 * 4 * 5 * 6 + 20);
}

TEST(Reference, NoRecorderHearsOfIt) {
  struct Silent : Recorder {
    void record(const Call& call) override { ADD_FAILURE() << call.op.text(); }
  } silent;
  Context::current().recorders.push_back(&silent);
  kGatedLinearOp.results(
      Tensors{Tensor::zeros({7, 3}), Tensor::zeros({4, 3}), Tensor::zeros({4, 3})},
      GatedLinearAttrs{});
  Context::current().recorders.pop_back();
}

TEST(Reference, ItsErrorsAndTheKernelsLimitNameTheFusedOp) {
  const Tensor h = Tensor::zeros({4, 6}), w = Tensor::zeros({65, 6}), seed = Tensor::zeros({4}),
               labels = Tensor::zeros({4}, DType::i32);
  test::expect_error(Error::Kind::shape,
      {"row_chain: operands do not fit: f32[4, 6] cpu, ", "; linear: input features differ"}, [&] {
        kRowChainOp.results(Tensors{h, labels, seed, {}, Tensor::zeros({65, 7})}, RowChainAttrs{});
      });
  test::expect_error(
      Error::Kind::shape, {"row_chain: ", "; there are 65 classes; at most 64 classes"}, [&] {
        kRowChainOp.results(Tensors{h, labels, seed, {}, w}, RowChainAttrs{});
      });
  const Tensor large = Tensor::zeros({600, 6}), last = Tensor::zeros({10, 600});
  test::expect_error(Error::Kind::shape,
      {"row_chain: ",
          "; weights and 16 rows of 6-600-600-10 take 1891328 bytes of shared memory; "
          "at most 232448 bytes"},
      [&] {
        kRowChainOp.results(
            Tensors{h, labels, seed, {}, large, {}, Tensor::zeros({600, 600}), {}, last},
            RowChainAttrs{});
      });
  test::expect_error(Error::Kind::shape,
      {"row_chain: 4 inputs given; it takes 4, and weight and bias of 1 to 4 layers"}, [&] {
        kRowChainOp.results(Tensors{h, labels, seed, {}}, RowChainAttrs{});
      });
}

}  // namespace
}  // namespace sinter
