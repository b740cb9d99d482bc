// What is measured where time is what the test says: each op takes as long as a made-up machine
// needs for it, and the figures are that machine's.
#include <gtest/gtest.h>

#include "capture/measure.h"
#include "core/context.h"
#include "core/parallel.h"
#include "measure/calibrate.h"
#include "measure/comparison.h"
#include "measure/timer.h"
#include "ops/op.h"
#include "tests/capture/step_util.h"
#include "tests/closeness.h"
#include "tests/profiler/fake_clock.h"

namespace sinter::measure {
namespace {

// The clock of all timers while it lives. On one thread: with more, what one thread takes is looked
// at too (why_distrusted).
class FakeTime {
 public:
  FakeTime() {
    set_num_threads(1);
    clock_of_timers = &clock;
  }
  ~FakeTime() {
    clock_of_timers = nullptr;
    set_num_threads(threads_);
  }
  FakeTime(const FakeTime&) = delete;
  FakeTime& operator=(const FakeTime&) = delete;
  profiler::FakeClock clock;

 private:
  const int threads_ = num_threads();
};

// GFLOP/s and GB/s are FLOP and bytes a ns. An op of one element takes 100 ns, whatever it is.
struct MadeUpMachine final : Recorder {
  static constexpr double kF32Small = 100, kF32Large = 125, kBf16 = 250, kCacheCopy = 40,
                          kCacheScale = 50, kDramCopy = 16, kDramScale = 10;
  FakeTime time;
  int bf16_products = 0;

  MadeUpMachine() { Context::current().recorders.push_back(this); }
  ~MadeUpMachine() override { std::erase(Context::current().recorders, this); }

  void record(const Call& call) override {
    const Tensor& x = call.in[0];
    const double n = double(x.size(0));
    double ns = 0;
    if (x.numel() == 1) {
      ns = 100;
    } else if (call.op.text() == "matmul") {
      ns = 2 * n * n * n;
      if (x.dtype() == DType::bf16) {
        // Of three one is not disturbed.
        ns *= (bf16_products++ % 3 == 0 ? 1 : 1.5) / kBf16;
      } else {
        ns /= x.size(0) < 512 ? kF32Small : kF32Large;
      }
    } else if (call.op.text() == "copy") {
      ns = 8 * n / (n <= (1 << 19) ? kCacheCopy : kDramCopy);
    } else if (call.op.text() == "scale") {
      ns = 8 * n / (n <= (1 << 19) ? kCacheScale : kDramScale);
    }
    time.clock.advance(std::llround(ns));
  }
};

TEST(FakeTime, CalibrateGivesTheRatesOfTheMachine) {
  MadeUpMachine machine;
  const profiler::Roofs roofs = calibrate(kCpu);
  using M = MadeUpMachine;
  const auto is = [](double got, double wanted) {
    return test::close({got}, {wanted}, {.of_each = 1e-5});  // of whole ns
  };
  EXPECT_TRUE(is(roofs.f32_gflops, M::kF32Large)) << "the better of two sizes";
  EXPECT_TRUE(is(roofs.bf16_gflops, M::kBf16)) << "the best of the batches";
  EXPECT_TRUE(is(roofs.cache_gbs, M::kCacheScale)) << "read and written, by the faster of two ops";
  EXPECT_TRUE(is(roofs.dram_gbs, M::kDramCopy));
  EXPECT_EQ(roofs.op_ns, 100) << "32 ops, their gradients, and the sum of these";
  EXPECT_TRUE(is(roofs.spread, 0.5)) << "the median batch of bf16 against the best";
  EXPECT_EQ(roofs.scope_ns, 0) << "a scope is no op";
}

// A step that says its letter and takes as long as it is told.
struct Lettered {
  FakeTime time;
  TrainOptions options{.sizes = {6, 4}, .optimizer = "sgd", .momentum = 0};
  Training eager{options}, fused{options};
  capture::Step step{fused.function(), fused.step_options("all")};
  const Tensors batch = batch_of(options, 3, 1);
  std::string letters;
  std::function<int64_t()> eager_ns = [] { return 2000; }, fused_ns = [] { return 1000; };

  Comparison comparison() {
    return {.device = kCpu,
        .eager =
            [this] {
              eager(batch);
              letters += 'A';
              time.clock.advance(eager_ns());
            },
        .fused =
            [this] {
              step(batch);
              letters += 'B';
              time.clock.advance(fused_ns());
            },
        .step = &step};
  }
};

TEST(FakeTime, PairsOfRoundsRunABBA) {
  Lettered run;
  time_rounds(run.comparison(), {.steps = 1, .warmup = 0, .rounds = 5});
  EXPECT_EQ(run.letters, "ABBAABBAAB");
  run.letters.clear();
  time_rounds(run.comparison(), {.steps = 3, .warmup = 2, .rounds = 2});
  EXPECT_EQ(run.letters, "AAAAABBBBBBBBBBAAAAA");
}

// The rounds that are profiled behind them, too.
TEST(FakeTime, ProfiledPairsOfRoundsRunABBA) {
  Lettered run;
  compare(run.comparison(), {.steps = 1, .warmup = 0, .rounds = 4});
  EXPECT_TRUE(run.letters.ends_with("ABBAABBAABBAABBA")) << run.letters;
  EXPECT_EQ(run.letters.substr(0, 2), "BB") << "the step is recorded first";
  EXPECT_EQ(run.letters.size(), 2u + 2 * 8);
}

// A machine that slows down steadily makes neither step look better than it is: of two pairs the
// second takes back what the first gave.
TEST(FakeTime, ADriftOfTheMachineIsInNeitherStep) {
  Lettered run;
  int64_t drift = 0;
  run.eager_ns = run.fused_ns = [&] { return 1'000'000 + 1000 * drift++; };
  const RoundTimes times = time_rounds(run.comparison(), {.steps = 1, .warmup = 0, .rounds = 8});
  const std::vector<double> eager{1000, 1003, 1004, 1007, 1008, 1011, 1012, 1015},
      fused{1001, 1002, 1005, 1006, 1009, 1010, 1013, 1014};
  EXPECT_TRUE(test::close(times.eager_us, eager, {.absolute = 1e-9}));
  EXPECT_TRUE(test::close(times.fused_us, fused, {.absolute = 1e-9}));
  EXPECT_EQ(times.factor().value, 1);
}

// Of a round counts the median of its steps, behind the warm-up.
TEST(FakeTime, ARoundIsTheMedianOfItsStepsBehindTheWarmUp) {
  Lettered run;
  int eager = 0, fused = 0;
  const std::vector<int64_t> us{90, 80, 19, 23, 20};  // the first two warm up
  run.eager_ns = [&] { return 2000 * us[size_t(eager++) % 5]; };
  run.fused_ns = [&] { return 1000 * us[size_t(fused++) % 5]; };
  const RoundTimes times = time_rounds(run.comparison(), {.steps = 3, .warmup = 2, .rounds = 6});
  EXPECT_TRUE(test::close(times.eager_us, std::vector<double>(6, 40), {.absolute = 1e-9}));
  EXPECT_TRUE(test::close(times.fused_us, std::vector<double>(6, 20), {.absolute = 1e-9}));
  EXPECT_EQ(times.factor_text(), "2.00x [2.00,2.00]");
}

}  // namespace
}  // namespace sinter::measure
