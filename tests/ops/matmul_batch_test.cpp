// Several products in one launch, on the CPU and on the emulator, against sums in f64 by plain
// loops: dims that broadcast, views that nobody copies, gradients, costs, and what is refused.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "core/context.h"
#include "core/device/cpu_gemm.h"
#include "core/device/launch_log.h"
#include "core/device/simt.h"
#include "core/parallel.h"
#include "ops/product/gemm_library.h"
#include "ops/product/matrix_view.h"
#include "tests/ops/gemm_check.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using gemm_check::kSimt, gemm_check::Sum, gemm_check::tolerance;

// c is op(a) op(b), by its definition. `cut`: how much of a term is lost in front of the sums.
void expect_products(
    const Tensor& c, const Tensor& a, const Tensor& b, bool ta, bool tb, double cut = 0) {
  synchronize(c.device());
  const auto numbers = [](const Tensor& t) {
    return cast(t.to(kCpu), DType::f64).to_vector<double>();
  };
  const std::vector<double> of_a = numbers(a), of_b = numbers(b);
  // Where the matrix begins that the product at `at` reads.
  const auto begin = [](const Tensor& t, const Dims& at) {
    const Strides strides = contiguous_strides(t.shape());
    int64_t e = 0;
    for (int d = 3; d <= t.rank(); ++d) e += t.size(-d) == 1 ? 0 : at[-d] * strides[-d];
    return e;
  };
  const int64_t k = a.size(ta ? -2 : -1), ld_a = a.size(-1), ld_b = b.size(-1);
  std::vector<double> wanted;
  test::Within within;
  for (int64_t n = 0; n < c.numel(); ++n) {
    const Dims at = index_of(n, c.shape());
    const int64_t i = at[-2], j = at[-1];
    const double *x = of_a.data() + begin(a, at), *y = of_b.data() + begin(b, at);
    Sum sum;
    for (int64_t p = 0; p < k; ++p) {
      const double term =
          (ta ? x[p * ld_a + i] : x[i * ld_a + p]) * (tb ? y[j * ld_b + p] : y[p * ld_b + j]);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    wanted.push_back(sum.value);
    within.each.push_back(tolerance(sum, k, a.dtype(), c.dtype()) + cut * sum.magnitude);
  }
  within.empty = c.numel() == 0;
  EXPECT_TRUE(test::close(c, wanted, within)) << c.describe();
}

Tensor values(const Shape& shape, DType dtype, uint64_t seed, Device device) {
  return cast(sample_tensor(shape, seed, -1, 1), dtype).to(device);
}
// [B, H, S, D] as attention reads what lies as [B, S, H, D].
Tensor heads(const Tensor& t) { return transpose(t, 1, 2); }
// The same elements, every second place of memory: no row and no column is one piece.
Tensor with_gaps(const Tensor& t) {
  Shape shape = t.shape();
  shape.push_back(2);
  Strides strides = contiguous_strides(shape);
  strides = Strides(std::span(strides.begin(), size_t(t.rank())));
  const Tensor all = Tensor::full(shape, 0.5, t.dtype(), kCpu), dense = t.to(kCpu);
  visit_float(t.dtype(), [&]<class T>(T) {
    for (int64_t i = 0; i < t.numel(); ++i) all.data<T>()[2 * i] = dense.data<T>()[i];
  });
  return Tensor::view_of(all.to(t.device()).storage(), t.dtype(), t.shape(), strides, 0);
}

// a[.., M, K], b[.., K, N]
const std::pair<Shape, Shape> kShapes[] = {{{3, 7, 5}, {3, 5, 9}}, {{3, 48, 64}, {3, 64, 40}},
    {{2, 3, 33, 31}, {2, 3, 31, 65}}, {{2, 1, 9, 16}, {3, 16, 72}}, {{2, 3, 130, 8}, {1, 3, 8, 70}},
    {{6, 40}, {4, 40, 24}}, {{2, 3, 17, 8}, {8, 24}}, {{4, 1, 600}, {4, 600, 1}},
    {{1, 1, 7, 33}, {1, 2, 33, 8}}, {{0, 3, 4}, {0, 4, 5}}, {{2, 0, 4}, {2, 4, 5}},
    {{2, 3, 0}, {2, 0, 5}}, {{2, 3, 0, 4}, {4, 5}}};

void check(Device device, DType dtype) {
  for (const auto& [shape_a, shape_b] : kShapes) {
    for (const int stored : {0, 1, 2, 3}) {
      SCOPED_TRACE(str(shape_a.str(), " ", shape_b.str(), " ", stored, " ", name_of(dtype)));
      const bool ta = stored & 1, tb = stored & 2;
      const auto made = [&](Shape shape, bool turned, uint64_t seed) {
        if (turned) std::swap(shape[-2], shape[-1]);
        return values(shape, dtype, seed, device);
      };
      const Tensor a = made(shape_a, ta, 1), b = made(shape_b, tb, 2);
      expect_products(matmul(a, b, ta, tb), a, b, ta, tb);
      // The same as transposed views.
      const Tensor view_a = ta ? transpose(a) : a, view_b = tb ? transpose(b) : b;
      expect_products(matmul(view_a, view_b), view_a, view_b, false, false);
      if (stored != 0) continue;
      expect_products(matmul(with_gaps(a), b), a, b, false, false);
      expect_products(matmul(a, with_gaps(b)), a, b, false, false);
    }
  }
  for (const auto& [s, t, d] : {std::array<int64_t, 3>{5, 7, 3}, {70, 66, 32}, {1, 130, 8}}) {
    SCOPED_TRACE(str(s, " ", t, " ", d, " ", name_of(dtype)));
    const Tensor q = heads(values({2, s, 3, d}, dtype, 1, device)),
                 k = heads(values({2, t, 3, d}, dtype, 2, device)),
                 p = values({2, 3, s, t}, dtype, 3, device);
    expect_products(matmul(q, k, false, true), q, k, false, true);
    expect_products(matmul(p, k), p, k, false, false);
    expect_products(matmul(p, q, true), p, q, true, false);
  }
}

TEST(MatmulBatch, IsOneProductForEachIndexInFront) {
  for (const int threads : {1, 3}) {
    const test::Scoped scoped(num_threads, set_num_threads, threads);
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) check(kCpu, dtype);
  }
}
TEST(MatmulBatch, SimtIsOneProductForEachIndexInFront) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) check(kSimt, dtype);
}

// Operands of TF32 are cut to 11 bits.
TEST(MatmulBatch, SimtInTf32) {
  const test::Scoped scoped(allow_tf32, set_allow_tf32, true);
  const Tensor a = values({2, 3, 70, 40}, DType::f32, 1, kSimt),
               b = values({3, 40, 66}, DType::f32, 2, kSimt);
  expect_products(matmul(a, b), a, b, false, false, 0x1p-10);
}

// Long sums go in shares, and of few rows the columns are more than a grid has in y.
TEST(MatmulBatch, SimtSplitsSumsAndTurnsItsGrid) {
  const Tensor a = values({2, 3, 2048}, DType::f32, 1, kSimt),
               b = values({2, 2048, 5}, DType::f32, 2, kSimt);
  const LaunchLog log;
  expect_products(matmul(a, b), a, b, false, false);
  EXPECT_GT(log.launches().at(0).grid.z, 1);
  EXPECT_EQ(log.launches().at(0).grid.x, 2);
  constexpr int64_t kColumns = 64 * 65535 + 1;
  const simt::CountOnly count_only;
  matmul(
      Tensor::zeros({1, 1}, DType::f32, kSimt), Tensor::zeros({3, 1, kColumns}, DType::f32, kSimt));
  EXPECT_EQ(log.launches().back().grid, (Grid{3 * 65536, 1, 1}));
}

// An Inf or a NaN reaches its own product alone.
TEST(MatmulBatch, InfAndNanStayInTheirProduct) {
  for (const Device device : test::devices_of_tests()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Tensor a = values({3, 20, 70}, dtype, 1, kCpu);
      visit_float(dtype, [&]<class T>(T) {
        if constexpr (sizeof(T) < 8) a.data<T>()[20 * 70 + 5 * 70 + 3] = T(NAN);
      });
      const Tensor c = matmul(a.to(device), values({3, 70, 9}, dtype, 2, device));
      const std::vector<double> got = cast(c.to(kCpu), DType::f64).to_vector<double>();
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::isnan(got[i]), i / 9 == 25) << i << " " << device.str();
    }
  }
}

struct Names : Recorder {
  std::string text;
  Names() { Context::current().recorders.push_back(this); }
  ~Names() override { std::erase(Context::current().recorders, this); }
  void record(const Call& call) override { text += call.op.view ? "" : str(call.op.text(), " "); }
};

// Attention's products of heads, forward and backward: nothing is copied, by no op and in no
// kernel, and each is one launch.
TEST(MatmulBatch, HeadsAreCopiedNowhere) {
  for (const Device device : test::devices_of_tests()) {
    Tensor q = heads(values({2, 40, 3, 8}, DType::f32, 1, device)).set_requires_grad(true),
           k = heads(values({2, 50, 3, 8}, DType::f32, 2, device)).set_requires_grad(true),
           v = heads(values({2, 50, 3, 8}, DType::f32, 3, device)).set_requires_grad(true);
    const Tensor dy = values({2, 3, 40, 8}, DType::f32, 4, device);
    const auto run = [&] {
      backward(matmul(matmul(q, k, false, true), v), {.gradient = dy});
      for (const Tensor& t : {q, k, v}) t.autograd().grad = {};
    };
    run();  // a thread's buffers are made
    const Names names;
    const LaunchLog log;
    const int64_t before = allocator(device).stats().requests;
    run();
    EXPECT_EQ(names.text, "matmul matmul matmul matmul matmul matmul ");
    EXPECT_EQ(allocator(device).stats().requests - before, 6);
    EXPECT_EQ(log.launches().size(), device == kSimt ? 6u : 0u);
  }
}

// Rows that all meet one matrix are rows of one product.
TEST(MatmulBatch, DenseRowsOfAnyRankMeetAMatrixAsOneProduct) {
  const Tensor x = sample_tensor({2, 1, 3, 2, 4}, 1).set_requires_grad(true),
               w = sample_tensor({4, 5}, 2).set_requires_grad(true);
  const Names names;
  const Tensor y = matmul(x, w);
  EXPECT_EQ(y.shape(), (Shape{2, 1, 3, 2, 5}));
  EXPECT_EQ(y.to_vector<double>(), matmul(reshape(x, {12, 4}), w).to_vector<double>());
  clear_tape();
  backward(matmul(x, w), {.gradient = sample_tensor(y.shape(), 3)});
  EXPECT_EQ(names.text, "matmul matmul matmul matmul matmul ");
}

TEST(MatmulBatch, TheGradientOfAnOperandOfManyProductsIsTheirSumRoundedOnce) {
  Tensor w = values({8, 6}, DType::bf16, 1, kCpu).set_requires_grad(true);
  const Tensor x = values({64, 6, 1}, DType::bf16, 2, kCpu),
               dy = values({64, 8, 1}, DType::bf16, 3, kCpu);
  backward(matmul(w, x), {.gradient = dy});
  EXPECT_EQ(w.grad().dtype(), DType::bf16);
  std::vector<double> wanted(48);
  test::Within within{.each = std::vector<double>(48)};
  for (size_t at = 0; at < 48; ++at) {
    double magnitude = 0;
    for (int64_t n = 0; n < 64; ++n) {
      const double term = double(dy.data<bf16>()[n * 8 + int64_t(at) / 6]) *
                          x.data<bf16>()[n * 6 + int64_t(at) % 6];
      wanted[at] += term;
      magnitude += std::abs(term);
    }
    // Sums of f32 in any order, then one rounding to 8 bits.
    within.each[at] = 64 * 0x1p-24 * magnitude + 0x1p-8 * std::abs(wanted[at]);
  }
  EXPECT_TRUE(test::close(w.grad(), wanted, within));
}

// Each operand once, whatever it is spread over.
TEST(MatmulBatch, Costs) {
  const Tensor a = Tensor::meta({2, 1, 5, 7}), b = Tensor::meta({3, 7, 4});
  const MatmulAttrs attrs;
  const Tensors c = kMatmulOp.results(Tensors{a, b}, attrs);
  EXPECT_EQ(c[0].shape(), (Shape{2, 3, 5, 4}));
  const Cost cost = kMatmulOp.cost(Tensors{a, b}, c, attrs);
  EXPECT_EQ(cost.flops, 2 * 120 * 7);
  EXPECT_EQ(cost.bytes_read, 4 * (70 + 84));
  EXPECT_EQ(cost.bytes_written, 4 * 120);
}

TEST(MatmulBatch, Refuses) {
  const Tensor a = Tensor::meta({2, 3, 4}), v = Tensor::meta({4});
  const auto message = [](const Tensor& x, const Tensor& y) {
    return test::message_of([&] { matmul(x, y); });
  };
  EXPECT_EQ(message(a, Tensor::meta({3, 4, 5})),
      "matmul: batch sizes differ: a is f32[2, 3, 4] cpu, b is f32[3, 4, 5] cpu; a.shape[0] is 2, "
      "b.shape[0] is 3, and neither is 1");
  EXPECT_EQ(message(a, Tensor::meta({7, 1, 5, 4})),
      "matmul: inner sizes differ: a is f32[2, 3, 4] cpu, b is f32[7, 1, 5, 4] cpu; a.shape[2] is "
      "4, b.shape[2] is 5\n    hint: matmul(a, b, false, true)");
  EXPECT_EQ(message(a, v),
      "matmul: wrong rank: a is f32[2, 3, 4] cpu, b is f32[4] cpu; b must have 2..4 dims, it has 1"
      "\n    hint: reshape(b, [4, 1])");
  EXPECT_EQ(message(Tensor::meta({1, 2, 3, 4, 5}), Tensor::meta({2, 5, 6})),
      "matmul: wrong rank: a is f32[1, 2, 3, 4, 5] cpu; a must have 2..4 dims, it has 5");
}

// What batch_of() makes of two dims: one where the products lie evenly.
TEST(MatmulBatch, TwoDimsAreOneWhereProductsLieEvenly) {
  const auto of = [](const Tensor& a, const Tensor& b) {
    const Tensors c = kMatmulOp.results(Tensors{a, b}, MatmulAttrs{});
    return batch_of(a, a.strides(), b, b.strides(), c[0]);
  };
  const Tensor dense = Tensor::meta({2, 3, 4, 5}), other = Tensor::meta({2, 3, 5, 6});
  EXPECT_EQ(of(dense, other), (GemmBatch{{1, 6}, {0, 20}, {0, 30}}));
  EXPECT_EQ(of(heads(Tensor::meta({2, 4, 3, 5})), other), (GemmBatch{{2, 3}, {60, 5}, {90, 30}}));
  EXPECT_EQ(of(heads(Tensor::meta({1, 4, 3, 5})), Tensor::meta({3, 5, 6})),
      (GemmBatch{{1, 3}, {0, 5}, {0, 30}}));
  EXPECT_EQ(of(dense, Tensor::meta({5, 6})), (GemmBatch{{1, 6}, {0, 20}, {0, 0}}));
  EXPECT_EQ(of(dense, Tensor::meta({3, 5, 6})), (GemmBatch{{2, 3}, {60, 20}, {0, 30}}));
}

}  // namespace
}  // namespace sinter
