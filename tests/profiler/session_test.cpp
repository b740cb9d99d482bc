#include "profiler/session.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "tests/profiler/scopes.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

// The steps that a schedule samples out of the first n, written down turn by turn.
std::vector<int64_t> active_steps(const Schedule& s, int64_t n) {
  std::vector<int64_t> out;
  int64_t step = 0;
  for (int turn = 0; (s.repeat == 0 || turn < s.repeat) && step < n; ++turn) {
    step += s.wait + s.warmup;
    for (int i = 0; i < s.active; ++i, ++step) {
      if (step < n) out.push_back(step);
    }
  }
  return out;
}

TEST(Session, EverySchedule) {
  for (int code = 0; code < 256; ++code) {
    const Schedule s{.wait = code & 3,
        .warmup = code >> 2 & 3,
        .active = code >> 4 & 3,
        .repeat = code >> 6 & 3};
    SCOPED_TRACE(testing::Message() << s.wait << s.warmup << s.active << s.repeat);
    FakeClock clock;
    const Options options{.schedule = s, .clock = &clock, .records_per_thread = 64};
    if (s.active == 0) {
      test::expect_error(Error::Kind::usage, {}, [&] { Session session(options); });
      continue;
    }
    for (int n : {0, 1, 2, 4, 7, 19}) {
      const std::vector<int64_t> expected = active_steps(s, n);
      Session session(options);
      for (int step = 0; step < n; ++step) {
        fake_op(clock, "op", 1, 2 * step);
        clock.advance(1);
        session.step();
      }
      if (expected.empty()) {
        test::expect_error(Error::Kind::state, {}, [&] { session.finish(); });
        continue;
      }
      const Report report = session.finish();
      ASSERT_EQ(report.steps.size(), expected.size());
      const Rows rows = report.rows();
      ASSERT_EQ(rows.rows.size(), 1u);
      EXPECT_EQ(rows.rows[0].calls, int64_t(expected.size()));
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(report.steps[i].number, expected[i]);
        EXPECT_EQ(report.steps[i].round, expected[i] / (s.wait + s.warmup + s.active));
        EXPECT_EQ(report.steps[i].ns(), 2 + 2 * expected[i]);
        EXPECT_EQ(rows.rows[0].samples[i], 1 + 2 * expected[i]);
      }
      EXPECT_TRUE(report.incomplete.empty());
    }
  }
}

// Odd steps do not count: as many others are recorded in their place, none beside another.
TEST(Session, AStepThatDoesNotCountIsLeftOut) {
  for (const int first : {0, 2}) {
    FakeClock clock;
    const Options options{
        .schedule = {.wait = first, .warmup = 0, .active = 3, .repeat = 2}, .clock = &clock};
    Session session(options);
    int step = 0;
    for (; !session.done(); ++step) {
      fake_op(clock, "op", 1, step % 2 == 1 ? 1000 : 10);
      session.step(step % 2 == 0);
    }
    EXPECT_EQ(session.left_out(), 5);
    const Report report = session.finish();
    ASSERT_EQ(report.steps.size(), 6U);
    for (const StepSample& sample : report.steps) {
      EXPECT_EQ(sample.number % 2, 0);
      EXPECT_EQ(sample.ns(), 11);
    }
    EXPECT_EQ(report.steps[2].round, 0);
    EXPECT_EQ(report.steps[3].round, 1);
    EXPECT_EQ(report.rows().rows[0].calls, 6);
    EXPECT_TRUE(report.incomplete.empty());
  }
}

TEST(Session, NoStepNamesNeededAndSeen) {
  Session session({.schedule = {.wait = 1, .warmup = 3, .active = 20}});
  session.step();
  test::expect_error(Error::Kind::state,
      {"profiler: no step was recorded: wait 1, warmup 3, active 20 needs 5 steps for a first "
       "sample and 24 for all; step() was called 1 times"},
      [&] { session.finish(); });
  Session next({.schedule = {}});  // the failed one is over
}

TEST(Session, BadScheduleIsAnError) {
  test::expect_error(Error::Kind::usage, {"wait -1, warmup 3, active 20, repeat 1"},
      [] { Session session({.schedule = {.wait = -1}}); });
}

TEST(Session, SecondOneIsAnErrorUntilTheFirstIsOver) {
  FakeClock clock;
  {
    Session first({.schedule = {.wait = 0, .warmup = 0, .active = 1}, .clock = &clock});
    test::expect_error(Error::Kind::state, {}, [] { Session second({}); });
    fake_op(clock, "op", 1, 1);
    first.step();
    EXPECT_EQ(first.finish().steps.size(), 1u);  // the refused one left it alone
    EXPECT_NE(test::message_of([&] { first.finish(); }), "");
    EXPECT_NE(test::message_of([&] { first.step(); }), "");
  }
  Session second({});
}

// Whatever goes wrong in its construction: the next one begins.
TEST(Session, OneThatCannotBeginIsOver) {
  const auto expect_next = [] {
    Session next({.schedule = {.wait = 0, .warmup = 0, .active = 1}});
    next.step();
    EXPECT_EQ(next.finish().steps.size(), 1u);
  };
  for (const Device device : {Device{Device::Type::cuda, 99}, Device{Device::Type::cuda, 0}}) {
    const std::string refusal = test::message_of([&] { Session session({.device = device}); });
    EXPECT_TRUE(device.index == 0 || !refusal.empty());
    expect_next();
  }
  const size_t too_many = std::numeric_limits<size_t>::max() / 2;
  EXPECT_ANY_THROW(Session session({.schedule = {}, .records_per_thread = too_many}));
  expect_next();
}

TEST(Session, EarlyExitAndException) {
  FakeClock clock;
  Session session({.schedule = {.wait = 0, .warmup = 1, .active = 20}, .clock = &clock});
  try {
    for (int step = 0;; ++step) {
      Scope scope("train_step");
      fake_op(clock, "op", 1, 1);
      if (step == 5) throw std::runtime_error("out of data");
      clock.advance(1);
      session.step();
    }
  } catch (const std::runtime_error&) {}
  EXPECT_FALSE(session.done());
  const Report report = session.finish();
  EXPECT_EQ(report.steps.size(), 4u);
  EXPECT_EQ(find_row(report.rows(), "op")->calls, 4);
  EXPECT_TRUE(report.incomplete.empty());
  EXPECT_EQ(report.table().find("INCOMPLETE"), std::string::npos);
  test::expect_facts(report.table(), {"step#1..4 (4 of 20 active, 1 warmup)"});
}

TEST(Session, ScopeAcrossStepLeavesTheStatistics) {
  FakeClock clock;
  Session session({.schedule = {.wait = 0, .warmup = 0, .active = 2}, .clock = &clock});
  {
    Scope epoch("epoch");
    for (int step = 0; step < 2; ++step) {
      fake_op(clock, "op", 1, 1);
      clock.advance(10);
      session.step();
    }
    clock.advance(1);
  }
  const Report report = session.finish();
  EXPECT_EQ(report.rows().rows.size(), 1u);
  EXPECT_EQ(find_row(report.rows(), "op")->calls, 2);
  EXPECT_EQ(report.launches_per_step(), 1.0);
  EXPECT_TRUE(report.incomplete.empty());
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_EQ(report.notes[0], "open across step(), so left out: epoch, 1 times");
}

TEST(Session, OpenScopeAtTheEndIsNamed) {
  FakeClock clock;
  Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}, .clock = &clock});
  Scope open("never_closed\n");
  fake_op(clock, "op", 1, 1);
  session.step();
  const Report report = session.finish();
  ASSERT_EQ(report.incomplete.size(), 1u);
  EXPECT_EQ(report.incomplete[0],
      "a scope was still open at the end: never_closed\\x0a, begun in step 0");

  // Until it closes, this thread cannot record for another session, which says so.
  Session next({.schedule = {.wait = 0, .warmup = 0, .active = 1}, .clock = &clock});
  fake_op(clock, "op", 1, 1);
  next.step();
  const Report second = next.finish();
  ASSERT_EQ(second.incomplete.size(), 1u);
  test::expect_facts(second.incomplete[0], {"records dropped"});
}

TEST(Session, StepsBelongToOneThread) {
  FakeClock clock;
  Session session({.schedule = {.wait = 0, .warmup = 0, .active = 2}, .clock = &clock});
  session.step();
  std::thread([&] { EXPECT_NE(test::message_of([&] { session.step(); }), ""); }).join();
}

TEST(Session, LongRunsNeedABufferForOneTurnOnly) {
  FakeClock clock;
  Session session({.schedule = {.wait = 0, .warmup = 1, .active = 2, .repeat = 0},
      .clock = &clock,
      .records_per_thread = 8});
  for (int step = 0; step < 300; ++step) {
    for (int i = 0; i < 3; ++i) fake_op(clock, "op", 1, 1);
    session.step();
  }
  EXPECT_FALSE(session.done());
  const Report report = session.finish();
  EXPECT_TRUE(report.incomplete.empty());
  EXPECT_EQ(report.steps.size(), 200u);
  EXPECT_EQ(find_row(report.rows(), "op")->calls, 600);
}

// A clock that falls back once.
class BrokenClock final : public Clock {
 public:
  int64_t now() noexcept override { return calls_++ == 3 ? 50 : 100 + calls_; }

 private:
  int64_t calls_ = 0;
};

TEST(Session, TimesThatDoNotAddUpAreIncomplete) {
  BrokenClock clock;
  Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}, .clock = &clock});
  {
    Scope outer("outer");
    Scope inner("inner");
  }
  session.step();
  const Report report = session.finish();
  ASSERT_EQ(report.incomplete.size(), 1u);
  test::expect_facts(report.incomplete[0], {"times do not add up"});
}

TEST(Session, APauseBelongsToNoStep) {
  FakeClock clock;
  Session session({.schedule = {.wait = 1, .warmup = 1, .active = 3}, .clock = &clock});
  for (int step = 0; !session.done(); ++step) {
    fake_op(clock, "op", 10, 90);
    session.step();
    const Pause evaluation(&session);
    fake_op(clock, "evaluate", 1, 100'000);
    if (step == 3) Pause(nullptr);
  }
  { const Pause after_the_last(&session); }
  const Report report = session.finish();
  ASSERT_EQ(report.steps.size(), 3u);
  for (const StepSample& step : report.steps) {
    EXPECT_EQ(step.ns(), 100);
    EXPECT_EQ(step.launches, 1);
  }
  EXPECT_FALSE(find_row(report.rows(), "evaluate"));
  EXPECT_LT(report.steps[0].window, report.steps[1].window) << "a pause lies between";
  EXPECT_TRUE(report.incomplete.empty());
}

}  // namespace
}  // namespace sinter::profiler
