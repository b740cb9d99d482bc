// What several ranks make of a training that goes wrong, and of types that one process has; and how
// a communicator tells its times.
#include <chrono>

#include "distributed/thread_group.h"
#include "nn/mlp.h"
#include "tests/closeness.h"
#include "tests/distributed/training.h"
#include "tests/test_util.h"

namespace sinter::distributed {
namespace {

// What fit() throws on each rank where one number of one rank's rows is a NaN, in batch `at` of 4.
std::vector<std::string> errors_of_a_nan(bool fused, int size, int of_rank, size_t at) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  ThreadGroup(size).run([&](Communicator& ranks) {
    nn::Mlp model({5, 8, 10}, {.seed = 3});
    nn::Adam optimizer(model.named_parameters(), nn::AdamOptions{.lr = 0.01});
    Trainer trainer(model, optimizer, {.fused = fused});
    std::vector<Tensors> batches;
    for (uint64_t i = 0; i < 4; ++i)
      batches.push_back(
          {cast(sample_tensor({6, 5}, i, 0, 1), DType::f32), sample_labels(6, 10, i)});
    const int64_t row = rows_of_rank(6, of_rank, size).begin;
    batches[at][0].data<float>()[5 * row + 2] = NAN;
    errors[static_cast<size_t>(ranks.rank())] = test::message_of([&] { trainer.fit(batches); });
  });
  return errors;
}

// Its rank alone has the loss of that step; behind it all weights are NaN, and so are all losses.
TEST(RanksTrain, TheFirstStepWhoseLossIsNotFiniteIsThatOfWhicheverRankHadIt) {
  for (const bool fused : {false, true}) {
    for (const int size : {2, 3}) {
      for (int of_rank = 0; of_rank < size; ++of_rank) {
        for (const size_t at : {0, 1, 3}) {
          SCOPED_TRACE(str(fused ? "fused" : "eager", ", rank ", of_rank, " of ", size));
          for (const std::string& error : errors_of_a_nan(fused, size, of_rank, at))
            test::expect_facts(error, {str("the loss of step ", at + 1, " is not finite")});
        }
      }
    }
  }
}

// Adam divides by the size of a gradient, so a rounding of bf16 that falls the other way moves a
// weight by up to 2 lr where the gradient is little else. That is so of few: all together they are
// a fifth of a step, a hundredth of the way of kSteps.
TEST(RanksTrain, AdamInBf16TrainsAsOneProcess) {
  constexpr int kSteps = 20;
  for (auto run : all_runs()) {
    if (run.optimizer != "adam" || (test::kSanitized && !(run.fused && run.part))) continue;
    run.dtype = DType::bf16;
    const std::vector<double> alone = train(run, kSteps);
    const double bound = test::distance(train(run, 0), alone) / 100;
    for (const int size : {2, 3}) {
      std::vector<std::vector<double>> weights(static_cast<size_t>(size));
      ThreadGroup(size).run([&](Communicator& ranks) {
        weights[static_cast<size_t>(ranks.rank())] = train(run, kSteps);
      });
      SCOPED_TRACE(str(run.what, ", ", size, " ranks"));
      for (const std::vector<double>& of_rank : weights) EXPECT_EQ(of_rank, weights[0]);
      EXPECT_TRUE(test::near(weights[0], alone, bound));
    }
    EXPECT_FALSE(test::near(train(run, kSteps - 1), alone, bound))
        << run.what << ": the bound could not fail";
  }
}

// Sums that are there when a test says so. The rest of the time is the clock's, read around each
// call and within it.
class ToldTimes final : public Communicator {
 public:
  ToldTimes() : Communicator(0, 2) {}
  std::string describe() const override { return "told times"; }
  std::vector<std::string> gather(const std::string& own) override { return {own, own}; }
  [[noreturn]] void abort(int exit_status) override { std::exit(exit_status); }
  // Starts or finishes a sum; the latest and the earliest time that this can have been.
  std::pair<Time, Time> start_at(int64_t bucket) {
    const Time before = now();
    start_sum(bucket, {&piece_, 1}, DType::f64, kCpu);
    return {before, within_};
  }
  void finish_at(int64_t bucket, Time there, std::chrono::milliseconds takes = {}) {
    there_ = there;
    takes_ = takes;
    const Time before = now();
    finish_sum(bucket);
    most_exposed += seconds(before, now());
  }
  static Time now() { return std::chrono::steady_clock::now(); }
  static double seconds(Time from, Time to) {
    return std::chrono::duration<double>(to - from).count();
  }
  double least_exposed = 0, most_exposed = 0;

 protected:
  void start(int64_t, std::span<const SumPiece>, DType, Device) override { within_ = now(); }
  Time finish(int64_t) override {
    const Time from = now();
    while (now() - from < takes_) {}
    least_exposed += seconds(from, now());
    return there_;
  }

 private:
  double number_ = 1;
  SumPiece piece_{&number_, 1};
  Time within_, there_;
  std::chrono::milliseconds takes_{};
};

TEST(CommunicatorTimes, WhatIsUnderWayTogetherCountsOnceAndWhatIsWaitedForIsExposed) {
  using std::chrono::seconds;
  ToldTimes ranks;
  const auto [a0, a1] = ranks.start_at(0);
  ranks.start_at(1);
  const auto there = ranks.now() + seconds(1000);
  // Both are under way from the first start until the later of the two is there.
  ranks.finish_at(0, there, std::chrono::milliseconds(30));
  ranks.finish_at(1, there + seconds(500), std::chrono::milliseconds(20));
  double least = ToldTimes::seconds(a1, there) + 500, most = ToldTimes::seconds(a0, there) + 500;
  const Communicator::Stats& stats = ranks.stats();
  EXPECT_EQ(stats.sums, 2);
  EXPECT_EQ(stats.bytes, 16);
  EXPECT_GE(stats.under_way_s, least - 1e-6);
  EXPECT_LE(stats.under_way_s, most + 1e-6);
  // A third that was there before the second: nothing is added.
  ranks.start_at(2);
  ranks.finish_at(2, there + seconds(400));
  EXPECT_LE(stats.under_way_s, most + 1e-6);
  // And one behind both, of which only the part behind them counts, then one that ends later.
  ranks.start_at(3);
  ranks.finish_at(3, there + seconds(600));
  EXPECT_GE(stats.under_way_s, least + 100 - 1e-6);
  EXPECT_LE(stats.under_way_s, most + 100 + 1e-6);
  EXPECT_GE(stats.exposed_s, 0.05);
  EXPECT_GE(stats.exposed_s, ranks.least_exposed - 1e-6);
  EXPECT_LE(stats.exposed_s, ranks.most_exposed + 1e-6);
  EXPECT_EQ(stats.hidden_s(), stats.under_way_s - stats.exposed_s);
  EXPECT_EQ((Communicator::Stats{.under_way_s = 1, .exposed_s = 2}.hidden_s()), 0);
}

}  // namespace
}  // namespace sinter::distributed
