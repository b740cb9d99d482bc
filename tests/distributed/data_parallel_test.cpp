// Training on several ranks, which are threads here, gives what one process gives. The same runs on
// MPI: mpi_rank.cpp.
#include <gtest/gtest.h>

#include <atomic>

#include "capture/explain.h"
#include "core/context.h"
#include "distributed/thread_group.h"
#include "ops/fused/fused.h"
#include "profiler/session.h"
#include "tests/closeness.h"
#include "tests/distributed/training.h"
#include "tests/test_util.h"

namespace sinter::distributed {
namespace {

// Sums of another order differ by rounding: 2^-53 of a gradient of magnitude 1 in each of 100
// updates with a rate of at most 0.05. Adam divides by the root of the second moment, which is
// above 1e-8 plus what the gradients were, so a rounding counts up to 1e3 times as much where
// gradients are small. That stays below 1e-12.
constexpr double kBound = 1e-12;

TEST(DataParallel, RowsOfRanksCoverTheBatchOnce) {
  for (const int64_t rows : {0, 1, 5, 8, 103}) {
    for (const int size : {1, 2, 3, 4, 7}) {
      int64_t at = 0;
      for (int rank = 0; rank < size; ++rank) {
        const RowRange mine = rows_of_rank(rows, rank, size);
        EXPECT_EQ(mine.begin, at);
        EXPECT_LE(mine.size() - rows / size, 1);
        EXPECT_GE(mine.size(), rows / size);
        at = mine.end;
      }
      EXPECT_EQ(at, rows);
    }
  }
}

class DataParallelRuns : public testing::TestWithParam<Run> {};

TEST_P(DataParallelRuns, WeightsAreThoseOfOneProcessAndEqualOnAllRanks) {
  const std::vector<double> alone = train(GetParam(), 100);
  for (const int size : {1, 2, 3, 4}) {
    std::vector<std::vector<double>> weights(size);
    ThreadGroup(size).run(
        [&](Communicator& ranks) { weights[size_t(ranks.rank())] = train(GetParam(), 100); });
    for (const std::vector<double>& of_rank : weights) EXPECT_EQ(of_rank, weights[0]);
    EXPECT_TRUE(test::close(weights[0], alone, {.absolute = kBound})) << size << " ranks";
    if (size == 1) {
      EXPECT_EQ(weights[0], alone);
    }
  }
  const std::vector<double> shorter = train(GetParam(), 99);
  EXPECT_TRUE(test::apart(shorter, alone, {.absolute = 1e-6})) << "the bound could not fail";
}

INSTANTIATE_TEST_SUITE_P(All, DataParallelRuns, testing::ValuesIn(all_runs()),
    [](const testing::TestParamInfo<Run>& info) {
      std::string name = info.param.what;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

// In f32 the bound of above, of f32's roundings. In bf16 each of two layers rounds its results and
// their gradient, 2^-8 each, and a sum of another order may turn every rounding: of the way that
// SGD goes that is 4 * 2^-8, a fifth of what one row of 11 makes of it.
TEST(DataParallel, F32AndBf16RanksTrainAsOneProcess) {
  for (auto run : all_runs()) {
    if (test::kSanitized && !(run.fused && run.part)) continue;  // the others' memory is of f64
    run.dtype = run.optimizer == "adam" ? DType::f32 : DType::bf16;
    constexpr int kSteps = 20;
    const std::vector<double> start = train(run, 0), alone = train(run, kSteps);
    const double bound = run.dtype == DType::f32
                             ? kBound * 0x1p29
                             : 4 * 0x1p-8 * test::closeness(start, alone, {.absolute = 1}).error;
    for (const int size : {2, 3}) {
      std::vector<std::vector<double>> weights(size);
      ThreadGroup(size).run(
          [&](Communicator& ranks) { weights[size_t(ranks.rank())] = train(run, kSteps); });
      SCOPED_TRACE(str(run.what, ", ", name_of(run.dtype), ", ", size, " ranks"));
      for (const std::vector<double>& of_rank : weights) EXPECT_EQ(of_rank, weights[0]);
      EXPECT_TRUE(test::close(weights[0], alone, {.absolute = bound}));
    }
    EXPECT_TRUE(test::apart(train(run, kSteps - 1), alone, {.absolute = bound}))
        << run.what << ": the bound could not fail";
  }
}

// The classes are drawn, so ranks have unequal numbers of rows that count, and at times one has
// rows and none that counts, or, of 3 rows, no row at all.
TEST(DataParallel, RanksWeighByTheRowsThatCount) {
  for (auto run : all_runs()) {
    const std::vector<double> counting = train(run, 20);
    run.ignore_index = 1;
    const std::vector<double> alone = train(run, 20);
    EXPECT_TRUE(test::apart(alone, counting, {.absolute = 1e-6})) << "no row was ignored";
    for (const int size : {2, 4}) {
      std::vector<std::vector<double>> weights(size);
      ThreadGroup(size).run(
          [&](Communicator& ranks) { weights[size_t(ranks.rank())] = train(run, 20); });
      SCOPED_TRACE(str(run.what, ", ", size, " ranks"));
      for (const std::vector<double>& of_rank : weights) EXPECT_EQ(of_rank, weights[0]);
      EXPECT_TRUE(test::close(weights[0], alone, {.absolute = kBound}));
    }
  }
}

// The emulator runs kernels when somebody asks for their results: a sum does.
TEST(DataParallelSimt, WeightsAreThoseOfOneProcess) {
  for (const bool fused : {false, true}) {
    auto run = all_runs()[0];
    run.fused = fused;
    run.device = {Device::Type::simt, 0};
    const std::vector<double> alone = train(run, 20);
    std::vector<double> weights;
    ThreadGroup(2).run([&](Communicator& ranks) {
      const std::vector<double> own = train(run, 20);
      if (ranks.rank() == 0) weights = own;
    });
    EXPECT_TRUE(test::close(weights, alone, {.absolute = kBound}));
  }
}

// Two ranks of which this one sees the order of events, and nothing is summed.
class OneOfTwo final : public Communicator {
 public:
  OneOfTwo() : Communicator(0, 2) {}
  std::string describe() const override { return "one of two"; }
  std::vector<std::string> gather(const std::string& own) override { return {own, own}; }
  [[noreturn]] void abort(int exit_status) override { std::exit(exit_status); }
  size_t pieces = 0;

 protected:
  void start(int64_t, std::span<const SumPiece> parts, DType, Device) override {
    pieces += parts.size();
  }
  Time finish(int64_t) override { return std::chrono::steady_clock::now(); }
};

// Five layers, a bucket for each.
Run deep_run(bool fused) {
  return {.what = "deep",
      .net = "flatten; linear 8; relu; linear 8; relu; linear 8; relu; linear 8; relu; linear 3",
      .image = {1, 2, 4},
      .fused = fused,
      .bucket_bytes = 65};
}

// The ops that matter here, in their order: gradients of weights, sums, waits, updates.
char letter_of(const OpDef& op, Role role) {
  if (role == Role::wgrad || &op == &kWeightBiasGradOp) return 'g';
  if (&op == &kAllReduceOp) return 's';
  if (&op == &kAllReduceWaitOp) return 'w';
  return op.text().ends_with("_update") ? 'u' : ' ';
}

class EventLog final : public Recorder {
 public:
  EventLog() { Context::current().recorders.push_back(this); }
  ~EventLog() override { std::erase(Context::current().recorders, this); }
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  void record(const Call& call) override {
    if (const char letter = letter_of(call.op, call.role); letter != ' ') events += letter;
  }
  std::string events;
};

// All sums but the last run beside the rest of backward.
TEST(DataParallel, ASumStartsAsSoonAsItsGradientsExist) {
  OneOfTwo ranks;
  const CommunicatorScope scope(&ranks);
  TrainingRun training(deep_run(false));
  EXPECT_EQ(training.parallel().bucket_sizes(), std::vector<int64_t>({27, 72, 72, 72, 72}));
  EventLog log;
  training.train(1);
  EXPECT_EQ(log.events, "gsgsgsgsgswwwwwuuuuuuuuuu");
}

// Calls 10 of its five keys record it once more.
TEST(DataParallel, ACapturedStepThatIsRecordedOnceMoreSendsNothingMore) {
  for (const bool fused : {false, true}) {
    OneOfTwo ranks;
    const CommunicatorScope scope(&ranks);
    TrainingRun training(deep_run(fused));
    training.train(50);
    EXPECT_EQ(ranks.stats().sums, 5 * 50) << fused;
    if (!fused) continue;
    EXPECT_EQ(training.captured_step()->stats().rechecks, 5);
    EXPECT_EQ(training.captured_step()->stats().replays, 45);
  }
}

TEST(DataParallel, FusedStepKeepsTheOrderAndSaysWhatDoesNotFuse) {
  OneOfTwo ranks;
  const CommunicatorScope scope(&ranks);
  TrainingRun training(deep_run(true));
  training.train(15);
  const capture::Captured& captured = *training.captured_step()->captured();
  std::string events;
  for (const capture::Node& node : captured.fused.graph.nodes) {
    if (const char letter = letter_of(*node.op, node.role); letter != ' ') events += letter;
  }
  EXPECT_EQ(events, "gsgsgsgsgswwwwwu");
  ranks.pieces = 0;
  training.train(5);
  EXPECT_EQ(ranks.pieces, 50U) << "a piece for each gradient, as in the eager step";
  test::expect_facts(capture::explain(captured, capture::RuleSet()),
      {"the gradient of 1.weight is first summed over all ranks (all_reduce)"});
}

TEST(DataParallel, AProfileCountsTheBytesOfSumsAndSetsThemBesideNoRoof) {
  OneOfTwo ranks;
  const CommunicatorScope scope(&ranks);
  TrainingRun training(deep_run(false));
  profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 2}});
  while (!session.done()) {
    training.train(1);
    session.step();
  }
  profiler::Report report = session.finish();
  report.roofs = profiler::Roofs{.f32_gflops = 1e-6, .cache_gbs = 1e-6, .dram_gbs = 1e-6};
  int64_t bytes = 0, waits = 0;
  for (const profiler::Row& row : report.rows().rows) {
    if (row.role != Role::comm) {
      EXPECT_TRUE(row.roof || row.kind != profiler::ScopeKind::op || row.launches == 0) << row.name;
      continue;
    }
    EXPECT_FALSE(row.roof) << row.name;
    bytes += row.cost.bytes();
    waits += row.name == "all_reduce_wait" ? row.calls : 0;
  }
  EXPECT_EQ(bytes, 2 * 315 * 2 * 8) << "2 steps of 315 gradients, read and written in f64";
  EXPECT_EQ(waits, 2 * 5);
}

TEST(DataParallel, OneProcessRunsNoSums) {
  TrainingRun training(deep_run(false));
  EventLog log;
  training.train(1);
  EXPECT_EQ(log.events, "ggggguuuuuuuuuu");
}

TEST(DataParallel, RefusesWhatItCannotDo) {
  OneOfTwo ranks;
  const CommunicatorScope scope(&ranks);
  nn::Net normalized("conv 2 3; batchnorm; flatten; linear 2", {1, 4, 4});
  EXPECT_EQ(test::message_of([&] {
    DataParallel(normalized, &ranks);
  }).find("data parallel: batch normalization is not supported: found BatchNorm2d(2"),
      0);
  nn::Net net("flatten; linear 2", {1, 1, 3});
  DataParallel parallel(net, &ranks);
  parallel.begin_batch(3);
  test::expect_facts(test::message_of([&] { parallel.backward(Tensor::ones({3})); }),
      {"losses is f32[3] cpu; this rank has the 2 rows from 0 on"});
  const Tensor partly = nn::Net("flatten; linear 2", {1, 1, 3})(Tensor::ones({2, 3}));
  test::expect_facts(
      test::message_of([&] { parallel.backward(sum(partly, 1)); }), {"1.bias got no gradient"});
  const CommunicatorScope none(nullptr);
  test::expect_facts(test::message_of([&] { parallel.begin_batch(3); }), {"CommunicatorScope"});
}

TEST(DataParallel, WeightsThatDifferStopTheRunByName) {
  const std::string message = test::message_of([] {
    ThreadGroup(3).run([](Communicator& ranks) {
      nn::Net net("flatten; linear 2; relu; linear 2", {1, 1, 3});
      net.init_parameters(1);
      DataParallel parallel(net, &ranks);
      if (ranks.rank() == 2) net.parameters()[2].data<float>()[3] += 1e-6f;
      parallel.check_equal();
    });
  });
  test::expect_facts(message, {"3.weight of rank 2 is not that of rank 0"});
}

// While the sums of the last layers are under way, and of the first not.
TEST(DataParallel, ARankThatThrowsInBackwardEndsAllAndTheGroupTrainsAgain) {
  ThreadGroup group(3, {.timeout = 30});
  std::atomic<int> told{0};
  const auto train = [&](bool throws) {
    return test::message_of([&] {
      group.run([&](Communicator& ranks) {
        try {
          nn::Net net("flatten; linear 8; relu; linear 6; relu; linear 5", {1, 1, 12});
          net.init_parameters(5);
          DataParallel parallel(net, &ranks, {.bucket_bytes = 64});
          if (throws && ranks.rank() == 1)
            register_hook(net.parameters()[0],
                [](const Tensor&) -> Tensor { throw Error(Error::Kind::data, "bad row"); });
          const int64_t rows = parallel.begin_batch(9).size();
          parallel.backward(
              cross_entropy(net(Tensor::ones({rows, 12})), sample_labels(rows, 5, 1)));
          parallel.check_equal();
        } catch (const Error& error) {  // a slow rank hears of it before its backward
          told += std::string(error.what()).ends_with("rank 1 of 3 failed: bad row");
          throw;
        }
      });
    });
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(train(true), "bad row");
    EXPECT_EQ(train(false), "");
  }
  EXPECT_EQ(told, 2 * 5);
}

}  // namespace
}  // namespace sinter::distributed
