// Ranks as threads: sums in one order, texts, and what happens to those who wait in vain.
#include "distributed/thread_group.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "core/error.h"
#include "distributed/mpi.h"
#include "ops/ops.h"
#include "tests/test_util.h"

namespace sinter::distributed {
namespace {

// 1e16 + 1 - 1e16 depends on the order.
TEST(ThreadGroup, SumsInTheOrderOfTheRanks) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    ThreadGroup(3).run([](Communicator& ranks) {
      const double own[] = {1e16, 1, -1e16};
      const Tensor a = Tensor::full({5}, own[ranks.rank()], DType::f64),
                   b = Tensor::full({2, 2}, ranks.rank(), DType::f64);
      all_reduce({a, b}, 3);
      all_reduce_wait({a, b}, 3);
      EXPECT_EQ(a.to_vector<double>(), std::vector<double>(5, (1e16 + 1) - 1e16));
      EXPECT_EQ(b.to_vector<double>(), std::vector<double>(4, 3));
    });
  }
}

TEST(ThreadGroup, SumsOfSeveralBucketsAreUnderWayAtOnce) {
  ThreadGroup(2).run([](Communicator& ranks) {
    const Tensor first = Tensor::ones({3}), second = Tensor::full({4}, 2);
    all_reduce({first}, 0);
    all_reduce({second}, 1);
    all_reduce_wait({second}, 1);
    all_reduce_wait({first}, 0);
    EXPECT_EQ(first.to_vector<float>(), std::vector<float>(3, 2));
    EXPECT_EQ(second.to_vector<float>(), std::vector<float>(4, 4));
    EXPECT_EQ(ranks.stats().sums, 2);
    EXPECT_EQ(ranks.stats().bytes, 28);
    EXPECT_THROW(all_reduce_wait({first}, 0), Error);
  });
}

// Where a rank's tensors lie is its own affair: all ranks must give the same pieces, or NCCL hangs.
TEST(ThreadGroup, PiecesAreTheSameWhereverTheTensorsLie) {
  struct Counting : Communicator {
    Counting() : Communicator(0, 1) {}
    std::string describe() const override { return "counting"; }
    std::vector<std::string> gather(const std::string& own) override { return {own}; }
    [[noreturn]] void abort(int exit_status) override { std::exit(exit_status); }
    void start(int64_t, std::span<const SumPiece> parts, DType, Device) override {
      for (const SumPiece& piece : parts) counts.push_back(piece.count);
    }
    Time finish(int64_t) override { return {}; }
    std::vector<int64_t> counts;
  } ranks;
  const CommunicatorScope scope(&ranks);
  const Tensor whole = Tensor::zeros({64}), other = Tensor::zeros({3}), empty = Tensor::zeros({0});
  const auto part = [&](int64_t begin, int64_t end) { return slice(whole, 0, begin, end); };
  const std::vector<int64_t> wanted{10, 4, 4, 3, 24};
  all_reduce({part(0, 10), empty, part(16, 20), part(20, 24), other, part(40, 64)}, 0);
  EXPECT_EQ(std::exchange(ranks.counts, {}), wanted) << "side by side";
  all_reduce({part(0, 10), empty, part(60, 64), part(30, 34), other, part(34, 58)}, 1);
  EXPECT_EQ(ranks.counts, wanted) << "apart";
}

TEST(ThreadGroup, RanksOfOtherLayoutsSumTheSameTensors) {
  ThreadGroup(2).run([](Communicator& ranks) {
    const Tensor whole = Tensor::ones({32});
    const int64_t gap = 16 * ranks.rank();
    const Tensor a = slice(whole, 0, 0, 8), b = slice(whole, 0, 8 + gap, 16 + gap);
    all_reduce({a, b});
    all_reduce_wait({a, b});
    EXPECT_EQ(a.to_vector<float>(), std::vector<float>(8, 2));
    EXPECT_EQ(b.to_vector<float>(), std::vector<float>(8, 2));
  });
}

TEST(ThreadGroup, TextsReachAllRanks) {
  ThreadGroup(3).run([](Communicator& ranks) {
    EXPECT_EQ(ranks.gather(std::string(size_t(ranks.rank()), 'x')),
        std::vector<std::string>({"", "x", "xx"}));
    EXPECT_EQ(ranks.sum(0.5), 1.5);
  });
}

TEST(ThreadGroup, ARankThatNeverArrivesEndsAllByTheTimeout) {
  std::atomic<int> threw{0};
  const std::string message = test::message_of([&] {
    ThreadGroup(3, {.timeout = 0.1}).run([&](Communicator& ranks) {
      if (ranks.rank() == 1) return;
      try {
        ranks.sum(1);
      } catch (const Error&) {
        ++threw;
        throw;
      }
    });
  });
  test::expect_facts(message, {"rank 1 of 3 did not arrive"});
  EXPECT_EQ(threw, 2);
}

TEST(ThreadGroup, ARankThatFailsEndsAllWithItsError) {
  const std::string message = test::message_of([&] {
    ThreadGroup(3).run([](Communicator& ranks) {
      SINTER_CHECK(ranks.rank() != 2, data, "a file is missing");
      ranks.gather("here");
    });
  });
  EXPECT_EQ(message, "a file is missing");
}

// Rank 0 throws while its sum is under way. Rank 1 completes the count once rank 0's tensor is
// gone, and another tensor of rank 0 is in its place.
TEST(ThreadGroup, ARankThatThrowsKeepsItsMemoryOutOfReach) {
  struct OnExit {
    std::function<void()> f;
    ~OnExit() { f(); }
  };
  std::promise<void> gone, summed;
  std::vector<float> left;
  const std::string message = test::message_of([&] {
    ThreadGroup(2, {.timeout = 10}).run([&](Communicator& ranks) {
      if (ranks.rank() == 0) {
        const OnExit later{[&] {
          const Tensor other = Tensor::full({1000}, 5);
          gone.set_value();
          summed.get_future().wait();
          left = other.to_vector<float>();
        }};
        const Tensor x = Tensor::ones({1000});
        all_reduce({x});
        SINTER_CHECK(false, data, "a file is missing");
      }
      const Tensor x = Tensor::ones({1000});
      gone.get_future().wait();
      all_reduce({x});
      summed.set_value();
      all_reduce_wait({x});
      ranks.sum(1);
    });
  });
  EXPECT_EQ(message, "a file is missing");
  EXPECT_EQ(left, std::vector<float>(1000, 5));
}

// Rank 1 times out, and rank 0 comes later: nobody may write where rank 1 waited.
TEST(ThreadGroup, ARankThatTimesOutIsNotWrittenToByALateOne) {
  std::promise<void> timed_out, came;
  double number = 0;
  const std::string message = test::message_of([&] {
    ThreadGroup(2, {.timeout = 0.05}).run([&](Communicator& ranks) {
      const Tensor own = Tensor::full({1}, 40 + ranks.rank());
      if (ranks.rank() == 0) timed_out.get_future().wait();
      EXPECT_THROW(
          {
            all_reduce({own});
            all_reduce_wait({own});
          },
          Error);
      if (ranks.rank() == 0) came.set_value();
      if (ranks.rank() == 1) {
        timed_out.set_value();
        came.get_future().wait();
        number = own.item();
      }
      throw Error(Error::Kind::state, "both are told");
    });
  });
  EXPECT_EQ(message, "both are told");
  EXPECT_EQ(number, 41);
}

TEST(ThreadGroup, RanksThatSumOtherTensorsAreRefused) {
  const std::string message = test::message_of([&] {
    ThreadGroup(2).run([](Communicator& ranks) {
      const Tensor x = Tensor::ones({3 + ranks.rank()});
      all_reduce({x});
      all_reduce_wait({x});
    });
  });
  test::expect_facts(message, {"rank 1 sums other tensors than rank 0"});
}

// None of them takes what is not summed for the sum.
TEST(ThreadGroup, AFailedMeetingFailsForAllRanks) {
  std::atomic<int> threw{0};
  ThreadGroup group(3);
  EXPECT_THROW(group.run([&](Communicator& ranks) {
    const Tensor x = Tensor::ones({3 + ranks.rank() / 2});
    try {
      all_reduce({x});
      all_reduce_wait({x});
    } catch (const Error& error) {
      ++threw;
      test::expect_facts(error.what(), {"rank 2 sums other tensors than rank 0"});
      throw;
    }
  }),
      Error);
  EXPECT_EQ(threw, 3);
}

TEST(ThreadGroup, ARankThatThrowsAmidSumsEndsAllAndTheGroupRunsAgain) {
  ThreadGroup group(4, {.timeout = 30});
  const auto sums = [&](int bad_at) {
    std::atomic<int> told{0};
    const std::string message = test::message_of([&] {
      group.run([&](Communicator& ranks) {
        const Tensor a = Tensor::ones({100}), b = Tensor::ones({7}, DType::f64);
        try {
          for (int i = 0; i < 8; ++i) {
            all_reduce({a}, 0);
            if (i == bad_at && ranks.rank() == 2) throw Error(Error::Kind::data, "disk full");
            all_reduce({b}, 1);
            all_reduce_wait({b}, 1);
            all_reduce_wait({a}, 0);
          }
        } catch (const Error& error) {
          if (std::string(error.what()).ends_with("rank 2 of 4 failed: disk full")) ++told;
          throw;
        }
        EXPECT_EQ(a.to_vector<float>()[99], 65536);
        all_reduce({b}, 1);  // nobody asks for this one
      });
    });
    EXPECT_EQ(told, bad_at < 8 ? 3 : 0);
    return message;
  };
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sums(i), "disk full");
    EXPECT_EQ(sums(8), "") << "after " << i;
  }
}

TEST(ThreadGroup, WhatIsNoExceptionOfTheStandardLibraryReachesTheCallerToo) {
  ThreadGroup group(2);
  const auto run = [&] {
    group.run([](Communicator& ranks) {
      if (ranks.rank() == 1) throw 7;
      ranks.gather("here");
    });
  };
  EXPECT_THROW(run(), int);
}

// A sum that could not be started was not.
TEST(Communicator, ABucketIsFreeAfterAFailedStart) {
  struct Refusing : Communicator {
    Refusing() : Communicator(0, 1) {}
    std::string describe() const override { return "refusing"; }
    std::vector<std::string> gather(const std::string& own) override { return {own}; }
    [[noreturn]] void abort(int exit_status) override { std::exit(exit_status); }
    void start(int64_t, std::span<const SumPiece>, DType, Device) override {
      SINTER_CHECK(!std::exchange(refuses, false), state, "not now");
    }
    Time finish(int64_t) override { return {}; }
    bool refuses = true;
  } ranks;
  double value = 1;
  const SumPiece piece{&value, 1};
  const auto start = [&] { ranks.start_sum(4, {&piece, 1}, DType::f64, kCpu); };
  EXPECT_EQ(test::message_of(start), "not now");
  EXPECT_EQ(ranks.stats().sums, 0);
  EXPECT_EQ(test::message_of(start), "");
  test::expect_facts(test::message_of(start), {"bucket 4 was started twice"});
  ranks.finish_sum(4);
  EXPECT_EQ(ranks.stats().bytes, 8);
}

// srun by PMIx names the rank alone; the variable of Slurm is there in a plain shell of its, too.
TEST(Mpi, RanksOfSlurmAreCounted) {
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_EQ(launched_ranks(), 1);
  setenv("PMIX_RANK", "2", 1);
  EXPECT_EQ(launched_ranks(), 4);
  unsetenv("PMIX_RANK");
  unsetenv("SLURM_STEP_NUM_TASKS");
}

TEST(Mpi, IsThereOrSaysHowToGetIt) {
  if (!mpi_version().empty()) GTEST_SKIP() << "this build has " << mpi_version();
  test::expect_facts(test::message_of([] { make_mpi_communicator(); }), {"libopenmpi-dev"});
}

}  // namespace
}  // namespace sinter::distributed
