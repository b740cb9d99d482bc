// The cores of the matrix products (ops/product/fast/gemm_ffma.cuh, ops/product/fast/gemm_mma.cuh)
// on the emulator against sums in f64: sizes around the tile, operands of all strides between
// memory that nobody wrote, the order of threads, launches, and what each epilogue writes.
#include <gtest/gtest.h>

#include <cmath>

#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "core/device/simt.h"
#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "ops/optim/optimizers.h"
#include "ops/product/gemm_library.h"
#include "tests/ops/ends.h"
#include "tests/ops/gemm_check.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using Order = simt::Schedule::Order;

using gemm_check::at, gemm_check::expect_product, gemm_check::kSimt, gemm_check::Layout,
    gemm_check::layouts, gemm_check::matrix, gemm_check::matrix_of, gemm_check::Sum,
    gemm_check::sum_of, gemm_check::tolerance;

class SimtGemmKernels : public testing::TestWithParam<DType> {
 protected:
  ~SimtGemmKernels() override { simt::set_schedule({}); }
  template <class F> void typed(F&& f) { visit_float(GetParam(), f); }
};
INSTANTIATE_TEST_SUITE_P(Types, SimtGemmKernels,
    testing::Values(DType::f32, DType::f64, DType::bf16),
    [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(SimtGemmKernels, SizesAroundTheTileInAllOrders) {
  const int64_t sizes[][3] = {{1, 1, 1}, {64, 64, 64}, {63, 65, 17}, {65, 63, 33}, {17, 77, 333},
      {130, 8, 97}, {2, 129, 16}};  // m, n, k
  typed([&]<class T>(T) {
    for (const Order order :
        {Order::forward, Order::reversed, Order::one_warp_ahead, Order::shuffled}) {
      simt::set_schedule({order, 7});
      for (const auto& [m, n, k] : sizes) {
        for (const int trans : {0, 1, 2, 3}) {
          if (order != Order::forward && trans != int(order)) continue;
          const bool ta = trans & 1, tb = trans & 2;
          SCOPED_TRACE(
              str("m ", m, ", n ", n, ", k ", k, ", trans ", ta, tb, ", order ", int(order)));
          const Tensor a = ta ? matrix<T>(k, m, 1) : matrix<T>(m, k, 1),
                       b = tb ? matrix<T>(n, k, 2) : matrix<T>(k, n, 2);
          expect_product(matmul(a, b, ta, tb), a, b, ta, tb);
        }
      }
    }
  });
}

TEST_P(SimtGemmKernels, AllStridesAndNothingBesideTheMatrix) {
  typed([&]<class T>(T) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{71, 79, 47}, {8, 72, 24}}) {
      for (const Layout& of_a : layouts(m, k)) {
        for (const Layout& of_b : layouts(k, n)) {
          SCOPED_TRACE(str("a in ", of_a.what, "; b in ", of_b.what, "; m ", m));
          const Tensor a = matrix_of<T>(m, k, of_a, 3), b = matrix_of<T>(k, n, of_b, 4);
          expect_product(matmul(a, b), a, b, false, false);
        }
      }
    }
    const Tensor row = matrix<T>(1, 40, 5), a = broadcast_to(row, {66, 40}),
                 b = matrix<T>(40, 9, 6);
    expect_product(matmul(a, b), a, b, false, false);
  });
}

TEST_P(SimtGemmKernels, OneLaunchEachAndNoneForNothing) {
  typed([&]<class T>(T) {
    const auto launches = [](const auto& f) {
      const LaunchLog log;
      f();
      return log.launches().size();
    };
    const Tensor x = matrix<T>(70, 20, 1), w = matrix<T>(9, 20, 2), dy = matrix<T>(70, 9, 3),
                 bias = reshape(matrix<T>(1, 9, 4), {9});
    EXPECT_EQ(launches([&] { matmul(x, w, false, true); }), 1u);
    EXPECT_EQ(launches([&] { linear(x, w, bias); }), 1u);
    EXPECT_EQ(launches([&] {
      apply(kProductChainOp, {x, w, bias}, ends::linear_act(Act::relu, true, dtype_of<T>));
    }),
        1u);
    EXPECT_EQ(launches([&] {
      apply(kProductChainOp, {dy, w, {}, x}, ends::input_grad_act(Act::tanh, dtype_of<T>));
    }),
        1u);
    EXPECT_EQ(launches([&] { apply(kWeightBiasGradOp, {dy, x}); }), 1u);
    EXPECT_EQ(launches([&] { matmul(matrix<T>(0, 20, 1), w, false, true); }), 0u);
    EXPECT_EQ(launches([&] {
      apply(kProductChainOp, {matrix<T>(0, 20, 1), w},
          ends::linear_act(Act::relu, true, dtype_of<T>));
    }),
        0u);

    const LaunchLog log;
    linear(matrix<T>(130, 20, 1), w, bias);
    const LaunchShape launch = log.launches()[0];
    const bool mma = GetParam() == DType::bf16;
    EXPECT_TRUE(launch.kernel.starts_with(mma ? "matmul_mma_64x64<" : "matmul_ffma_16x64<"));
    EXPECT_EQ(launch.grid, (mma ? Grid{3, 1, 1} : Grid{9, 1, 1}));

    // No terms: the bias alone; no inputs: a bias gradient all the same.
    const Tensor y = linear(matrix<T>(3, 0, 1), matrix<T>(9, 0, 2), bias);
    const Tensors grads = apply(kWeightBiasGradOp, {dy, matrix<T>(70, 0, 1)});
    synchronize(kSimt);
    for (int64_t j = 0; j < 9; ++j) EXPECT_EQ(at(y, 2, j), at(reshape(bias, {1, 9}), 0, j));
    EXPECT_TRUE(std::isfinite(at(reshape(grads[1], {1, 9}), 0, 8)));
  });
}

// A grid's y takes 65535 blocks.
TEST_P(SimtGemmKernels, MoreColumnsThanAGridHasInY) {
  typed([&]<class T>(T) {
    constexpr int64_t kColumns = 64 * 65535 + 1;
    const Tensor a = Tensor::zeros({1, 1}, dtype_of<T>, kSimt),
                 b = Tensor::zeros({kColumns, 1}, dtype_of<T>, kSimt);
    const simt::CountOnly count_only;
    const LaunchLog log;
    matmul(a, b, false, true);
    EXPECT_EQ(log.launches().at(0).grid, (Grid{65536, 1, 1}));
    matmul(a, slice(b, 0, 1, kColumns), false, true);
    EXPECT_EQ(log.launches().at(1).grid, (Grid{1, 65535, 1}));
  });
}

TEST_P(SimtGemmKernels, InfinityAndNanStayInTheirRowAndColumn) {
  typed([&]<class T>(T) {
    const Tensor a = matrix<T>(65, 35, 1), b = matrix<T>(35, 66, 2);
    a.data<T>()[64 * 35 + 34] = T(NAN);
    b.data<T>()[3 * 66 + 65] = T(INFINITY);
    const Tensor c = matmul(a, b);
    synchronize(kSimt);
    for (int64_t i = 0; i < 65; ++i) {
      for (int64_t j = 0; j < 66; ++j) {
        if (i == 64) {
          EXPECT_TRUE(std::isnan(at(c, i, j))) << j;
        } else {
          EXPECT_EQ(std::isfinite(at(c, i, j)), j != 65) << i << ' ' << j;
        }
      }
    }
  });
}

TEST_P(SimtGemmKernels, LinearActGivesYAndThePreActivation) {
  typed([&]<class T>(T) {
    for (const int64_t o : {1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 200}) {
      SCOPED_TRACE(o);
      const Tensor x = matrix<T>(66, 19, 1), w = matrix<T>(o, 19, 2),
                   bias = reshape(matrix<T>(1, o, 3), {o});
      const Tensor y =
          apply1(kProductChainOp, {x, w, bias}, ends::linear_act(Act::relu, false, dtype_of<T>));
      const Tensors kept =
          apply(kProductChainOp, {x, w, bias}, ends::linear_act(Act::relu, true, dtype_of<T>));
      const Tensor z = linear(x, w, bias);
      synchronize(kSimt);
      for (int64_t i = 0; i < 66; ++i) {
        for (int64_t j = 0; j < o; ++j) {
          ASSERT_EQ(at(y, i, j), at(z, i, j) > 0 ? at(z, i, j) : 0) << i << ' ' << j;
          ASSERT_EQ(at(kept[0], i, j), at(y, i, j));
          ASSERT_EQ(at(kept[1], i, j), at(z, i, j));
        }
      }
    }
  });
}

TEST_P(SimtGemmKernels, InputGradReadsTheYThatLinearActWrote) {
  typed([&]<class T>(T) {
    const Tensor x = matrix<T>(67, 19, 1), w1 = matrix<T>(77, 19, 2), dy = matrix<T>(67, 21, 3),
                 w2 = matrix<T>(21, 77, 4);
    const Tensor h =
        apply1(kProductChainOp, {x, w1}, ends::linear_act(Act::relu, false, dtype_of<T>));
    const Tensor dx = apply1(kProductChainOp, {dy, w2, {}, h},
                     ends::input_grad_act(Act::relu, dtype_of<T>)),
                 dz = matmul(dy, w2);
    synchronize(kSimt);
    for (int64_t i = 0; i < 67; ++i) {
      for (int64_t j = 0; j < 77; ++j)
        ASSERT_EQ(at(dx, i, j), at(h, i, j) > 0 ? at(dz, i, j) : 0) << i << ' ' << j;
    }
  });
}

// bf16 operands may give f32 results, and an f32 bias is added before anything is rounded.
TEST(SimtGemmTypes, WideResultsAndBiasesOfBf16) {
  const Tensor x = matrix<bf16>(65, 40, 1), w = matrix<bf16>(66, 40, 2),
               bias = Tensor::full({66}, 0x1p-12, DType::f32, kSimt);
  const Tensor y = linear_to(x, w, bias, DType::f32),
               plain = matmul_as(x, w, false, true, DType::f32, Role::none);
  expect_product(plain, x, w, false, true);
  for (int64_t i = 0; i < 65; ++i) {
    for (int64_t j = 0; j < 66; ++j) ASSERT_EQ(at(y, i, j), float(at(plain, i, j)) + 0x1p-12f);
  }
}

// f32 products on tensor cores: the same tiles and epilogues, operands cut to 19 bits.
class SimtGemmTf32 : public testing::Test {
 protected:
  SimtGemmTf32() { set_allow_tf32(true); }
  ~SimtGemmTf32() override {
    set_allow_tf32(false);
    simt::set_schedule({});
  }
  static std::string_view kernel_of(const LaunchLog& log) { return log.launches().at(0).kernel; }
};

TEST_F(SimtGemmTf32, SizesStridesAndOrders) {  // of numbers that TF32 holds exactly
  for (const Order order :
      {Order::forward, Order::reversed, Order::one_warp_ahead, Order::shuffled}) {
    simt::set_schedule({order, 7});
    for (const auto& [m, n, k] :
        {std::array<int64_t, 3>{65, 63, 33}, {17, 77, 333}, {64, 64, 64}, {1, 130, 5}}) {
      for (const int trans : {0, 1, 2, 3}) {
        const bool ta = trans & 1, tb = trans & 2;
        const Tensor a = ta ? matrix<float>(k, m, 1) : matrix<float>(m, k, 1),
                     b = tb ? matrix<float>(n, k, 2) : matrix<float>(k, n, 2);
        const LaunchLog log;
        expect_product(matmul(a, b, ta, tb), a, b, ta, tb);
        EXPECT_TRUE(kernel_of(log).starts_with("matmul_mma_64x64<float")) << kernel_of(log);
      }
    }
  }
  for (const Layout& of_a : layouts(71, 47)) {
    for (const Layout& of_b : layouts(47, 79)) {
      const Tensor a = matrix_of<float>(71, 47, of_a, 3), b = matrix_of<float>(47, 79, of_b, 4);
      expect_product(matmul(a, b), a, b, false, false);
    }
  }
}

TEST_F(SimtGemmTf32, InfAndNan) { gemm_check::expect_infinite_rows(kSimt); }

TEST_F(SimtGemmTf32, WithinTheBoundOfCutOperandsInEveryOp) {
  const auto random = [](Shape shape, uint64_t seed) {
    return cast(sample_tensor(shape, seed, -1, 1), DType::f32).to(kSimt);
  };
  for (const int64_t rows : {1, 17, 97}) {
    const Tensor x = random({rows, 333}, 1), w = random({77, 333}, 2), dy = random({rows, 77}, 3);
    const LaunchLog log;
    const Tensor y = linear(x, w, Tensor()),
                 act = apply1(kProductChainOp, {x, w}, ends::linear_act(Act::none));
    const Tensor dx = apply1(kProductChainOp, {dy, w, {}, x}, ends::input_grad_act(Act::none));
    const Tensors grads = apply(kWeightBiasGradOp, {dy, x});
    const Tensor step = make_step_state(kSimt), updated = random({77, 333}, 4), none;
    write_step_state(step, {.lr = 1});
    const std::vector<float> before = updated.to_vector<float>();
    apply(kWeightGradUpdateOp,
        {dy, x, updated, none, none, none, none, none, none, none, none, none, step, none, none},
        UpdateAttrs{.optimizer = OptimizerKind::Sgd});
    EXPECT_EQ(log.launches().size(), 5u);
    for (const LaunchShape& launch : log.launches())
      test::expect_facts(std::string(launch.kernel), {"_mma_64x64<float"});
    const auto within = [&](const Tensor& c, const Tensor& a, const Tensor& b, bool ta, bool tb) {
      const int64_t k = a.size(ta ? 0 : 1);
      const auto sum = [&](int64_t i, int64_t j) { return sum_of(a, b, ta, tb, i, j); };
      const auto cut = [&](const Sum& s) {
        return tolerance(s, k, DType::bf16, DType::f32) + 0x1p-9 * s.magnitude;
      };
      const auto whole = [&](const Sum& s) { return tolerance(s, k, DType::f32, DType::f32); };
      gemm_check::expect_sums(c, sum, cut, test::close);
      gemm_check::expect_sums(c, sum, whole, test::apart);
    };
    synchronize(kSimt);
    within(y, x, w, false, true);
    within(act, x, w, false, true);
    within(dx, dy, w, false, false);
    within(grads[0], dy, x, true, false);
    const std::vector<float> after = updated.to_vector<float>(), dw = grads[0].to_vector<float>();
    for (size_t e = 0; e < after.size(); ++e) ASSERT_EQ(after[e], before[e] - dw[e]) << e;
    for (const double db : grads[1].to_vector<double>()) EXPECT_TRUE(std::isfinite(db));
  }
}

}  // namespace
}  // namespace sinter
