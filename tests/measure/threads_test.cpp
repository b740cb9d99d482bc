// The choice of threads, by a clock of its own: which is fastest, and that it is chosen once.
#include "measure/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/parallel.h"
#include "measure/timer.h"
#include "tests/profiler/fake_clock.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

// Steps that take what us(threads, number of the step) says, by the clock of all timers.
struct FakeSteps {
  profiler::FakeClock& clock;
  std::function<double(int threads, int step)> us = {};
  int steps = 0, made = 0;

  std::function<void()> step() {
    return [this] { clock.advance(int64_t(1e3 * us(num_threads(), steps++))); };
  }
  Tried choose(const std::string& work) {
    return choose_threads(work, [this] {
      ++made;
      return step();
    });
  }
};

class ThreadChoice : public testing::Test {
 protected:
  ThreadChoice() { clock_of_timers = &clock_; }
  ~ThreadChoice() override {
    clock_of_timers = nullptr;
    set_num_threads(before_);
  }
  profiler::FakeClock clock_;
  const int before_ = num_threads(), cores_ = available_cores();
  const test::TempDir folder_;
  const test::ScopedEnv cache_{"XDG_CACHE_HOME", folder_.path().c_str()};
};

TEST_F(ThreadChoice, AreThoseWithWhichTheStepIsFastest) {
  for (int best = 1; best <= std::min(cores_, 4); best *= 2) {
    FakeSteps steps{clock_, [best](int n, int) { return n == best ? 100.0 : 150.0 + n; }};
    const Tried tried = try_threads(steps.step());
    EXPECT_EQ(num_threads(), best);
    if (cores_ == 1) continue;
    EXPECT_EQ(tried.front().first, 1);
    EXPECT_EQ(tried.back().first, cores_);
    for (const auto& [n, us] : tried) EXPECT_NEAR(us, n == best ? 100 : 150 + n, 1e-6);
  }
}

// Two windows of five are long with more than one thread, as beside a program that comes and goes.
TEST_F(ThreadChoice, AMomentOfLoadDoesNotDecide) {
  if (cores_ == 1) GTEST_SKIP() << "one core";
  int64_t busy_until = 0;
  int bursts = 0, last = 0;
  FakeSteps steps{clock_};
  steps.us = [&](int n, int) {
    if (n == cores_ && last != cores_ && ++bursts > 2 && bursts < 5)
      busy_until = clock_.now() + 6'000'000;
    last = n;
    return n == 1 ? 600.0 : n < cores_ ? 400.0 : clock_.now() < busy_until ? 1000.0 : 340.0;
  };
  try_threads(steps.step());
  EXPECT_EQ(num_threads(), cores_);
}

TEST_F(ThreadChoice, AreChosenOnceForAWorkWhateverTheMomentSays) {
  if (cores_ == 1) GTEST_SKIP() << "one core";
  FakeSteps first{clock_, [&](int n, int) { return n == cores_ ? 100.0 : 200.0; }},
      other{clock_, [](int n, int) { return n == 1 ? 100.0 : 200.0; }};
  EXPECT_FALSE(first.choose("mlp, batch 128").empty());
  EXPECT_EQ(num_threads(), cores_);

  set_num_threads(1);
  EXPECT_TRUE(other.choose("mlp, batch 128").empty()) << "it was kept";
  EXPECT_EQ(num_threads(), cores_);
  EXPECT_EQ(other.made + other.steps, 0) << "nothing is made or run";

  EXPECT_FALSE(other.choose("mlp, batch 1").empty()) << "another work";
  EXPECT_EQ(num_threads(), 1);
  EXPECT_TRUE(first.choose("mlp, batch 1").empty());
  EXPECT_EQ(num_threads(), 1);

  EXPECT_EQ(forget_threads(), 2);
  EXPECT_EQ(forget_threads(), 0);
  EXPECT_FALSE(other.choose("mlp, batch 128").empty());
  EXPECT_EQ(num_threads(), 1);
}

TEST_F(ThreadChoice, AFileThatSaysNothingIsPassedOver) {
  if (cores_ == 1) GTEST_SKIP() << "one core";
  FakeSteps steps{clock_, [&](int n, int) { return n == cores_ ? 100.0 : 200.0; }};
  const std::string good = folder_.path() + "/sinter";
  steps.choose("work");
  const std::filesystem::path file = std::filesystem::directory_iterator(good)->path();
  const std::string text = test::text_of(file);
  test::expect_facts(text, {"\"threads\": ", "work"});
  for (const std::string& damaged : {std::string(), std::string("{"), text.substr(0, 20),
           std::string("{\"key\": \"another machine\", \"threads\": 1}"),
           std::string(text).replace(text.find("\"threads\""), 11, "\"threads\":9999")}) {
    std::ofstream(file) << damaged;
    EXPECT_FALSE(steps.choose("work").empty()) << damaged;
    EXPECT_EQ(num_threads(), cores_);
    EXPECT_TRUE(steps.choose("work").empty()) << "it was written anew";
  }
}

// Nowhere to keep it: each trial stands for itself.
TEST_F(ThreadChoice, WithoutAHomeNothingIsKept) {
  if (cores_ == 1) GTEST_SKIP() << "one core";
  const test::ScopedEnv cache("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
  FakeSteps steps{clock_, [&](int n, int) { return n == cores_ ? 100.0 : 200.0; }};
  EXPECT_FALSE(steps.choose("work").empty());
  EXPECT_FALSE(steps.choose("work").empty());
  EXPECT_EQ(forget_threads(), 0);
}

}  // namespace
}  // namespace sinter::measure
