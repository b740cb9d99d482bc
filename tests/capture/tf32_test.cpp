// Whether products may be in TF32 is part of what a step was recorded under: its kernels are chosen
// by it.
#include <gtest/gtest.h>

#include "core/device/launch_log.h"
#include "ops/product/gemm_library.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

TEST(Tf32Simt, IsAKeyOfAStep) {
  const test::Scoped before(allow_tf32, set_allow_tf32, false);
  const TrainOptions options{.sizes = {20, 16, 10}, .optimizer = "sgd", .device = kSimt};
  Training training(options);
  Step step(training.function(), training.step_options("all"));
  const Tensors batch = batch_of(options, 8, 1);
  // Products on tensor cores in the next call, of how many launches that are products.
  const auto call = [&] {
    const LaunchLog log;
    step(batch);
    return std::ranges::count_if(log.launches(), [](const LaunchShape& launch) {
      return std::string_view(launch.kernel).find("_mma_") != std::string_view::npos;
    });
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(), 0) << "f32, call " << i;
  EXPECT_EQ(step.stats().captures, 1);
  EXPECT_EQ(step.stats().replays, 2);
  set_allow_tf32(true);
  for (int i = 0; i < 3; ++i) EXPECT_GT(call(), 0) << "TF32, call " << i;
  EXPECT_EQ(step.stats().captures, 2);
  EXPECT_EQ(step.stats().replays, 4);
  // Either capture is still there.
  for (const bool allowed : {false, true, false}) {
    set_allow_tf32(allowed);
    EXPECT_EQ(call() > 0, allowed);
  }
  EXPECT_EQ(step.stats().captures, 2);
  EXPECT_EQ(step.stats().replays, 7);
}

}  // namespace
}  // namespace sinter::capture
