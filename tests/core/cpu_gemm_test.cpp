#include "core/device/cpu_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/device/amx_tiles.h"
#include "core/parallel.h"
#include "tests/closeness.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

struct Way {
  const char* name;
  bool (*run)(const Gemm& desc, const void* a, const void* b, const void* bias,
      void* c);  // false: not for this product
};
// A block of the result to where it belongs.
void put(const Gemm& d, const GemmBlock& block, void* c) {
  const size_t bytes = size_of(d.out);
  for (int64_t r = 0; r < block.rows; ++r)
    std::memcpy(static_cast<char*>(c) + ((block.i + r) * d.ldc + block.j) * bytes,
        static_cast<const char*>(block.c) + r * block.ld * bytes, block.cols * bytes);
}

// Has this processor instructions for bf16, in this build?
bool has_own_bf16() {
  return detail::gemm_bf16_fits({.m = 1, .n = 1, .k = 1, .in = DType::bf16}, true);
}
// f by the vectors of AVX512-BF16 where there are tiles too.
template <class F> void without_tiles(const F& f) {
#ifdef SINTER_AMX
  const test::Scoped none(
      [] { return amx::available(); }, [](bool on) { amx::available() = on; }, false);
#endif
  f();
}
bool own_bf16(const Gemm& d, const void* a, const void* b, const void* bias, void* c) {
  if (d.in != DType::bf16 || d.k == 0 || !has_own_bf16()) return false;
  detail::gemm_bf16(d, a, b, bias, c);
  return true;
}

const Way kWays[] = {
    {"gemm",
        [](auto... args) {
          gemm(args...);
          return true;
        }},
    {"without oneDNN",
        [](const Gemm& d, const void* a, const void* b, const void* bias, void* c) {
          if (d.k > 0) detail::gemm_without_onednn(d, a, b, bias, c);
          return d.k > 0;
        }},
    {"onednn itself",
        [](const Gemm& d, const void* a, const void* b, const void* bias, void* c) {
          return d.k > 0 && d.in != DType::f64 && detail::gemm_onednn(d, a, b, bias, c);
        }},
    {"oneDNN's sgemm, or where there is a bias its matmul",
        [](const Gemm& d, const void* a, const void* b, const void* bias, void* c) {
          if (d.k == 0 || d.in != DType::f32 || !has_onednn()) return false;
          EXPECT_TRUE(detail::gemm_onednn(d, a, b, bias, c, {0, 0, 0})) << "it refuses";
          return true;
        }},
    {"own kernels",
        [](const Gemm& d, const void* a, const void* b, const void* bias, void* c) {
          if (d.in != DType::f32 || d.k == 0) return false;
          detail::gemm_small(d, static_cast<const float*>(a), static_cast<const float*>(b),
              static_cast<const float*>(bias), static_cast<float*>(c));
          return true;
        }},
    {"own kernels of bf16", own_bf16},
    {"its vectors",
        [](auto... args) {
          bool ran = false;
          without_tiles([&] { ran = own_bf16(args...); });
          return ran;
        }},
    {"in blocks",
        [](const Gemm& d, const void* a, const void* b, const void* bias, void* c) {
          gemm_blocks(
              d, a, b, [&](const GemmBlock& block) { put(d, block, c); }, bias);
          return true;
        }},
};

std::string describe(const Gemm& d) {
  return str(name_of(d.in), " -> ", name_of(d.out), " m ", d.m, " n ", d.n, " k ", d.k,
      d.trans_a ? " A^T" : "", d.trans_b ? " B^T" : "", " ld ", d.lda, " ", d.ldb, " ", d.ldc);
}

template <class T> std::vector<T> random_values(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> values(count);
  for (T& value : values) value = T(uniform(engine));
  return values;
}

Gemm make(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, int64_t pad = 0) {
  Gemm d{.m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b};
  d.lda = (trans_a ? m : k) + pad;
  d.ldb = (trans_b ? k : n) + pad;
  d.ldc = n + pad;
  return d;
}

// Every element within 4 sqrt(k + 2) u S + 2 u_out |y| of the product in f64 (S: the sum of the k +
// 2 terms' absolute values); nothing written beside C.
template <class In, class Out> void check(Gemm d, bool with_bias) {
  d.in = d.bias = dtype_of<In>;
  d.out = dtype_of<Out>;
  const auto a = random_values<In>((d.trans_a ? d.k : d.m) * d.lda, 1),
             b = random_values<In>((d.trans_b ? d.n : d.k) * d.ldb, 2);
  const auto bias = random_values<In>(d.n, 3);
  const auto start = random_values<Out>(d.m * d.ldc, 4);
  const double u = std::is_same_v<In, double> ? 0x1p-53 : 0x1p-24;
  const double u_out = std::is_same_v<Out, bf16> ? 0x1p-8 : u;
  std::vector<double> exact(start.begin(), start.end()), bounds(start.size());
  for (int64_t i = 0; i < d.m; ++i) {
    for (int64_t j = 0; j < d.n; ++j) {
      double sum = 0, magnitude = 0;
      const auto add = [&](double term) {
        sum += term;
        magnitude += std::fabs(term);
      };
      if (with_bias) add(bias[j]);
      for (int64_t p = 0; p < d.k; ++p)
        add(double(a[d.trans_a ? p * d.lda + i : i * d.lda + p]) *
            double(b[d.trans_b ? j * d.ldb + p : p * d.ldb + j]));
      exact[i * d.ldc + j] = sum;
      bounds[i * d.ldc + j] = 4 * std::sqrt(d.k + 2.0) * u * magnitude + 2 * u_out * std::fabs(sum);
    }
  }
  for (const Way& way : kWays) {
    auto c = start;
    if (!way.run(d, a.data(), b.data(), with_bias ? bias.data() : nullptr, c.data())) continue;
    ASSERT_TRUE(test::close(c, exact, {.each = bounds}))
        << way.name << " " << describe(d) << (with_bias ? " bias" : "");
  }
}

constexpr int64_t kShapes[][3] = {{1, 1, 1}, {1, 7, 3}, {5, 1, 9}, {2, 3, 17}, {6, 64, 1},
    {7, 65, 2}, {13, 10, 128}, {1, 256, 61}, {16, 33, 64}, {17, 4, 100}, {33, 31, 33}, {12, 80, 16},
    {3, 130, 47}, {70, 6, 300}, {64, 64, 64}, {37, 53, 129}, {256, 48, 16}, {103, 27, 16},
    {49, 150, 530}, {12, 5, 3}, {517, 21, 40}, {70, 37, 4}, {13, 151, 1}};

template <class In, class Out> void check_all() {
  int turn = 0;
  for (const auto& [m, n, k] : kShapes) {
    for (int trans = 0; trans < 4; ++trans) {
      for (const bool with_bias : {false, true}) {
        check<In, Out>(
            make(m, n, k, trans & 1, trans & 2, turn % 3 == 0 ? 0 : turn % 7), with_bias);
        ++turn;
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Beyond 2^29 products with a long side another kernel of oneDNN may run: some elements of C, by
// the same bound as check().
TEST(CpuGemm, LargeProducts) {
  constexpr int64_t kSide = 3072, kInner = 59;
  for (const bool trans_a : {false, true}) {
    const Gemm d = make(kSide, kSide, kInner, trans_a, false, 1);
    const auto a = random_values<float>((trans_a ? kInner : kSide) * d.lda, 1),
               b = random_values<float>(kInner * d.ldb, 2);
    std::vector<float> c(kSide * d.ldc, 0.5f), got;
    gemm(d, a.data(), b.data(), nullptr, c.data());
    std::vector<double> wanted, bounds;
    for (int64_t i = 0; i < kSide; i += 61) {
      const int64_t j = (i * 37 + 5) % kSide;
      double y = 0, scale = 0;
      for (int64_t p = 0; p < kInner; ++p) {
        const double term = double{a[trans_a ? p * d.lda + i : i * d.lda + p]} * b[p * d.ldb + j];
        y += term;
        scale += std::abs(term);
      }
      got.push_back(c[i * d.ldc + j]);
      wanted.push_back(y);
      bounds.push_back((4 * std::sqrt(kInner + 2) * scale + 2 * std::abs(y)) * 0x1p-24);
      ASSERT_EQ(c[i * d.ldc + kSide], 0.5f) << "written beside C";
    }
    ASSERT_TRUE(test::close(got, wanted, {.each = bounds})) << describe(d);
  }
}

TEST(CpuGemm, F32) { check_all<float, float>(); }
TEST(CpuGemm, F64) { check_all<double, double>(); }
TEST(CpuGemm, Bf16) { check_all<bf16, bf16>(); }
TEST(CpuGemm, Bf16ToF32) { check_all<bf16, float>(); }

// Large enough that gemm() itself goes to the library, on more threads than one.
TEST(CpuGemm, LargerThanTheOwnKernelsTake) {
  const test::Scoped threads(num_threads, set_num_threads, 3);
  for (int trans = 0; trans < 4; ++trans) {
    const Gemm d = make(419, 417, 401, trans & 1, trans & 2);
    EXPECT_FALSE(detail::gemm_small_fits(d));
    check<float, float>(d, true);
  }
}

// Rows 2 KiB apart, which own kernels take on some numbers of threads. Whether a row stands alone
// is asked by all that share them, and before.
TEST(CpuGemm, RowsThatMeetInFewSets) {
  const test::Scoped threads(num_threads, set_num_threads, 2);
  for (const bool trans_a : {false, true}) {
    const Gemm d = make(512, 784, 300, trans_a, false);
    check<float, float>(d, true);
    const bool alone = gemm_rows_stand_alone(d);
    parallel_for(2, 1, [&](int64_t, int64_t) { EXPECT_EQ(gemm_rows_stand_alone(d), alone); });
  }
}

// Packed though it has few rows; its left operand made dense though its rows are near each other.
TEST(CpuGemm, FewRowsOfWideOperands) {
  for (const bool trans_a : {false, true}) {
    check<float, float>(make(10, 1024, 140, trans_a, false), true);
    check<float, float>(make(61, 300, 45, trans_a, false), true);
  }
}

TEST(CpuGemm, OwnKernelsTakeTheSmallLayers) {
  EXPECT_TRUE(detail::gemm_small_fits(make(1, 256, 784, false, true)));
  EXPECT_TRUE(detail::gemm_small_fits(make(128, 10, 128, false, true)));
  EXPECT_TRUE(detail::gemm_small_fits(make(10, 128, 128, true, false)));
  for (int trans = 0; trans < 4; ++trans)
    EXPECT_TRUE(detail::gemm_small_fits(make(256, 48, 16, trans & 1, trans & 2)));
  EXPECT_FALSE(detail::gemm_small_fits(make(1024, 256, 784, false, true)));
  Gemm f64 = make(1, 8, 8, false, true);
  f64.in = f64.out = f64.bias = DType::f64;
  EXPECT_FALSE(detail::gemm_small_fits(f64));
}

TEST(CpuGemm, BiasInF32OnBf16Operands) {
  Gemm d = make(3, 5, 8, false, true);
  d.in = DType::bf16;
  d.out = DType::f32;
  const std::vector<bf16> ones(64, bf16(1.0f));
  const std::vector<float> bias = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f};
  for (const Way& way : kWays) {
    std::vector<float> c(15, -1.0f);
    if (!way.run(d, ones.data(), ones.data(), bias.data(), c.data())) continue;
    std::vector<double> wanted;
    for (int i = 0; i < 15; ++i) wanted.push_back(8.0 + bias[i % 5]);
    EXPECT_TRUE(test::close(c, wanted, {.of_each = 4 * 0x1p-24})) << way.name;
  }
}

TEST(CpuGemm, EmptySum) {
  const std::vector<float> bias = {1, 2, 3};
  std::vector<float> sums(6, 10.0f);
  gemm(make(2, 3, 0, false, false), nullptr, nullptr, bias.data(), sums.data());
  EXPECT_EQ(sums, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  gemm(make(2, 3, 0, false, false), nullptr, nullptr, nullptr, sums.data());
  EXPECT_EQ(sums, std::vector<float>(6, 0.0f));
  std::vector<bf16> c(6, bf16(5.0f));
  Gemm d = make(2, 3, 0, true, true);
  d.lda = 2;
  d.ldb = 0;
  d.in = d.out = DType::bf16;
  gemm(d, nullptr, nullptr, bias.data(), c.data());
  EXPECT_EQ(float(c[5]), 3.0f);
}

TEST(CpuGemm, EmptyResultTouchesNothing) {
  gemm(make(0, 4, 3, false, false), nullptr, nullptr, nullptr, nullptr);
  gemm(make(4, 0, 3, false, true), nullptr, nullptr, nullptr, nullptr);
}

template <class T> void check_nan_and_inf() {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  for (int trans = 0; trans < 4; ++trans) {
    Gemm d = make(9, 21, 19, trans & 1, trans & 2);
    d.in = d.bias = dtype_of<T>;
    std::vector<T> a(9 * 19, T(1.0f)), b(19 * 21, T(1.0f));
    const auto at = [&](int64_t i, int64_t p) -> T& {
      return a[d.trans_a ? p * d.lda + i : i * d.lda + p];
    };
    at(1, 18) = T(nan);
    at(2, 3) = T(inf);
    at(3, 5) = T(inf);
    for (int64_t j = 0; j < d.n; ++j)
      b[d.trans_b ? j * d.ldb + 5 : 5 * d.ldb + j] = T(0.0f);  // inf * 0
    for (const Way& way : kWays) {
      std::vector<float> c(9 * 21, nan);  // what was there does not count
      if (!way.run(d, a.data(), b.data(), nullptr, c.data())) continue;
      for (int64_t j = 0; j < d.n; ++j) {
        EXPECT_EQ(c[j], 18.0f) << way.name << trans;
        EXPECT_TRUE(std::isnan(c[d.n + j])) << way.name << trans;
        EXPECT_EQ(c[2 * d.n + j], inf) << way.name << trans;
        EXPECT_TRUE(std::isnan(c[3 * d.n + j])) << way.name << trans;
        EXPECT_EQ(c[4 * d.n + j], 18.0f) << way.name << trans;
      }
    }
  }
}
TEST(CpuGemm, NanAndInfPropagate) {
  check_nan_and_inf<float>();
  check_nan_and_inf<bf16>();
}

// Operands of bf16 are widened as they are packed or read.
TEST(CpuGemm, OwnKernelsGiveTheSameBitsOnAnyNumberOfThreadsAndOfEitherType) {
  const test::Scoped restored(num_threads, set_num_threads, num_threads());
  for (const auto& [m, n, k] : {std::array{61, 203, 301}, {523, 70, 90}, {16, 330, 120},
           {130, 1100, 60}, {300, 90, 3}, {9, 521, 63}, {5, 37, 70}}) {
    const auto narrow_a = random_values<bf16>(m * k, 1), narrow_b = random_values<bf16>(n * k, 2);
    const std::vector<float> a(narrow_a.begin(), narrow_a.end()),
        b(narrow_b.begin(), narrow_b.end());
    for (int trans = 0; trans < 8; ++trans) {
      Gemm d = make(m, n, k, trans & 1, trans & 2);
      std::vector<float> first(m * n);
      set_num_threads(1);
      detail::gemm_small(d, a.data(), b.data(), nullptr, first.data());
      const void *of_a = a.data(), *of_b = b.data();
      if (trans & 4) {
        d.in = DType::bf16;
        of_a = narrow_a.data();
        of_b = narrow_b.data();
      }
      for (const int threads : {1, 2, 5}) {
        set_num_threads(threads);
        std::vector<float> c(m * n);
        detail::gemm_small(d, of_a, of_b, nullptr, c.data());
        EXPECT_EQ(c, first) << threads << " threads " << describe(d);
        std::ranges::fill(c, 0.0f);
        if (detail::gemm_small_blocks(
                d, of_a, of_b, [&](const GemmBlock& block) { put(d, block, c.data()); }))
          EXPECT_EQ(c, first) << "blocks, " << threads << " threads " << describe(d);
      }
    }
  }
}

// By tiles and by vectors; in blocks, and rows of their own, of which other operands are packed.
TEST(CpuGemm, OwnKernelsOfBf16GiveTheSameBitsOnAnyNumberOfThreads) {
  if (!has_own_bf16()) GTEST_SKIP() << "no instructions for bf16";
  const test::Scoped restored(num_threads, set_num_threads, num_threads());
  for (const auto& [m, n, k] : {std::array{61, 203, 301}, {523, 70, 90}, {16, 330, 120},
           {130, 1100, 1060}, {300, 90, 3}, {9, 521, 63}, {300, 700, 20}}) {
    const auto a = random_values<bf16>(m * k, 1), b = random_values<bf16>(n * k, 2);
    for (int trans = 0; trans < 8; ++trans) {
      Gemm d = make(m, n, k, trans & 1, trans & 2);
      d.in = DType::bf16;
      const auto run_all = [&] {
        std::vector<float> first(m * n);
        set_num_threads(1);
        detail::gemm_bf16(d, a.data(), b.data(), nullptr, first.data());
        for (const int threads : {2, 5}) {
          set_num_threads(threads);
          std::vector<float> c(m * n);
          detail::gemm_bf16(d, a.data(), b.data(), nullptr, c.data());
          EXPECT_EQ(c, first) << threads << " threads " << describe(d);
          if (!d.trans_b && k <= 1024) {  // of more terms a block is not whole after one step
            std::ranges::fill(c, 0.0f);
            const TakeBlock take = [&](const GemmBlock& block) { put(d, block, c.data()); };
            detail::gemm_bf16(d, a.data(), b.data(), nullptr, nullptr, {}, &take);
            EXPECT_EQ(c, first) << "blocks, " << threads << " threads " << describe(d);
          }
          Gemm last = d;
          last.m = 7;
          const int64_t row = m - last.m;
          std::vector<float> rows(last.m * n);
          detail::gemm_bf16(
              last, a.data() + row * (d.trans_a ? 1 : d.lda), b.data(), nullptr, rows.data());
          EXPECT_TRUE(std::equal(rows.begin(), rows.end(), first.begin() + row * n)) << describe(d);
        }
      };
      trans & 4 ? without_tiles(run_all) : run_all();
    }
  }
}

// Each thread has its own primitives; more shapes than the cache keeps; another number of threads
// is another plan.
TEST(CpuGemm, OneDnnCacheServesThreadsAndForgets) {
  if (!has_onednn()) GTEST_SKIP() << "built without oneDNN";
  const test::Scoped restored(num_threads, set_num_threads, num_threads());
  const auto ones = std::vector<float>(400 * 20, 1.0f);
  const auto sum_of = [&](int64_t k) {
    std::vector<float> c(20 * 20);
    EXPECT_TRUE(detail::gemm_onednn(
        make(20, 20, k, false, false), ones.data(), ones.data(), nullptr, c.data()));
    return std::count(c.begin(), c.end(), float(k)) == 400;
  };
  for (int64_t k = 1; k <= 270; ++k) EXPECT_TRUE(sum_of(k)) << k;
  EXPECT_TRUE(sum_of(1));
  set_num_threads(1);
  EXPECT_TRUE(sum_of(1));
  bool right[2] = {};
  std::thread other([&] { right[0] = sum_of(37); });
  right[1] = sum_of(37);
  other.join();
  EXPECT_TRUE(right[0] && right[1]);
}

TEST(CpuGemm, InsideParallelForEachProductIsSerial) {
  const test::Scoped two(num_threads, set_num_threads, 2);
  const auto ones = std::vector<float>(200 * 200, 1.0f);
  std::vector<std::vector<float>> c(4, std::vector<float>(200 * 200));
  parallel_for(4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      gemm(make(200, 200, 200, false, true), ones.data(), ones.data(), nullptr, c[i].data());
  });
  for (const auto& product : c) EXPECT_EQ(product, std::vector<float>(200 * 200, 200.0f));
}

TEST(CpuGemm, TheLibraryIsNamed) {
  EXPECT_TRUE(
      std::string(gemm_backend_name()).starts_with(has_onednn() ? "oneDNN 2." : "Eigen 3."));
}

TEST(CpuGemm, WrongDescriptionsAreOurMistake) {
  Gemm narrow = make(4, 4, 4, false, false), mixed = narrow;
  narrow.ldb = 3;
  mixed.out = DType::f64;
  std::vector<float> x(16);
  for (const Gemm& d : {narrow, mixed}) {
    SCOPED_TRACE(describe(d));
    test::expect_error(
        Error::Kind::internal, {}, [&] { gemm(d, x.data(), x.data(), nullptr, x.data()); });
  }
}

}  // namespace
}  // namespace sinter
