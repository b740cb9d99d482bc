// Shares of long sums and large tiles, which the matrix products take by the size of the grid, on
// the emulator as a card of few or many multiprocessors.
#include <gtest/gtest.h>

#include "core/device/launch_log.h"
#include "core/device/simt.h"
#include "ops/fused/fused.h"
#include "ops/product/gemm_library.h"
#include "tests/ops/ends.h"
#include "tests/ops/gemm_check.h"

namespace sinter {
namespace {

using gemm_check::at, gemm_check::expect_product, gemm_check::expect_sums, gemm_check::kSimt,
    gemm_check::matrix, gemm_check::Sum, gemm_check::sum_of;
using simt::Schedule;

constexpr Schedule::Order kAllOrders[] = {Schedule::Order::forward, Schedule::Order::reversed,
    Schedule::Order::one_warp_ahead, Schedule::Order::shuffled};

class SimtGemmShapes : public testing::TestWithParam<DType> {
 protected:
  ~SimtGemmShapes() override { simt::set_schedule({}); }
  template <class F> void typed(F&& f) { visit_float(GetParam(), f); }
};
INSTANTIATE_TEST_SUITE_P(Types, SimtGemmShapes,
    testing::Values(DType::f32, DType::f64, DType::bf16),
    [](const auto& type) { return std::string(name_of(type.param)); });

struct Ran {
  Tensors out;
  LaunchShape launch;
};
template <class F> Ran only_launch_of(const F& f) {
  const LaunchLog log;
  Tensors out = f();
  synchronize(kSimt);
  EXPECT_EQ(log.launches().size(), 1u);
  return {out, log.launches().at(0)};
}
void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].to_vector<double>(), b[i].to_vector<double>()) << "output " << i;
}

void expect_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x) {
  expect_product(dw, dy, x, true, false);
}
void expect_bias_grad(const Tensor& db, const Tensor& dy) {
  const Tensor ones = Tensor::full({dy.size(0), 1}, 1, dy.dtype(), kSimt);
  expect_weight_grad(reshape(db, {db.numel(), 1}), dy, ones);
}

TEST_P(SimtGemmShapes, SharesOfLongSumsInAFixedOrder) {
  typed([&]<class T>(T) {
    const auto run = [&](int64_t batch, int multiprocessors, Schedule::Order order,
                         int64_t columns = 70) {
      simt::set_schedule({.order = order, .seed = 3, .multiprocessors = multiprocessors});
      return only_launch_of([&] {
        return apply(kWeightBiasGradOp, {matrix<T>(batch, 17, 1), matrix<T>(batch, columns, 2)});
      });
    };
    const int64_t tiles = GetParam() == DType::bf16 ? 2 : 4;
    for (const int64_t batch : {1024, 2125, 4000}) {
      SCOPED_TRACE(batch);
      const Ran split = run(batch, 132, Schedule::Order::forward);
      EXPECT_EQ(split.launch.grid.z, batch / 256) << "the last ones of 2125 and 4000 are shorter";
      EXPECT_EQ(split.launch.grid.x * split.launch.grid.y, tiles);
      for (const auto order : kAllOrders) expect_same_bits(split.out, run(batch, 132, order).out);
      expect_weight_grad(split.out[0], matrix<T>(batch, 17, 1), matrix<T>(batch, 70, 2));
      expect_bias_grad(split.out[1], matrix<T>(batch, 17, 1));
      const Ran whole = run(batch, 132, Schedule::Order::shuffled, 72);
      EXPECT_EQ(whole.launch.grid.z, batch / 256);
      expect_weight_grad(whole.out[0], matrix<T>(batch, 17, 1), matrix<T>(batch, 72, 2));
      expect_bias_grad(whole.out[1], matrix<T>(batch, 17, 1));
    }
    EXPECT_EQ(run(511, 132, Schedule::Order::forward).launch.grid.z, 1) << "sums are short";
    // A multiprocessor holds two blocks of the tensor cores' kernel.
    const int64_t at_once = GetParam() == DType::bf16 ? 2 : 1;
    const int few = int((2 * tiles - 1) / at_once), half = int(2 * tiles / at_once);
    EXPECT_EQ(run(2048, few, Schedule::Order::forward).launch.grid.z, 1) << "half is busy";
    EXPECT_EQ(run(2048, half, Schedule::Order::forward).launch.grid.z, 2);
    // Of more tiles than a card has multiprocessors' halves, too: 66 of two fit.
    EXPECT_EQ(run(512, 132, Schedule::Order::forward, 66 * 64).launch.grid.z, at_once);
  });
}

TEST_P(SimtGemmShapes, SharesReachTheEpilogueOnce) {
  typed([&]<class T>(T) {
    for (const int64_t columns : {70, 72}) {
      SCOPED_TRACE(columns);
      const Tensor x = matrix<T>(5, 3000, 1), w = matrix<T>(columns, 3000, 2),
                   bias = reshape(matrix<T>(1, columns, 3), {columns});
      const auto pre = [&](int64_t i, int64_t j) {
        Sum s = sum_of(x, w, false, true, i, j);
        s.value += at(reshape(bias, {1, columns}), 0, j);
        return s;
      };
      const Ran kept = only_launch_of([&] {
        return apply(kProductChainOp, {x, w, bias}, ends::linear_act(Act::relu, true, dtype_of<T>));
      });
      EXPECT_EQ(kept.launch.grid.z, 11);
      expect_sums(kept.out[1], pre, 3000, dtype_of<T>);
      EXPECT_EQ(kept.out[0].to_vector<double>(), relu(kept.out[1]).to_vector<double>());
      // The same sums by the kernel that is compiled for ReLU.
      const Ran act = only_launch_of([&] {
        return apply(
            kProductChainOp, {x, w, bias}, ends::linear_act(Act::relu, false, dtype_of<T>));
      });
      EXPECT_EQ(act.out[0].to_vector<double>(), kept.out[0].to_vector<double>());
    }
  });
}

// Both sums of an element of h: of g and of u, which are kept as they reach the epilogue.
TEST_P(SimtGemmShapes, SharesOfGatedLinear) {
  typed([&]<class T>(T) {
    const Tensor x = matrix<T>(5, 1100, 1), gate = matrix<T>(33, 1100, 2),
                 up = matrix<T>(33, 1100, 3);
    const Ran ran = only_launch_of([&] {
      return apply(kGatedLinearOp, {x, gate, up}, GatedLinearAttrs{Act::relu, true});
    });
    EXPECT_EQ(ran.launch.grid.z, 4);
    const auto both = [&](int64_t i, int64_t j) {
      return sum_of(x, j < 33 ? gate : up, false, true, i, j % 33);
    };
    expect_sums(ran.out[1], both, 1100, dtype_of<T>);
  });
}

// One update, by SGD with a rate of 1, of layers of {batch, o, i}: held against sums in f64. Its
// launch.
template <class T> LaunchShape expect_update(const std::array<std::array<int64_t, 3>, 3>& sizes) {
  using V = compute_t<T>;
  struct Layer {
    Tensor dy, x, w, b;
  };
  std::vector<Layer> layers;
  for (const auto& [batch, o, i] : sizes) {
    layers.push_back({matrix<T>(batch, o, 1), matrix<T>(batch, i, 2),
        Tensor::zeros({o, i}, dtype_of<V>, kSimt), Tensor::zeros({o}, dtype_of<V>, kSimt)});
  }
  const Tensor none, step = make_step_state(kSimt),
                     losses = Tensor::full({1500}, 0.5, DType::f32, kSimt);
  write_step_state(step, {.lr = 1});
  Tensors in;
  for (const Layer& l : layers) {
    for (const Tensor& t : {l.dy, l.x, l.w, none, none, none, none, l.b, none, none, none, none})
      in.push_back(t);
  }
  for (const Tensor& t : {step, losses, none}) in.push_back(t);
  const Ran update = only_launch_of([&] {
    return apply(
        kWeightGradUpdateOp, in, UpdateAttrs{.optimizer = OptimizerKind::Sgd, .tail = true});
  });
  for (const Layer& l : layers) {
    const Tensor dw = mul(l.w, Tensor::full({1}, -1, dtype_of<V>, kSimt)),
                 db = mul(l.b, Tensor::full({1}, -1, dtype_of<V>, kSimt));
    synchronize(kSimt);
    expect_weight_grad(dw, l.dy, l.x);
    expect_bias_grad(db, l.dy);
  }
  EXPECT_EQ(read_step_state(step).last_loss, 0.5);
  return update.launch;
}

// All layers of a batch share the counters and the memory of one launch; another batch goes whole.
TEST_P(SimtGemmShapes, SharesOfTheLayersOfOneLaunch) {
  typed([&]<class T>(T) {
    const Grid grid =
        GetParam() == DType::bf16 ? Grid{5 * 2 + 2 + 5 * 1 + 1} : Grid{5 * 4 + 5 + 5 * 1 + 1};
    EXPECT_EQ(expect_update<T>({{{1500, 20, 65}, {100, 65, 9}, {1500, 7, 20}}}).grid, grid)
        << "the last makes the next step's state";
    EXPECT_EQ(expect_update<T>({{{1500, 24, 72}, {100, 65, 8}, {1500, 7, 24}}}).grid, grid);
  });
}

// Blocks of 64 x 64 results in f32 and 128 x 128 in bf16, where their waves are three fifths busy:
// of operands that are whole where the kernel asks for it, in each layout that an op usually gets,
// with rows and columns behind the last tile.
TEST_P(SimtGemmShapes, LargeTilesWhereThereAreEnough) {
  typed([&]<class T>(T) {
    if (GetParam() == DType::f64) return;  // is for tests: one kernel
    const bool mma = GetParam() == DType::bf16;
    const int64_t scale = mma ? 2 : 1;
    // An order each, as a case has seconds.
    int turn = 0;
    const auto run = [&](const char* op, int multiprocessors, bool large, const auto& f) {
      const std::string kernel = str(op, mma     ? large ? "_mma_128x128<" : "_mma_64x64<"
                                         : large ? "_ffma_64x64<"
                                                 : "_ffma_16x64<");
      SCOPED_TRACE(str(kernel, " of ", multiprocessors));
      simt::set_schedule(
          {.order = kAllOrders[turn++ % 4], .seed = 5, .multiprocessors = multiprocessors});
      const LaunchShape launch = f();
      EXPECT_TRUE(launch.kernel.starts_with(kernel)) << launch.kernel;
      return launch.grid;
    };
    const int64_t m = 131 * scale - 1, n = 136 * scale, k = 80;
    const Tensor x = matrix<T>(m, k, 1), w = matrix<T>(n, k, 2), v = matrix<T>(k, n, 3),
                 b = matrix<T>(1, n, 4), y = matrix<T>(m, n, 5), dy = matrix<T>(m, 67 * scale, 6);
    const auto pre = [&](int64_t i, int64_t j) {
      Sum s = sum_of(x, w, false, true, i, j);
      s.value += at(b, 0, j);
      return s;
    };
    const auto linear_of = [&] {
      const Ran ran = only_launch_of([&] { return Tensors{linear(x, w, reshape(b, {n}))}; });
      expect_sums(ran.out[0], pre, k, dtype_of<T>);
      return ran.launch;
    };
    // Nine blocks, with a fourth of their work in 27 small ones, in bf16 25: on ten multiprocessors
    // they have 68 or 63 % to do, on twelve 56 or 52 %, on eight there is a second wave.
    EXPECT_EQ(run("matmul", 10, true, linear_of), (Grid{3, 3}));
    run("matmul", 12, false, linear_of);
    run("matmul", 8, false, linear_of);
    run("matmul", 1, true, [&] {
      const Ran ran = only_launch_of([&] { return Tensors{matmul(x, v)}; });
      expect_product(ran.out[0], x, v, false, false);
      return ran.launch;
    });
    run("product_chain", 1, true, [&] {
      const Ran ran = only_launch_of([&] {
        return apply(kProductChainOp, {x, w, reshape(b, {n})},
            ends::linear_act(Act::relu, false, dtype_of<T>));
      });
      expect_sums(
          ran.out[0],
          [&](int64_t i, int64_t j) {
            Sum s = pre(i, j);
            s.value = std::max(s.value, 0.0);
            return s;
          },
          k, dtype_of<T>);
      return ran.launch;
    });
    run("product_chain", 1, true, [&] {
      const Ran ran = only_launch_of([&] {
        return apply(kProductChainOp, {x, v, {}, y}, ends::input_grad_act(Act::relu, dtype_of<T>));
      });
      expect_sums(
          ran.out[0],
          [&](int64_t i, int64_t j) {
            return at(y, i, j) > 0 ? sum_of(x, v, false, false, i, j) : Sum{};
          },
          k, dtype_of<T>);
      return ran.launch;
    });
    run("weight_bias_grad", 1, true, [&] {  // dy of as many columns as there may be classes
      const Ran ran = only_launch_of([&] { return apply(kWeightBiasGradOp, {dy, y}); });
      expect_weight_grad(ran.out[0], dy, y);
      expect_bias_grad(ran.out[1], dy);
      return ran.launch;
    });
    if (mma) return;  // an update's tiles on tensor cores are small
    const auto update = [&] {
      return expect_update<T>({{{600, 131, 72}, {600, 40, 136}, {100, 70, 8}}});
    };
    EXPECT_EQ(run("weight_grad_update", 11, true, update), (Grid{6 + 3 + 2 + 1}));
    EXPECT_EQ(run("weight_grad_update", 22, true, update), (Grid{(6 + 3) * 2 + 2 + 1}))
        << "shares are blocks, too";
    run("weight_grad_update", 132, false, update);
  });
}

}  // namespace
}  // namespace sinter
