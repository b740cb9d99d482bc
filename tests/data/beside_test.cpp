// What runs beside a captured step: the steps of another thread, the copy of its next batch, and
// the opening of libraries. On a card they share memory, streams and locks with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <future>

#include "capture/branches.h"
#include "core/device/cuda.h"
#include "data/batches.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"

namespace sinter {
namespace {

using BesideGpu = test::GpuTest;

// The losses of steps, of which the first is captured and the others are replays. Batches are
// allocated between them.
std::vector<float> losses_of(const TrainOptions& options) {
  Training training(options);
  capture::Step step(training.function(), training.step_options());
  std::vector<float> losses;
  for (int i = 0; i < 9; ++i)
    losses.push_back(step(batch_of(options, 16, uint64_t(i)))[0].to_vector<float>()[0]);
  EXPECT_EQ(step.stats().replays, 8);
  return losses;
}

void check_threads(Device device) {
  const TrainOptions first{.sizes = {40, 24, 10}, .device = device},
      second{.sizes = {28, 16, 12, 10}, .optimizer = "sgd", .clip = 1, .device = device};
  const std::vector<float> alone = losses_of(first), also_alone = losses_of(second);
  for (int round = 0; round < 4; ++round) {
    auto other = std::async(std::launch::async, [&] { return losses_of(first); });
    EXPECT_EQ(losses_of(second), also_alone);
    EXPECT_EQ(other.get(), alone);
  }
}
TEST(Beside, TwoThreadsTrainAsEachAlone) { check_threads(kCpu); }
TEST_F(BesideGpu, TwoThreadsTrainAsEachAlone) { check_threads(test::kCuda); }

// The gradients of parameters are on the side branch, on whose stream batches are copied.
void check_copies(Device device) {
  Split split{Tensor::empty({90, 28, 28}, DType::u8), Tensor::empty({90}, DType::i32)};
  for (int64_t i = 0; i < split.images.numel(); ++i)
    split.images.data<uint8_t>()[i] = uint8_t(i * 37 / 11);
  for (int64_t i = 0; i < 90; ++i) split.labels.data<int32_t>()[i] = int32_t(i % 10);
  Batches here(split, {.size = 10}), there(split, {.size = 10, .device = device});
  const TrainOptions options{.sizes = {784, 24, 16, 10}, .device = device};
  Training of_here(options), of_there(options);
  capture::Step step_here(of_here.function(), of_here.step_options("none")),
      step_there(of_there.function(), of_there.step_options("none"));
  for (int i = 0; i < 12; ++i) {
    const Batch batch = here.next(), copied = there.next();
    EXPECT_EQ(step_there({copied.images, copied.labels})[0].to_vector<float>(),
        step_here({batch.images.to(device), batch.labels.to(device)})[0].to_vector<float>())
        << "step " << i;
  }
  const capture::Branches branches = split_branches(step_there.captured()->fused.graph);
  EXPECT_GT(std::ranges::count(branches.branch, 1), 0);
}
TEST(BesideSimt, BatchesAreCopiedBesideASideBranch) { check_copies(kSimt); }
TEST_F(BesideGpu, BatchesAreCopiedBesideASideBranch) { check_copies(test::kCuda); }

// In a process that has opened nothing yet.
TEST_F(BesideGpu, LibrariesAreOpenedBesideTheFirstCapture) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const TrainOptions options{.device = test::kCuda};
        auto opened = std::async(std::launch::async, [] { cuda::warm_up(0, false); });
        const std::vector<float> losses = losses_of(options);
        opened.get();
        std::exit(losses == losses_of(options) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sinter
