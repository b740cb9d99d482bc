// Updates of lists of tensors, the step state, and clipping. tests/nn/optim_test.cpp holds the
// updates to the formulas.
#include <gtest/gtest.h>

#include "ops/fused/fused.h"
#include "ops/optim/update.h"
#include "tests/closeness.h"
#include "tests/gpu_test.h"

namespace sinter {
namespace {

using enum OptimizerKind;

Tensor new_state(double lr, double beta1 = 0, double beta2 = 0) {
  const Tensor state = make_step_state();
  reset_step_state(host_step_state(state), beta1, beta2);
  host_step_state(state).lr = lr;
  return state;
}

TEST(LionUpdate, PassesANanOn) {
  const Tensor p = Tensor::ones({2}), g = Tensor::from({1, NAN}, {2}), m = Tensor::zeros({2});
  update_parameter({p, g, m}, new_state(0.5), {.optimizer = Lion});
  EXPECT_EQ(p.data<float>()[0], 0.5f);
  EXPECT_TRUE(std::isnan(p.data<float>()[1]));
  EXPECT_TRUE(std::isnan(m.data<float>()[1]));
}

// To the bit, for every optimizer, with bf16 copies of f32 parameters: one launch for all, and one
// for each.
void check_lists(Device device) {
  for (size_t k = 0; k < names_of(OptimizerKind()).size(); ++k) {
    const UpdateAttrs attrs{
        .optimizer = OptimizerKind(k), .momentum = 0.9, .weight_decay = 0.1, .beta2 = 0.99};
    const OptimizerRow& row = optimizer_row(attrs.optimizer);
    SCOPED_TRACE(str(row.name, " on ", device.str()));
    const auto groups = [&] {
      std::vector<UpdateGroup> all;
      for (const Shape& shape : {Shape{33, 5}, Shape{1}, Shape{70}}) {
        UpdateGroup g;
        Tensor* const operands[] = {&g.param, &g.grad, &g.state1, &g.state2};
        for (size_t i = 0; i < 2 + row.used_states(attrs); ++i)
          *operands[i] = cast(sample_tensor(shape, i, 0.1, 1), DType::f32).to(device);
        g.bf16_copy = cast(g.param, DType::bf16);
        all.push_back(g);
      }
      return all;
    };
    const std::vector<UpdateGroup> one = groups(), many = groups();
    const Tensor state = new_state(0.1, 0.9, 0.99).to(device);
    Tensors in;
    for (size_t i = 0; i < one.size(); ++i) {
      update_parameter(one[i], state, attrs);
      const UpdateGroup& g = many[i];
      in.insert(in.end(), {g.param, g.grad, g.state1, g.state2, g.bf16_copy, g.skipped});
    }
    in.insert(in.end(), {state, {}, {}});
    apply(kMultiTensorUpdateOp, in, attrs);
    for (size_t i = 0; i < one.size(); ++i) {
      const auto bits = [](const Tensor& t) {
        return t.defined() ? t.to_vector<float>() : std::vector<float>();
      };
      EXPECT_EQ(bits(many[i].param), bits(one[i].param));
      EXPECT_NE(bits(many[i].param), bits(groups()[i].param));
      EXPECT_EQ(bits(many[i].state1), bits(one[i].state1));
      EXPECT_EQ(bits(many[i].state2), bits(one[i].state2));
      EXPECT_EQ(bits(many[i].bf16_copy), bits(cast(one[i].param, DType::bf16)));
    }
  }
}
TEST(Update, OfAListIsThatOfEach) { check_lists(kCpu); }
TEST(UpdateSimt, OfAListIsThatOfEach) { check_lists({Device::Type::simt, 0}); }

TEST(AdamUpdate, ChangesVersionsOfWhatItWrites) {
  const Tensor p = Tensor::ones({4}), g = Tensor::ones({4}), m = Tensor::zeros({4}),
               v = Tensor::zeros({4});
  update_parameter({p, g, m, v}, new_state(0.1, 0.9, 0.999), {});
  EXPECT_EQ(p.storage()->version(), 1u);
  EXPECT_EQ(g.storage()->version(), 0u);
  EXPECT_EQ(v.storage()->version(), 1u);
  EXPECT_STREQ(p.storage()->last_writer(), "adam_update");
  // The first step has length lr.
  EXPECT_TRUE(test::close(p, Tensor::full({4}, 0.9), {.absolute = 1e-6}));
}

TEST(Update, LossesWithoutTailAreRefused) {
  const Tensor p = Tensor::ones({4});
  const UpdateAttrs sgd{.optimizer = Sgd}, momentum{.optimizer = Sgd, .momentum = 0.9};
  EXPECT_NO_THROW(update_parameter({p, p}, new_state(0.1), sgd));
  EXPECT_THROW(update_parameter({p, p}, new_state(0.1), sgd, Tensor::ones({2})), Error);
  EXPECT_THROW(update_parameter({p, p}, new_state(0.1), momentum), Error);
  EXPECT_THROW(update_parameter({p, p}, Tensor::zeros({3}, DType::u8), sgd), Error);
}

TEST(Update, CostCountsFlopsAndBytes) {
  const Tensor p = Tensor::zeros({100}), low = Tensor::zeros({100}, DType::bf16),
               state = make_step_state();
  const auto cost = [&](const OpDef& op, const Tensors& in, const Attrs& attrs) {
    return op.cost(in, Tensors{}, attrs);
  };
  EXPECT_EQ(cost(kSgdUpdateOp, {p, p, {}, {}, {}, {}, state, {}, {}}, UpdateAttrs{}),
      (Cost{200, 800, 400}));
  EXPECT_EQ(cost(kSgdUpdateOp, {p, p, p, {}, {}, {}, state, {}, {}}, UpdateAttrs{.momentum = 0.9}),
      (Cost{400, 1200, 800}));
  EXPECT_EQ(cost(kSgdUpdateOp, {p, p, p, {}, low, {}, state, {}, {}},
                UpdateAttrs{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}),
      (Cost{800, 1200, 1000}));
  EXPECT_EQ(cost(kAdamUpdateOp, {p, p, p, p, {}, {}, state, {}, {}}, UpdateAttrs{}),
      (Cost{1300, 1600, 1200}));
  EXPECT_EQ(
      cost(kAdamUpdateOp, {p, p, p, p, low, {}, state, {}, {}}, UpdateAttrs{.weight_decay = 0.1}),
      (Cost{1500, 1600, 1400}));
  EXPECT_EQ(cost(kRMSpropUpdateOp, {p, p, p, {}, {}, {}, state, {}, {}}, UpdateAttrs{}),
      (Cost{900, 1200, 800}));
  EXPECT_EQ(
      cost(kLionUpdateOp, {p, p, p, {}, low, {}, state, {}, {}}, UpdateAttrs{.weight_decay = 0.1}),
      (Cost{1100, 1200, 1000}));
}

TEST(StepState, TailMovesEveryField) {
  const Tensor p = Tensor::ones({4}), state = new_state(0.1, 0.9, 0.99),
               rng = Tensor::from<int64_t>({5, 0, 0}, {3});
  const StepState& s = host_step_state(state);
  EXPECT_DOUBLE_EQ(s.step_scale, 1 / 0.1);
  EXPECT_DOUBLE_EQ(s.root_scale, 1 / std::sqrt(1 - 0.99));
  const UpdateAttrs tail{.beta1 = 0.9, .beta2 = 0.99, .tail = true};
  const auto step = [&](std::initializer_list<float> losses) {
    update_parameter({p, Tensor::ones({4}), Tensor::zeros({4}), Tensor::zeros({4})}, state, tail,
        Tensor::from(losses, {int64_t(losses.size())}), rng);
  };
  next_random_op();
  step({1, 2, 6});
  EXPECT_EQ(next_random_op(), 0);
  EXPECT_EQ(s.step, 1);
  EXPECT_EQ(s.loss_sum, 9);
  EXPECT_EQ(s.loss_rows, 3);
  EXPECT_EQ(s.last_loss, 3);
  EXPECT_DOUBLE_EQ(s.step_scale, 1 / (1 - 0.9 * 0.9));
  EXPECT_EQ(rng.data<int64_t>()[1], 1);
  step({1, NAN});
  step({});
  step({std::numeric_limits<float>::infinity()});
  EXPECT_EQ(s.first_bad_step, 1);
  EXPECT_EQ(s.last_good_loss, 3);
  EXPECT_TRUE(std::isinf(s.last_loss));
  EXPECT_EQ(s.step, 4);
  EXPECT_EQ(s.loss_rows, 6);
  EXPECT_NEAR(s.beta2_power, std::pow(0.99, 4), 1e-15);
  reset_step_state(host_step_state(state), 0.5, 0.5);
  EXPECT_EQ(s.step, 0);
  EXPECT_EQ(s.first_bad_step, -1);
  EXPECT_EQ(s.lr, 0.1);
}

// Against the sum in long double, and to the bit against the shape of kLossRuns, written anew.
// A term passes through its run, its lane and the lanes: that many roundings at most.
void check_sums_of_losses(std::initializer_list<Device> devices) {
  for (const int64_t rows : {0, 1, 31, 33, 128, 255, 256, 257, 1000, 8195}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(str(rows, " rows of ", name_of(dtype)));
      std::vector<double> values;  // whose sums are not exact
      for (int64_t i = 0; i < rows; ++i) values.push_back(1 / double(i + 3));
      const Tensor losses = cast(Tensor::from(values, {rows}), dtype);
      values = losses.to_vector<double>();
      long double exact = 0;
      double runs[256] = {};
      for (size_t i = 0; i < values.size(); ++i) {
        exact += values[i];
        runs[i % 256] += values[i];
      }
      std::vector<double> lanes(32);
      for (int run = 0; run < 256; ++run) lanes[run % 32] += runs[run];
      while (lanes.size() > 1) {
        const size_t half = lanes.size() / 2;
        for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        lanes.resize(half);
      }
      const double roundings = double(rows) / 256 + 8 + 5, expected = lanes[0];
      for (const Device device : devices) {
        const Tensor state = make_step_state(device), p = Tensor::ones({4}).to(device);
        update_parameter({p, p}, state, {.optimizer = Sgd, .tail = true}, losses.to(device));
        const StepState after = read_step_state(state);
        EXPECT_EQ(after.loss_sum, expected) << device.str();
        EXPECT_EQ(after.loss_rows, rows);
        EXPECT_NEAR(after.loss_sum, double(exact), roundings * 0x1p-53 * double(exact));
      }
    }
  }
}
TEST(StepStateSimt, LossesAreSummedInOneShapeOnEveryDevice) {
  check_sums_of_losses({kCpu, Device{Device::Type::simt, 0}});
}
using StepStateGpu = test::GpuTest;
TEST_F(StepStateGpu, LossesAreSummedInOneShape) { check_sums_of_losses({test::kCuda}); }

// Of a step without a row that counts, whose gradients are 0, by the kernels that make them and
// update by them: parameters and states stay to the bit as they were, and the tail ends it.
TEST(StepStateSimt, AnIdleStepLeavesAllThatAProductUpdates) {
  for (const Device device : {kCpu, Device{Device::Type::simt, 0}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::Adam}) {
        SCOPED_TRACE(str(device.str(), ", ", name_of(type)));
        const auto values = [&](const Shape& shape, uint64_t seed, DType dtype) {
          return cast(sample_tensor(shape, seed), dtype).to(device);
        };
        StepState idle = read_step_state(make_step_state());
        idle.idle = 1;
        const Tensor state = make_step_state(device), none;
        write_step_state(state, idle);
        Tensors in{scale(values({5, 3}, 1, type), 0), values({5, 8}, 2, type)};
        for (const Shape& shape : {Shape{3, 8}, Shape{3}}) {
          for (uint64_t seed = 3; seed < 6; ++seed)
            in.push_back(abs(values(shape, seed, DType::f32)));
          if (kind == OptimizerKind::Sgd) in.back() = none;
          in.insert(in.end(), {none, none});
        }
        in.insert(in.end(), {state, none, none});
        std::vector<std::vector<float>> before, after;
        const auto keep = [&](auto& list) {
          for (size_t i = 2; i + 3 < in.size(); ++i) {
            if (in[i].defined()) list.push_back(in[i].to(kCpu).to_vector<float>());
          }
        };
        keep(before);
        apply(
            kWeightGradUpdateOp, in, UpdateAttrs{.optimizer = kind, .momentum = 0.9, .tail = true});
        keep(after);
        EXPECT_EQ(after, before);
        const StepState ended = read_step_state(state);
        EXPECT_EQ(ended.idle, 0);
        EXPECT_EQ(ended.idle_steps, 1);
        EXPECT_EQ(ended.step, 0);
      }
    }
  }
}

TEST(Clip, ScalesToTheNormOnlyWhenAbove) {
  const Tensor x = Tensor::from({3, 0, 4}, {3}), total = squared_norm(x);
  EXPECT_EQ(total.item(), 25);
  clip_in_place(x, total, 10);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{3, 0, 4}));
  clip_in_place(x, total, 1);
  EXPECT_TRUE(test::close(x, {0.6, 0, 0.8}, {.absolute = 1e-7}));
  clip_in_place(x, Tensor::full({1}, NAN, DType::f64), 1);
  EXPECT_TRUE(std::isnan(x.data<float>()[0]));
}

TEST(Accumulate, AddsInPlaceAndRefusesAStridedTarget) {
  const Tensor into = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  accumulate(into, transpose(Tensor::from({10, 20, 30, 40, 50, 60}, {3, 2})));
  EXPECT_EQ(into.to_vector<float>(), (std::vector<float>{11, 32, 53, 24, 45, 66}));
  accumulate(into, cast(Tensor::ones({2, 3}), DType::bf16));
  EXPECT_EQ(into.data<float>()[0], 12);
  EXPECT_THROW(accumulate(transpose(into), Tensor::ones({3, 2})), Error);
}

TEST(Accumulate, AddsWhatOtherElementsOfTheTargetWere) {
  const Tensor square = Tensor::from({1, 2, 3, 4}, {2, 2});
  accumulate(square, transpose(square));
  EXPECT_EQ(square.to_vector<float>(), (std::vector<float>{2, 5, 5, 8}));
  const Tensor row = Tensor::from({1, 2, 3, 4, 5}, {5});
  accumulate(slice(row, 0, 1, 5), slice(row, 0, 0, 4));
  EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{1, 3, 5, 7, 9}));
}

}  // namespace
}  // namespace sinter
