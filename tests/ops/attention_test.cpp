// attention at the sizes at which its kernels change their ways, against plain loops; its operands
// where they lie; its memory. Small samples of it go through the loops over all ops.
#include <gtest/gtest.h>

#include <cmath>

#include "core/device/launch_log.h"
#include "core/device/simt.h"
#include "core/parallel.h"
#include "ops/product/gemm_library.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"
#include "tests/ops/device_samples.h"
#include "tests/ops/plain_loops.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

struct Size {
  int64_t heads, groups, rows, keys, depth;
  bool causal;
  std::string str() const {
    return sinter::str(heads, " heads of ", groups, ", ", rows, " rows, ", keys, " keys, depth ",
        depth, causal ? ", causal" : "");
  }
};

Tensors operands_of(const Size& n, DType dtype, Device device = kCpu) {
  const int64_t batch = n.heads > 1 ? 2 : 1;
  const Shape q{batch, n.heads, n.rows, n.depth}, k{batch, n.groups, n.keys, n.depth};
  Tensors in;
  for (const auto& [shape, seed] : {std::pair{q, 1}, {k, 2}, {k, 3}, {q, 4}})
    in.push_back(cast(sample_tensor(shape, uint64_t(seed), -1, 1), dtype).to(device));
  return in;
}
AttentionAttrs attrs_of(const Size& n) { return {1 / std::sqrt(double(n.depth)), n.causal}; }

// o, lse, dq, dk, dv of q, k, v, do.
Tensors both(const Tensors& in, const AttentionAttrs& attrs) {
  Tensors all = apply(kAttentionOp, {in[0], in[1], in[2]}, attrs);
  for (const Tensor& t :
      apply(kAttentionBackwardOp, {in[3], in[0], in[1], in[2], all[0], all[1]}, attrs))
    all.push_back(t);
  return all;
}

// A sum of up to 130 products of numbers up to 1, of which each is as far off as its weight: that
// is 2^-24 of its score and of a sum of `depth` terms. In bf16 what comes back is rounded to 8
// bits, and o, which backward reads, has been; on tensor cores weights and slopes are, too, between
// two products. TF32 rounds both factors of a product to 11 bits.
double tolerance_of(const Size& n, DType dtype) {
  const auto terms = double(n.depth + n.rows * n.heads / n.groups + n.keys);
  const bool tf32 = dtype == DType::f32 && allow_tf32();
  if (dtype == DType::bf16 || tf32) return (tf32 ? 0x1p-10 : 0x1p-8) * (2 + std::sqrt(terms) / 4);
  return (dtype == DType::f64 ? 0x1p-53 : 0x1p-24) * 8 * std::sqrt(terms);
}

void check(const Size& n, DType dtype, Device device) {
  SCOPED_TRACE(str(n.str(), ", ", name_of(dtype)));
  const Tensors in = operands_of(n, dtype);
  const AttentionAttrs attrs = attrs_of(n);
  const Tensors found = both(there(in, device), attrs);
  const plain::Lists forward = plain::of_attention(in, attrs);
  const Tensors saved{found[0].to(kCpu), found[1].to(kCpu)};
  const plain::Lists backward =
      plain::of_attention_backward({in[3], in[0], in[1], in[2], saved[0], saved[1]}, attrs);
  for (size_t r = 0; r < found.size(); ++r) {
    const plain::List& list = r < 2 ? forward[r] : backward[r - 2];
    const std::vector<double> wanted(list.begin(), list.end());
    EXPECT_TRUE(test::close(found[r].to(kCpu).to_vector<double>(), wanted,
        {.of_each = dtype == DType::bf16 ? 0x1p-8 : 0,
            .absolute = tolerance_of(n, dtype),
            .empty = true}))
        << "result " << r;
  }
}

std::vector<Size> sizes(const std::vector<int64_t>& lengths, const std::vector<int64_t>& depths) {
  std::vector<Size> all;
  for (const int64_t rows : lengths) {
    for (const int64_t keys : lengths) {
      const int64_t depth = depths[all.size() / 2 % depths.size()];
      for (const bool causal : {false, true}) all.push_back({1, 1, rows, keys, depth, causal});
    }
  }
  for (const int64_t groups : {1, 2, 4}) {
    for (const int64_t depth : depths) all.push_back({4, groups, 65, 70, depth, groups != 2});
  }
  return all;
}

TEST(Attention, IsThatOfPlainLoops) {
  for (const Size& n : sizes({1, 7, 63, 65, 130}, {4, 32, 80, 128})) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) check(n, dtype, kCpu);
  }
}

// Short heads lie side by side in lanes: as many as fill none of them, and sizes that fill no four.
TEST(Attention, ShortIsThatOfPlainLoops) {
  for (const int64_t heads : {8, 9, 13, 17}) {  // of AVX-512 the last alone
    for (const auto& [rows, keys, depth] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 1}, {16, 16, 4}, {7, 12, 3}, {12, 7, 18}, {33, 5, 8}, {5, 33, 16}, {32, 32, 5}})
      for (const bool causal : {false, true})
        for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
          check({heads, heads, rows, keys, depth, causal}, dtype, kCpu);
  }
}

TEST(Attention, ShortOnesMeetInfAndNanWhereTheyAre) {
  const Size n{8, 8, 6, 6, 4, true};
  Tensors in = operands_of(n, DType::f32);
  const std::vector<float> before = attention(in[0], in[1], in[2], true).to_vector<float>();
  in[1].data<float>()[(2 * 6 + 3) * 4] = NAN;  // key 3 of head 2
  for (int64_t d = 0; d < 6 * 4; d += 4) in[1].data<float>()[5 * 6 * 4 + d] = -INFINITY;
  for (int64_t r = 0; r < 6; ++r) in[0].data<float>()[(5 * 6 + r) * 4] = 1;  // head 5
  const std::vector<float> o = attention(in[0], in[1], in[2], true).to_vector<float>();
  for (size_t i = 0; i < o.size(); ++i) {
    const size_t head = i / 24, row = i / 4 % 6;
    if ((head == 2 && row >= 3) || head == 5) {
      EXPECT_TRUE(std::isnan(o[i])) << i;
    } else {
      EXPECT_EQ(o[i], before[i]) << i;
    }
  }
}

TEST(Attention, ThreadsDoNotShow) {
  std::vector<Size> all = sizes({7, 130, 600}, {32, 20});
  all.push_back({9, 9, 16, 16, 4, true});
  for (const Size& n : all) {
    SCOPED_TRACE(n.str());
    const Tensors in = operands_of(n, DType::f32);
    std::vector<std::vector<float>> wanted;
    for (const int threads : {1, 2, 3, 8}) {
      const test::Scoped count(num_threads, set_num_threads, threads);
      std::vector<std::vector<float>> found;
      for (const Tensor& t : both(in, attrs_of(n))) found.push_back(t.to_vector<float>());
      if (threads == 1) wanted = found;
      EXPECT_EQ(found, wanted) << threads << " threads";
    }
  }
}

// Heads are views of what a layer gives, and are not copied: the same numbers to the bit.
class AttentionHeads : public ::testing::TestWithParam<std::array<int64_t, 3>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AttentionHeads,
    ::testing::Values(std::array<int64_t, 3>{2, 70, 4}, std::array<int64_t, 3>{5, 10, 4}));
TEST_P(AttentionHeads, AreReadWhereTheyLie) {
  const auto [batch, rows, heads] = GetParam();
  const int64_t width = heads * 32;
  const Tensor all = cast(sample_tensor({batch, rows, 3 * width}, 1), DType::f32);
  Tensors views;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor part = slice(all, 2, i * width, (i + 1) * width);
    views.push_back(
        transpose(Tensor::view_of(part.storage(), part.dtype(), {batch, rows, heads, 32},
                      {rows * 3 * width, 3 * width, 32, 1}, part.offset()),
            1, 2));
  }
  views.push_back(transpose(cast(sample_tensor({batch, 32, heads, rows}, 5), DType::f32), 1, 2));
  views.back() = transpose(views.back(), 2, 3);  // whose columns lie apart
  Tensors dense;
  for (const Tensor& t : views) dense.push_back(copy(t));
  const AttentionAttrs attrs{0.2, true};
  const int64_t before = allocator(kCpu).stats().requests;
  const Tensors found = both(views, attrs);
  EXPECT_EQ(allocator(kCpu).stats().requests - before, 5) << "the results, and no copy";
  const Tensors wanted = both(dense, attrs);
  for (size_t r = 0; r < found.size(); ++r)
    EXPECT_EQ(found[r].to_vector<float>(), wanted[r].to_vector<float>()) << "result " << r;
}

// No [S, T] of a head: that of all would be 64 MB.
TEST(Attention, TakesNoMemoryForItsWeights) {
  const Tensors in = operands_of({2, 2, 2048, 2048, 64, true}, DType::f32);
  const int64_t before = allocator(kCpu).stats().live_bytes;
  allocator(kCpu).reset_peak();
  const Tensors out = both(in, attrs_of({2, 2, 2048, 2048, 64, true}));
  const int64_t of_q = 2 * 2048 * 64 * 4 * 2, lse = 2 * 2 * 2048 * 4;
  EXPECT_LE(allocator(kCpu).stats().peak_bytes - before, 4 * of_q + lse + 5 * 4096);
}

// The scores of a tile may all be -inf before one that has numbers.
TEST(Attention, ARowBeginsWithKeysThatWeighNothing) {
  const int64_t keys = 70;
  const Tensor q = Tensor::ones({1, 1, 1, 4}),
               v = cast(sample_tensor({1, 1, keys, 4}, 1), DType::f32);
  Tensor k = Tensor::zeros({1, 1, keys, 4});
  for (int64_t t = 0; t < 66; ++t) k.data<float>()[t * 4] = -INFINITY;
  const std::vector<float> o = attention(q, k, v).to_vector<float>();
  for (int64_t d = 0; d < 4; ++d) {
    double wanted = 0;
    for (int64_t t = 66; t < keys; ++t) wanted += double(v.data<float>()[t * 4 + d]) / 4;
    EXPECT_NEAR(o[size_t(d)], wanted, 1e-6);
  }
  for (int64_t t = 0; t < keys; ++t) k.data<float>()[t * 4] = -INFINITY;
  for (const float x : attention(q, k, v).to_vector<float>()) EXPECT_TRUE(std::isnan(x));
}

TEST(Attention, ANanShowsInTheRowsThatReadIt) {
  Tensors in = operands_of({1, 1, 130, 130, 8, true}, DType::f32);
  in[1].data<float>()[100 * 8] = NAN;  // key 100 of the first batch
  const std::vector<float> o = attention(in[0], in[1], in[2], true).to_vector<float>();
  for (int64_t r = 0; r < 130; ++r) EXPECT_EQ(std::isnan(o[size_t(r) * 8]), r >= 100) << r;
}

TEST(Attention, ScaleIsThatOfTheDepth) {
  const Tensors in = operands_of({2, 2, 5, 5, 16, false}, DType::f64);
  EXPECT_EQ(attention(in[0], in[1], in[2]).to_vector<double>(),
      attention(in[0], in[1], in[2], false, 0.25).to_vector<double>());
}

TEST(Attention, ErrorsNameWhatDoesNotFit) {
  const auto t = [](const Shape& shape) { return Tensor::zeros(shape); };
  test::expect_error(Error::Kind::shape,
      {"attention: heads do not divide: q is f32[1, 6, 5, 8] cpu, k is f32[1, 4, 7, 8] cpu",
          "H of q is 6, G of k is 4"},
      [&] {
        attention(t({1, 6, 5, 8}), t({1, 4, 7, 8}), t({1, 4, 7, 8}));
      });
  test::expect_error(Error::Kind::shape,
      {"attention: shapes differ: k is f32[1, 4, 7, 8] cpu, v is f32[1, 4, 6, 8] cpu"}, [&] {
        attention(t({1, 4, 5, 8}), t({1, 4, 7, 8}), t({1, 4, 6, 8}));
      });
  test::expect_error(
      Error::Kind::shape, {"attention: wrong rank: q is f32[4, 5, 8] cpu", "4 dims"}, [&] {
        attention(t({4, 5, 8}), t({1, 4, 7, 8}), t({1, 4, 7, 8}));
      });
}

TEST(AttentionSimt, IsThatOfPlainLoops) {
  for (const Size& n : sizes({1, 65}, {4, 32, 80, 128})) {
    for (const DType dtype : {DType::f32, DType::bf16}) check(n, dtype, kSimt);
  }
}

// The names of the kernels, forward and backward.
std::string kernels_of(const Tensors& in, const AttentionAttrs& attrs) {
  const LaunchLog log;
  both(in, attrs);
  std::string names;
  for (const LaunchShape& launch : log.launches())
    names += std::string(names.empty() ? "" : ", ") + std::string(launch.kernel);
  return names;
}

TEST(AttentionSimt, TensorCoresTakeWholePieces) {
  const auto kernels = [](int64_t depth, DType dtype) {
    const Size n{2, 2, 3, 5, depth, true};
    return kernels_of(operands_of(n, dtype, kSimt), attrs_of(n));
  };
  EXPECT_EQ(
      kernels(8, DType::bf16), "attention_mma_64<bf16, 32>, attention_backward_mma_64<bf16, 32>");
  EXPECT_EQ(
      kernels(40, DType::bf16), "attention_mma_64<bf16, 64>, attention_backward_mma_64<bf16, 64>");
  EXPECT_EQ(kernels(128, DType::bf16),
      "attention_mma_64<bf16, 128>, attention_backward_mma_64<bf16, 128>");
  EXPECT_EQ(kernels(12, DType::bf16),
      "attention_ffma<bf16, 8, 32>, attention_backward_ffma<bf16, 8, 32>");
  EXPECT_EQ(kernels(136, DType::bf16),
      "attention_ffma<bf16, 8, 128>, attention_backward_ffma<bf16, 8, 64>");
  EXPECT_EQ(kernels(8, DType::f32),
      "attention_ffma<float, 8, 32>, attention_backward_ffma<float, 8, 32>");
  {
    const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
    EXPECT_EQ(kernels(12, DType::f32),
        "attention_mma_64<float, 32>, attention_backward_mma_64<float, 32>");
    EXPECT_EQ(kernels(6, DType::f32),
        "attention_ffma<float, 8, 32>, attention_backward_ffma<float, 8, 32>");
  }
  // A storage that begins off 16 bytes, or a factor that turns the order of the scores.
  const Size n{1, 1, 3, 5, 8, false};
  Tensors in = operands_of(n, DType::bf16, kSimt);
  EXPECT_EQ(kernels_of(in, {-0.5, false}),
      "attention_ffma<bf16, 8, 32>, attention_backward_ffma<bf16, 8, 32>");
  in[0] = there(spread(operands_of(n, DType::bf16)[0], 1, 1), kSimt);
  EXPECT_EQ(kernels_of(in, attrs_of(n)),
      "attention_ffma<bf16, 8, 32>, attention_backward_ffma<bf16, 8, 32>");
}

void check_tensor_cores(Device device) {
  std::vector<Size> all = sizes({1, 65, 130}, {8, 64, 80, 128});
  all.insert(all.end(), {{2, 1, 0, 5, 8, true}, {2, 2, 5, 0, 8, false}});
  for (const Size& n : all) {
    check(n, DType::bf16, device);
    const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
    check(n, DType::f32, device);
  }
}
TEST(AttentionSimt, TensorCoresAreNearPlainLoops) { check_tensor_cores(kSimt); }
using AttentionGpu = test::GpuTest;
TEST_F(AttentionGpu, TensorCoresAreNearPlainLoops) { check_tensor_cores(test::kCuda); }

// Whichever threads and blocks go first.
TEST(AttentionSimt, TensorCoresDoNotShowTheOrderOfThreads) {
  const Size n{2, 1, 70, 90, 32, true};
  const Tensors in = operands_of(n, DType::bf16, kSimt);
  std::vector<std::vector<float>> wanted;
  for (const auto order : {simt::Schedule::Order::forward, simt::Schedule::Order::reversed,
           simt::Schedule::Order::one_warp_ahead, simt::Schedule::Order::shuffled}) {
    simt::set_schedule({.order = order, .seed = 5});
    std::vector<std::vector<float>> found;
    for (const Tensor& t : both(in, attrs_of(n))) found.push_back(t.to(kCpu).to_vector<float>());
    if (wanted.empty()) wanted = found;
    EXPECT_EQ(found, wanted);
  }
  simt::set_schedule({});
}

// q, k and v of one product, and gradients as one: the same numbers to the bit.
TEST(AttentionSimt, TensorCoresReadHeadsWhereTheyLie) {
  const Tensor all = cast(sample_tensor({2, 70, 12, 32}, 1), DType::bf16).to(kSimt);
  Tensors views, dense;
  for (int64_t i = 0; i < 3; ++i) views.push_back(transpose(slice(all, 2, i * 4, i * 4 + 4), 1, 2));
  views.push_back(transpose(cast(sample_tensor({2, 70, 4, 32}, 5), DType::bf16).to(kSimt), 1, 2));
  for (const Tensor& t : views) dense.push_back(copy(t));
  EXPECT_EQ(kernels_of(views, {0.2, true}),
      "attention_mma_64<bf16, 32>, attention_backward_mma_64<bf16, 32>");
  const auto numbers = [](const Tensor& t) { return t.to(kCpu).to_vector<float>(); };
  const Tensors found = both(views, {0.2, true}), wanted = both(dense, {0.2, true});
  for (size_t r = 0; r < found.size(); ++r) EXPECT_EQ(numbers(found[r]), numbers(wanted[r])) << r;
  const AttentionAttrs rows{0.2, true, true}, merged{0.2, true, true, 3};
  const Tensor o = apply(kAttentionOp, {views[0], views[1], views[2]}, rows)[0];
  EXPECT_EQ(numbers(copy(transpose(o, 1, 2))), numbers(wanted[0]));
  const Tensor grads = apply(kAttentionBackwardOp,
      {views[3], views[0], views[1], views[2], transpose(o, 1, 2), found[1]}, merged)[0];
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor part = copy(transpose(slice(grads, 2, i * 4, i * 4 + 4), 1, 2));
    EXPECT_EQ(numbers(part), numbers(wanted[size_t(2 + i)])) << i;
  }
}

// The scores of a tile may all be -inf before one that has numbers; a row of which all are -inf, or
// one is inf or NaN, is NaN, and no other row is.
TEST(AttentionSimt, TensorCoresOnNumbersThatAreNotFinite) {
  const int64_t keys = 140, depth = 8;
  Tensor q = Tensor::ones({1, 1, 3, depth}, DType::bf16),
         k = Tensor::zeros({1, 1, keys, depth}, DType::bf16);
  const Tensor v = cast(sample_tensor({1, 1, keys, depth}, 1), DType::bf16);
  const auto put = [&](const Tensor& t, int64_t row, double x) {
    t.data<bf16>()[row * depth] = bf16(float(x));
  };
  for (int64_t t = 0; t < 136; ++t) put(k, t, -INFINITY);
  put(q, 2, -1);  // whose scores are inf
  const auto o = [&] {
    return attention(q.to(kSimt), k.to(kSimt), v.to(kSimt)).to(kCpu).to_vector<float>();
  };
  const std::vector<float> some = o();
  for (int64_t d = 0; d < depth; ++d) {
    double wanted = 0;
    for (int64_t t = 136; t < keys; ++t) wanted += double(v.data<bf16>()[t * depth + d]) / 4;
    EXPECT_NEAR(some[size_t(d)], wanted, 0x1p-8) << d;
    EXPECT_NEAR(some[size_t(depth + d)], wanted, 0x1p-8) << d;
    EXPECT_TRUE(std::isnan(some[size_t(2 * depth + d)])) << d;
  }
  for (int64_t t = 136; t < keys; ++t) put(k, t, -INFINITY);
  put(q, 0, NAN);
  put(q, 2, 0);  // 0 times inf
  for (const float x : o()) EXPECT_TRUE(std::isnan(x));
}

TEST(AttentionSimt, TensorCoresShowANanInTheRowsThatReadIt) {
  Tensors in = operands_of({1, 1, 130, 130, 8, true}, DType::bf16);
  in[1].data<bf16>()[100 * 8] = bf16(NAN);  // key 100
  const AttentionAttrs attrs{0.5, true};
  const Tensors all = both(there(in, kSimt), attrs);
  std::vector<std::vector<float>> found;
  for (const Tensor& t : all) found.push_back(t.to(kCpu).to_vector<float>());
  for (size_t r = 0; r < 130; ++r) {
    EXPECT_EQ(std::isnan(found[0][r * 8]), r >= 100) << r;
    EXPECT_EQ(std::isnan(found[1][r]), r >= 100) << r;
    // dq: 0 times the NaN in rows that have it in a tile, and do not read it.
    if (r < 64 || r >= 100) {
      EXPECT_EQ(std::isfinite(found[2][r * 8]), r < 100) << r;
    }
    // dk and dv: rows from 100 on read all keys up to theirs.
    EXPECT_FALSE(std::isfinite(found[3][r * 8])) << r;
    EXPECT_FALSE(std::isfinite(found[4][r * 8])) << r;
  }
}

// What no row reads has no gradient at all.
TEST(AttentionSimt, TensorCoresGiveKeysThatNoRowReadsNoGradient) {
  const Size n{1, 1, 20, 90, 16, true};
  const Tensors all = both(operands_of(n, DType::bf16, kSimt), attrs_of(n));
  for (const size_t r : {3, 4}) {
    const std::vector<float> grad = all[r].to(kCpu).to_vector<float>();
    for (size_t i = 20 * 16; i < grad.size(); ++i) ASSERT_EQ(grad[i], 0) << r << ", " << i;
  }
}

}  // namespace
}  // namespace sinter
