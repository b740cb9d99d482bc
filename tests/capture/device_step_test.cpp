// Whole training steps on the emulator, and on a card where there is one, against the CPU: per step
// from equal weights, as two right programs part by more over many steps; and their launches,
// counted one by one.
#include <gtest/gtest.h>

#include "core/device/launch_log.h"
#include "data/digits.h"
#include "nn/named_tensor.h"
#include "ops/optim/step_state.h"
#include "ops/product/gemm_library.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

using test::kCuda;

void copy_all(const nn::NamedTensors& to, const nn::NamedTensors& from) {
  for (size_t i = 0; i < to.size(); ++i) nn::copy_values(to[i].tensor, from[i].tensor, "test");
}

struct Case {
  const char *what, *optimizer, *rules;  // rules null: eager
  double dropout = 0, clip = 0;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes{37, 19, 16, 10};
  bool digits = false;
};

// The next `rows` of the built-in digits.
Tensors digits_of(const TrainOptions& o, int64_t rows, int step) {
  std::vector<uint8_t> pixels(static_cast<size_t>(rows) * kImagePixels);
  std::vector<int32_t> labels(static_cast<size_t>(rows));
  draw_digits(kDataSeed, static_cast<uint64_t>(step) * 16, pixels, labels);
  std::vector<float> x(pixels.begin(), pixels.end());
  for (float& v : x) v /= 255;
  return {Tensor::from(x, {rows, kImagePixels}, o.device), Tensor::from(labels, {rows}, o.device)};
}

// <= 1e-5 of the largest value in f32, 1e-11 in f64; bf16 activations may round to either side.
void compare_steps(Device device, const Case& c, int steps) {
  manual_seed(11);  // of both devices
  TrainOptions options{.sizes = c.sizes,
      .optimizer = c.optimizer,
      .dropout = c.dropout,
      .clip = c.clip,
      .dtype = c.dtype};
  Training cpu(options);
  options.device = device;
  Training other(options);
  std::unique_ptr<Step> cpu_step, other_step;
  if (c.rules) {
    cpu_step = std::make_unique<Step>(cpu.function(), cpu.step_options(c.rules));
    other_step = std::make_unique<Step>(other.function(), other.step_options(c.rules));
  }
  const double allowed = c.dtype == DType::f64 ? 1e-11 : c.dtype == DType::f32 ? 1e-5 : 3e-2;
  for (int s = 0; s < steps; ++s) {
    SCOPED_TRACE(cat(c.what, ", step ", s));
    const int64_t rows = s % 5 == 4 ? 3 : 13;  // the last batch of an epoch is ragged
    const auto draw = [&](const TrainOptions& o) {
      return c.digits ? digits_of(o, rows, s)
                      : batch_of(o, rows, 100 + 2 * static_cast<uint64_t>(s));
    };
    const Tensors batch = draw(cpu.options), there = draw(options);
    copy_all(other.net.named_parameters(), cpu.net.named_parameters());
    copy_all(other.optimizer->state_tensors(), cpu.optimizer->state_tensors());
    restart_random_ops();
    const Tensor wanted = cpu_step ? (*cpu_step)(batch)[0] : cpu(batch)[0];
    restart_random_ops();
    const Tensor losses = other_step ? (*other_step)(there)[0] : other(there)[0];
    EXPECT_EQ(losses.device(), device);
    EXPECT_TRUE(test::close(losses, wanted, {.of_largest = allowed})) << "losses";
    const auto mine = cpu.net.named_parameters(), theirs = other.net.named_parameters();
    for (size_t i = 0; i < mine.size(); ++i) {
      const std::string_view rules = c.rules ? c.rules : "";
      const bool taken = rules.starts_with("all") &&
                         rules.find("-weight_grad_update") == rules.npos &&
                         s >= 2;  // no gradient is left to look at
      if (!taken) {
        EXPECT_TRUE(
            test::close(theirs[i].tensor.grad(), mine[i].tensor.grad(), {.of_largest = allowed}))
            << "gradient of " << mine[i].name;
      }
      const double adam = c.optimizer[0] == 'a'
                              ? 0.002 / 20
                              : 0;  // Adam's first steps magnify the rounding of tiny gradients
      EXPECT_TRUE(test::close(theirs[i].tensor, mine[i].tensor,
          {.of_each = allowed / 2, .absolute = allowed / 2 + adam}))
          << mine[i].name;
    }
    const StepState x = read_step_state(other.optimizer->state()),
                    y = read_step_state(cpu.optimizer->state());
    EXPECT_EQ(x.step, y.step);
    EXPECT_EQ(x.beta1_power, y.beta1_power);
    EXPECT_EQ(x.root_scale, y.root_scale);
    EXPECT_EQ(x.loss_rows, y.loss_rows);
    EXPECT_NEAR(x.last_loss, y.last_loss, allowed * std::max(1.0, y.last_loss));
    EXPECT_EQ(x.ticket, 0u);
  }
}

void eager_steps(Device device) {
  compare_steps(device, {.what = "adam", .optimizer = "adam", .rules = nullptr}, 20);
  compare_steps(device,
      {.what = "sgd, dropout, clipping",
          .optimizer = "sgd",
          .rules = nullptr,
          .dropout = 0.3,
          .clip = 0.1},
      6);
  compare_steps(
      device, {.what = "f64", .optimizer = "adamw", .rules = nullptr, .dtype = DType::f64}, 6);
  compare_steps(
      device, {.what = "bf16", .optimizer = "sgd", .rules = nullptr, .dtype = DType::bf16}, 6);
}
void captured_steps(Device device) {
  compare_steps(device, {.what = "replay", .optimizer = "adam", .rules = "none"}, 6);
  compare_steps(device,
      {.what = "gradients kept", .optimizer = "adam", .rules = "all,-weight_grad_update"}, 20);
  compare_steps(device, {.what = "all rules", .optimizer = "adam", .rules = "all"}, 20);
  compare_steps(device,
      {.what = "sgd, dropout, clipping",
          .optimizer = "sgd",
          .rules = "all",
          .dropout = 0.3,
          .clip = 0.1},
      6);
  compare_steps(
      device, {.what = "f64", .optimizer = "sgd", .rules = "all", .dtype = DType::f64}, 6);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    compare_steps(device,
        {.what = "adam, all rules", .optimizer = "adam", .rules = "all", .dtype = dtype}, 6);
    compare_steps(device,
        {.what = "head by head", .optimizer = "sgd", .rules = "all,-row_chain", .dtype = dtype}, 6);
    compare_steps(device,
        {.what = "the default net",
            .optimizer = "sgd",
            .rules = "all",
            .dtype = dtype,
            .sizes = {784, 256, 128, 10}},
        4);
  }
}

TEST(DeviceStepSimt, EagerStepsAreThoseOfTheCpu) { eager_steps(kSimt); }
TEST(DeviceStepSimt, ReplaysAndFusedStepsAreThoseOfTheCpu) { captured_steps(kSimt); }

// The mnist program's step, on a small model, for as long as three epochs of 1000 digits in batches
// of 16. The sanitizers see all there is to see in the first forty.
void two_hundred_steps(Device device) {
  for (const char* optimizer : {"sgd", "adam"}) {
    for (const char* rules : {static_cast<const char*>(nullptr), "all"})
      compare_steps(device,
          {.what = optimizer,
              .optimizer = optimizer,
              .rules = rules,
              .sizes = {784, 16, 16, 10},
              .digits = true},
          test::kSanitized ? 40 : 200);
  }
}
TEST(DeviceStepSimt, TwoHundredStepsOnDigitsAreThoseOfTheCpu) { two_hundred_steps(kSimt); }

using DeviceStepGpu = test::GpuTest;
TEST_F(DeviceStepGpu, EagerStepsAreThoseOfTheCpu) { eager_steps(kCuda); }
TEST_F(DeviceStepGpu, ReplaysAndFusedStepsAreThoseOfTheCpu) { captured_steps(kCuda); }
TEST_F(DeviceStepGpu, TwoHundredStepsOnDigitsAreThoseOfTheCpu) { two_hundred_steps(kCuda); }

// The lists of the design: one kernel per op, nothing beside them.
TEST(DeviceStepSimt, LaunchesAreThoseOfTheList) {
  for (const auto& [rules, launches] : {std::pair<const char*, int64_t>{nullptr, 25}, {"none", 25},
           {"all,-weight_grad_update,-row_chain", 10}, {"all,-row_chain", 7}, {"all", 2}}) {
    const TrainOptions options{.sizes = {20, 16, 12, 10}, .device = kSimt};
    Training training(options);
    std::unique_ptr<Step> step;
    if (rules) step = std::make_unique<Step>(training.function(), training.step_options(rules));
    const Tensors batch = batch_of(options, 8, 1);
    for (int i = 0; i < 4; ++i) {
      const LaunchLog log;
      if (step) {
        (*step)(batch);
      } else {
        training(batch);
      }
      const auto list = log.launches();
      std::string names;
      for (const LaunchShape& launch : list) names += cat("\n  ", launch.kernel);
      EXPECT_EQ(static_cast<int64_t>(list.size()), step && i >= 2 ? launches : 25)
          << (rules ? rules : "eager") << ", call " << i << names;
    }
    if (step) {
      EXPECT_EQ(step->captured()->executor->launches(), static_cast<size_t>(launches));
    }
  }
}

// The kernels of a replay in TF32, of which no other product is left.
std::vector<std::string> kernels_in_tf32(const std::vector<int64_t>& sizes) {
  set_allow_tf32(true);
  const TrainOptions options{.sizes = sizes, .device = kSimt};
  Training training(options);
  Step step(training.function(), training.step_options("all"));
  const Tensors batch = batch_of(options, 8, 1);
  for (int i = 0; i < 2; ++i) step(batch);
  const LaunchLog log;
  step(batch);
  set_allow_tf32(false);
  std::vector<std::string> names;
  for (const LaunchShape& launch : log.launches()) {
    names.emplace_back(launch.kernel);
    EXPECT_NE(names.back().find("_mma_"), std::string::npos) << names.back();
  }
  return names;
}
TEST(DeviceStepSimt, TheKernelsInTf32RunOnTensorCores) {
  // The first net's chain does not fit: the head is alone.
  const std::vector<std::string> five = kernels_in_tf32({20, 512, 256, 10}),
                                 three = kernels_in_tf32({784, 256, 128, 10});
  ASSERT_EQ(five.size(), 5u);
  EXPECT_TRUE(five[2].starts_with("row_chain_mma_16<float")) << five[2];
  ASSERT_EQ(three.size(), 3u);
  EXPECT_TRUE(three[1].starts_with("row_chain_mma_16<float")) << three[1];
}

}  // namespace
}  // namespace sinter::capture
