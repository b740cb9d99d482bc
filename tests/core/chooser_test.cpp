// The one stopwatch and what it decides: on the CPU, where no file of choices is, and on the
// recorder, which stands for a process with its card.
#include "core/device/chooser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/cuda_recorder.h"
#include "tests/test_util.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/kept_choices.h"
#endif

namespace sinter {
namespace {

constexpr Device::Type kHost = Device::Type::cpu;

[[noreturn]] void fail(const char* message) { throw Error(Error::Kind::state, message); }

Choice two() { return {.candidates = {{"fused"}, {"parts"}}}; }
// Asks on the host; `run(i)` is told who runs.
Choice ask(const RunCandidate& run, const PickWinner& pick = {}) {
  Choice choice = two();
  choose_fastest(
      choice, "", kHost, [&] { return run; }, pick);
  return choice;
}

TEST(Chooser, TheFastestWinsAndSaysItsTimes) {
  for (const size_t slow : {0, 1}) {
    const Choice choice = ask([&](size_t i) {
      if (i == slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_EQ(choice.chosen, slow == 0 ? 1 : 0);
    EXPECT_LT(choice.winner().us, choice.candidates[slow].us);
    test::expect_facts(choice.said(),
        {choice.winner().name, ", measured ", " us, ", choice.candidates[slow].name});
    EXPECT_EQ(choice.note, "");
  }
}

TEST(Chooser, RoundsGoToAndFro) {
  std::string order;
  size_t rounds = 0;
  ask([&](size_t i) { order += i ? 'B' : 'A'; },
      [&](const auto& us) {
        rounds = us[0].size();
        EXPECT_EQ(us[1].size(), rounds);
        return 0;
      });
  EXPECT_GE(rounds, 6u);
  // Once each to see that they run, once to warm up, then the rounds.
  EXPECT_TRUE(order.starts_with("ABABABBAABBA")) << order;
  EXPECT_EQ(order.size(), 4 + 2 * rounds);
}

TEST(Chooser, WhoDoesNotRunIsLeftOut) {
  for (const size_t broken : {0, 1}) {
    const Choice choice = ask([&](size_t i) {
      if (i == broken) fail("no such kernel");
    });
    EXPECT_EQ(choice.chosen, broken == 0 ? 1 : 0);
    EXPECT_FALSE(choice.timed());
    EXPECT_EQ(choice.note, str(broken ? "parts" : "fused", " does not run: no such kernel"));
  }
  const Choice none = ask([](size_t) { fail("no such kernel"); });
  EXPECT_EQ(none.chosen, 0);
  // Beside times, who has none is told: once.
  Choice more{.candidates = {{"fused"}, {"library", "1"}, {"library", "2"}, {"parts"}}};
  choose_fastest(more, "", kHost, []() -> RunCandidate {
    return [](size_t i) {
      if (i == 1 || i == 2) fail("no such kernel");
    };
  });
  const std::string text = more.text(), why = "; library does not run: no such kernel";
  EXPECT_TRUE(more.timed() && text.ends_with(why)) << text;
  EXPECT_EQ(text.find("library"), text.size() - why.size() + 2) << text;
}

TEST(Chooser, WhereMeasuringFailsTheChoiceStaysAsItWas) {
  Choice choice = two();
  choose_fastest(choice, "", kHost, []() -> RunCandidate { fail("out of memory"); });
  EXPECT_EQ(choice.chosen, 0);
  EXPECT_EQ(choice.said(), "fused, not measured: out of memory");
  int runs = 0;
  choice = ask([&](size_t) {
    if (++runs == 9) fail("gone in the third round");
  });
  EXPECT_EQ(choice.said(), "fused, not measured: gone in the third round");
  EXPECT_EQ(choice.candidates[1].us, 0) << "half of the rounds are no time";
}

TEST(Chooser, WhatNobodyCanTellStaysAsItWas) {
  const Choice choice = ask([](size_t) {}, [](const auto&) { return -1; });
  EXPECT_EQ(choice.chosen, 0);
  test::expect_facts(choice.text(), {"measured ", "; the machine is too busy to decide"});
}

TEST(Chooser, OtherExceptionsAreNotItsBusiness) {
  EXPECT_THROW(ask([](size_t) { throw std::logic_error("a bug"); }), std::logic_error);
}

#if SINTER_HAS_CUDA

constexpr Device::Type kCard = Device::Type::cuda;

// So many kernels, of 2 us each.
void launch_kernels(int count) {
  static const char kernel = 0;  // its address stands for a kernel
  void* none[] = {nullptr};
  for (int i = 0; i < count; ++i)
    cuda::launch(&kernel, {.kernel = "k", .grid = {}, .block = 32, .shared_bytes = 0}, none);
}
// The own kernel takes 4 us; the library has algorithms of 6 and of 2 us.
struct Library {
  Choice choice{
      .candidates = {{"own kernel"}, {.name = "library", .version = "1", .most_launches = 9},
          {.name = "library", .version = "2", .most_launches = 9}}};
  bool run() {
    return run_chosen(
        choice, "library", [] { return "q"; },
        [](size_t i) {
          constexpr int kKernels[] = {2, 3, 1};
          launch_kernels(kKernels[i]);
        });
  }
};

TEST(Chooser, ByOrderOrByTime) {
  const cuda::FakeToolkit card;
  Library library;
  EXPECT_TRUE(library.run());
  EXPECT_EQ(library.choice.chosen, 1);
  EXPECT_EQ(library.choice.winner().launches, 3);
  EXPECT_EQ(library.choice.candidates[2].launches, -1) << "nobody asked";
  const ScopedChoiceRule rule(ChoiceRule::measured);
  EXPECT_TRUE(library.run());
  EXPECT_EQ(library.choice.winner().launches, 1);
  EXPECT_NEAR(library.choice.candidates[1].us, 6, 1e-3);
  EXPECT_EQ(library.choice.said(), "library, measured 2 us, own kernel 4");
}

TEST(Chooser, AnEarlierProcessIsBelievedIfItsWinnerIsThere) {
  const test::TempDir folder;
  const test::ScopedEnv cache("XDG_CACHE_HOME", folder.path().c_str());
  const ScopedChoiceRule rule(ChoiceRule::measured);
  const auto process = [](Library library) {
    const cuda::FakeToolkit card;
    set_keep_choices(true);
    library.run();
    EXPECT_EQ(card.count("cudaEventElapsedTime") == 0, library.choice.before);
    return library.choice.said();
  };
  const std::string first = process({});
  EXPECT_EQ(process({}), first + "; measured before on this card");
  Library other;
  other.choice.candidates[2].version = "3";
  EXPECT_EQ(process(other), first) << "another algorithm is another candidate";
  other.choice.candidates.pop_back();
  EXPECT_EQ(process(other), "own kernel, measured 4 us, library 6");
}

// What another program leaves of the card's memory is no reason for good.
TEST(Chooser, WhoHadNoMemoryIsTriedByTheNextProcess) {
  const test::TempDir folder;
  const test::ScopedEnv cache("XDG_CACHE_HOME", folder.path().c_str());
  for (const bool full : {true, false}) {
    const cuda::FakeToolkit card;
    set_keep_choices(true);
    Choice choice{.candidates = {{"own kernel"}, {"library", "1"}, {"library", "2"}}};
    choose_fastest(choice, "q", kCard, [&]() -> RunCandidate {
      return [&](size_t i) {
        SINTER_CHECK(!full || i < 2, memory, "none is left");
        launch_kernels(3 - int(i));
      };
    });
    EXPECT_EQ(choice.said(),
        full ? "library, measured 4 us, own kernel 6" : "library, measured 2 us, own kernel 6");
  }
}

// What no later call would survive is not taken for the weakness of one candidate.
TEST(Chooser, ABrokenCardIsNoReasonForTheOwnKernel) {
  for (const auto choice : {ChoiceRule::model, ChoiceRule::measured}) {
    const ScopedChoiceRule rule(choice);
    cuda::FakeToolkit card;
    launch_kernels(1);
    card.fail_for_good("cudaLaunchKernelExC", cudaErrorIllegalAddress);
    test::expect_facts(
        test::message_of([] { Library().run(); }), {"cudaStreamSynchronize says 700"});
  }
  cuda::FakeToolkit card;
  launch_kernels(1);
  card.fail("cudaLaunchKernelExC", 1, cudaErrorInvalidValue);
  Library library;
  EXPECT_TRUE(library.run()) << "the second algorithm runs";
  EXPECT_EQ(library.choice.chosen, 2);
  EXPECT_NE(library.choice.candidates[1].fails, "");
}

#endif

}  // namespace
}  // namespace sinter
