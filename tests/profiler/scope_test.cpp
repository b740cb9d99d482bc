#include "profiler/scope.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "core/error.h"
#include "ops/op.h"
#include "tests/counting_new.h"
#include "tests/profiler/scopes.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

constexpr StaticName kNames[] = {"alpha", "beta", "gamma", "delta"};
constexpr Schedule kOneStep{.wait = 0, .warmup = 0, .active = 1};

struct OpDef {
  StaticName name;
  int arity = 1;
};
constexpr OpDef kRelu{.name = "relu"};

TEST(StaticName, ComparesTextAndInternsOnce) {
  EXPECT_EQ(kRelu.name.view(), "relu");
  const std::string text = "relu";
  EXPECT_EQ(intern(text), kRelu.name);
  EXPECT_EQ(intern(text).c_str(), intern("relu").c_str());
  EXPECT_FALSE(intern("relu6") == kRelu.name);
  EXPECT_EQ(StaticName().view(), "");
}

TEST(ShapeText, BuildsAndCutsOff) {
  ShapeText key;
  key.add("f32", std::array<int64_t, 2>{64, 784})
      .add("i32", std::array<int64_t, 1>{-7})
      .add("f64", {});
  EXPECT_EQ(key.view(), "f32[64, 784] i32[-7] f64[]");
  EXPECT_EQ(key.intern().view(), key.view());
  EXPECT_EQ(key.intern().c_str(), key.intern().c_str());
  for (int i = 0; i < 40; ++i) key.add("f32", std::array<int64_t, 2>{1, 2});
  EXPECT_EQ(key.view().size(), 240u);
}

TEST(Scope, OutsideASessionRecordsNothing) {
  int described = 0;
  Scope scope("idle", ScopeKind::op);
  scope.describe([&] { return ++described, OpInfo{}; });
  KernelSpan span;
  EXPECT_FALSE(recording());
  EXPECT_EQ(described, 0);
}

std::string g_ranges;
constexpr RangeCalls kFakeRanges{
    [](const char* name) { g_ranges += std::string("(") + name; }, [] { g_ranges += ")"; }};

TEST(Scope, IsARangeForAToolThatIsAttached) {
  FakeClock clock;
  const auto scopes = [] {
    const Scope outer("outer");
    const Scope inner("inner");
  };
  g_ranges.clear();
  scopes();
  set_ranges(&kFakeRanges);
  scopes();
  {
    Session session({.schedule = kOneStep, .clock = &clock});
    scopes();
    session.step();
    EXPECT_EQ(session.finish().rows().rows.size(), 2u);
  }
  {
    const Scope open("open");
    set_ranges(nullptr);  // what was pushed is popped
    scopes();
  }
  EXPECT_EQ(g_ranges, "(outer(inner))(outer(inner))(open)");
}

// A cost function is a user's code too: what it throws reaches who called the op.
TEST(Scope, ACostThatThrowsReachesTheCaller) {
  static const sinter::OpDef kDear{.name = "dear",
      .infer = [](Operands in, const Attrs&) { return Tensors{Tensor::meta(in[0].shape())}; },
      .cost = [](Operands, Operands, const Attrs&) -> Cost {
        throw Error(Error::Kind::usage, "dear: no cost");
      },
      .cpu = [](const Call&) {}};
  FakeClock clock;
  const Report report = recorded(clock, {.schedule = kOneStep},
      [&](int) { EXPECT_THROW(apply(kDear, {Tensor::ones({2})}), Error); });
  const std::vector<Row> rows = report.rows().rows;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "dear");
}

TEST(Scope, StoresParentDepthAndLaunches) {
  FakeClock clock;
  const Report report = recorded(clock, {.schedule = kOneStep}, [&](int) {
    Scope outer("outer", ScopeKind::module);
    KernelSpan stray;  // no op is open: not a launch
    fake_op(clock, "op", 3, 5, {.cost = {7, 8, 9}, .uid = 11});
    Scope inner("inner", ScopeKind::data);
    clock.advance(2);
  });
  ASSERT_EQ(report.traces.size(), 1u);
  const auto& r = report.traces[0].records;
  ASSERT_EQ(r.size(), 3u);
  EXPECT_EQ(r[0].parent, -1);
  EXPECT_EQ(r[1].parent, 0);
  EXPECT_EQ(r[2].parent, 0);
  EXPECT_EQ(r[1].info.uid, 11u);
  ASSERT_EQ(report.traces[0].launches.size(), 1u);
  EXPECT_EQ(report.traces[0].launches[0].record, 1);
  EXPECT_EQ(self_times(report.traces[0]), (std::vector<int64_t>{0, 8, 2}));
  EXPECT_EQ(report.launches_per_step(), 1.0);
  const Rows rows = report.rows();
  EXPECT_EQ(find_row(rows, "op")->dispatch_ns(), 3);
  EXPECT_EQ(find_row(rows, "outer")->heaviest_child, "op");
  ASSERT_EQ(rows.calls.size(), 1u);
  EXPECT_EQ(rows.rows[rows.calls[0].row].name, "op");
  EXPECT_TRUE(report.incomplete.empty());
}

// Opens scopes at random, each taking time before, between and after its children; adds up what it
// spent.
void grow(FakeClock& clock, std::mt19937& random, int depth, int64_t* spent, int64_t* scopes) {
  auto spend = [&] {
    const int64_t ns = random() % 50;
    clock.advance(ns);
    *spent += ns;
  };
  Scope scope(kNames[random() % 4], static_cast<ScopeKind>(random() % 9));
  ++*scopes;
  spend();
  for (uint32_t children = depth < 6 ? random() % 4 : 0; children > 0; --children) {
    grow(clock, random, depth + 1, spent, scopes);
    spend();
  }
}

TEST(Scope, RandomTreesConserveTimeExactly) {
  for (int threads = 1; threads <= 8; ++threads) {
    FakeClock clock;
    Session session({.schedule = {.wait = 0, .warmup = 1, .active = 3},
        .clock = &clock,
        .records_per_thread = 1 << 14});
    std::vector<int64_t> spent(threads, 0), scopes(threads, 0);
    for (int step = 0; step < 4; ++step) {
      std::vector<std::thread> workers;
      for (int t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
          std::mt19937 random(1000 * threads + 10 * t + step);
          int64_t ns = 0, n = 0;
          for (int tree = 0; tree < 5; ++tree) grow(clock, random, 0, &ns, &n);
          if (step > 0) {
            spent[t] += ns;
            scopes[t] += n;
          }
        });
      }
      for (auto& worker : workers) worker.join();
      session.step();
    }
    const Report report = session.finish();
    EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
    int64_t recorded = 0, self_sum = 0, root_sum = 0;
    for (const Trace& trace : report.traces) {
      const std::vector<int64_t> self = self_times(trace);
      for (size_t i = 0; i < trace.records.size(); ++i) {
        const Record& r = trace.records[i];
        if (!report.counts(trace, r)) continue;
        ++recorded;
        EXPECT_GE(self[i], 0);
        self_sum += self[i];
        if (r.parent < 0) root_sum += r.t1 - r.t0;
        if (r.parent >= 0) {
          const Record& parent = trace.records[r.parent];
          EXPECT_TRUE(parent.t0 <= r.t0 && r.t1 <= parent.t1);
        }
      }
    }
    int64_t expected_scopes = 0, expected_ns = 0;
    for (int t = 0; t < threads; ++t) {
      expected_scopes += scopes[t];
      expected_ns += spent[t];
    }
    EXPECT_EQ(recorded, expected_scopes);
    EXPECT_EQ(self_sum, root_sum);
    if (threads == 1) {
      EXPECT_EQ(self_sum, expected_ns);
    } else {
      EXPECT_GE(self_sum, expected_ns);  // each also sees the clock that the others move
    }
    int64_t row_self = 0, row_calls = 0;
    for (const Row& row : report.rows().rows) {
      row_self += row.self_ns;
      row_calls += row.calls;
      EXPECT_GE(row.total_ns, row.heaviest_child_ns);
      EXPECT_EQ(std::accumulate(row.samples.begin(), row.samples.end(), int64_t{0}), row.self_ns);
    }
    EXPECT_EQ(row_self, self_sum);
    EXPECT_EQ(row_calls, recorded);
  }
}

TEST(Scope, RecursionCountsOnceInTotal) {
  FakeClock clock;
  const Rows rows = recorded(clock, {.schedule = kOneStep}, [&](int) {
    Scope a("block", ScopeKind::module);
    clock.advance(10);
    Scope b("block", ScopeKind::module);
    clock.advance(5);
  }).rows();
  ASSERT_EQ(rows.rows.size(), 1u);
  EXPECT_EQ(rows.rows[0].self_ns, 15);
  EXPECT_EQ(rows.rows[0].total_ns, 15);
  EXPECT_EQ(rows.rows[0].calls, 2);
}

TEST(Scope, NoAllocationInTheWindow) {
  if (!test::kCountsNew) GTEST_SKIP() << "the sanitizer has its own operator new";
  std::unique_ptr<int> sink;
  FakeClock clock;
  Session session({.schedule = {.wait = 1, .warmup = 1, .active = 5}, .clock = &clock});
  std::array<int64_t, 7> allocs{};
  for (size_t step = 0; step < allocs.size(); ++step) {
    const int64_t before = test::new_calls;
    for (int i = 0; i < 20; ++i) {
      Scope module("module", ScopeKind::module);
      Scope scope("op", ScopeKind::op);
      scope.describe([&] {
        ShapeText key;
        key.add("f32", std::array<int64_t, 2>{64, 784})
            .add("f32", std::array<int64_t, 2>{256, 784});
        return OpInfo{.shapes = key.intern()};
      });
      KernelSpan span;
      clock.advance(1);
    }
    if (step == 6) sink = std::make_unique<int>(7);  // the counter does see what a step allocates
    allocs[step] = test::new_calls - before;
    session.step();
  }
  const Report report = session.finish();
  ASSERT_EQ(report.steps.size(), 5u);
  for (size_t step = 2; step < 6; ++step) EXPECT_EQ(allocs[step], 0);
  EXPECT_EQ(allocs[6], 1);
  EXPECT_EQ(*sink, 7);
}

TEST(Scope, FullBufferDropsCountsAndSaysSo) {
  FakeClock clock;
  Session session({.schedule = kOneStep, .clock = &clock, .records_per_thread = 4});
  for (int i = 0; i < 7; ++i) fake_op(clock, "op", 1, 1);
  session.step();
  const Report report = session.finish();
  EXPECT_EQ(find_row(report.rows(), "op")->calls, 4);
  ASSERT_EQ(report.incomplete.size(), 1u);
  test::expect_facts(report.incomplete[0], {"3 records dropped"});
  EXPECT_TRUE(report.table().starts_with("INCOMPLETE")) << report.table();
}

TEST(Scope, FullLaunchBufferIsCountedToo) {
  FakeClock clock;
  const Report report = recorded(clock, {.schedule = kOneStep, .records_per_thread = 2}, [&](int) {
    Scope op("op", ScopeKind::op);
    for (int i = 0; i < 3; ++i) KernelSpan span;
  });
  EXPECT_EQ(find_row(report.rows(), "op")->launches, 2);
  ASSERT_EQ(report.incomplete.size(), 1u);
}

TEST(Scope, ThreadThatEndedIsStillReported) {
  FakeClock clock;
  const Report report = recorded(clock, {.schedule = kOneStep}, [&](int) {
    std::thread([&] { fake_op(clock, "theirs", 1000, 2000); }).join();
    std::thread([&] { fake_op(clock, "also_theirs", 1000, 2000); }).join();
    fake_op(clock, "mine", 1, 2);
  });
  EXPECT_EQ(report.traces.size(), 3u);
  EXPECT_EQ(report.rows().calls.size(), 3u);
  test::expect_facts(report.table(), {"other threads 6.0us"});
}

TEST(Scope, ForkedChildRecordsNothing) {
  FakeClock clock;
  Session session({.schedule = kOneStep, .clock = &clock});
  const int status = test::status_of_child([&] {
    int described = 0;
    {
      Scope scope("child", ScopeKind::op);
      scope.describe([&] { return ++described, OpInfo{}; });
    }
    session.step();
    test::expect_error(Error::Kind::state, {}, [&] { session.finish(); });
    return recording() || described > 0 || testing::Test::HasFailure();
  });
  EXPECT_EQ(status, 0);
  fake_op(clock, "parent", 1, 1);
  session.step();
  EXPECT_EQ(session.finish().rows().rows.size(), 1u);
}

TEST(Scope, ThreadsRecordWhileTheSessionDrains) {
  for (int round = 0; round < 3; ++round) {
    FakeClock clock;
    std::atomic<bool> stop{false};
    std::atomic<int> started{0};
    std::vector<std::thread> workers;
    {
      Session session({.schedule = {.wait = 0, .warmup = 1, .active = 2, .repeat = 3},
          .clock = &clock,
          .records_per_thread = 256});
      for (int t = 0; t < 8; ++t) {
        workers.emplace_back([&] {
          ++started;
          while (!stop) fake_op(clock, "worker", 1, 1);
        });
      }
      while (started < 8) std::this_thread::yield();
      for (int step = 0; step < 9; ++step) {
        fake_op(clock, "main", 1, 1);
        session.step();
      }
      const Report report = session.finish();
      EXPECT_EQ(find_row(report.rows(), "main")->calls, 6);
      for (const std::string& reason : report.incomplete)
        EXPECT_EQ(reason.find("add up"), std::string::npos) << reason;
    }
    fake_op(clock, "after", 1, 1);
    stop = true;
    for (auto& worker : workers) worker.join();
  }
}

void expect_one_launch(const Report& report) {
  EXPECT_TRUE(report.incomplete.empty());
  EXPECT_EQ(report.steps[0].launches, 1);
  EXPECT_EQ(report.steps[0].api_calls, 1);
}

TEST(Scope, WhatADataScopeLaunchesIsNotOfTheStep) {
  FakeClock clock;
  Session session({.schedule = kOneStep, .clock = &clock});
  {
    const Scope batch("next_batch", ScopeKind::data);
    const KernelSpan gather;
    clock.advance(2);
  }
  fake_op(clock, "op", 3, 5);
  session.step();
  const Report report = session.finish();
  expect_one_launch(report);
  EXPECT_EQ(find_row(report.rows(), "next_batch")->launches, 1);
}

TEST(Scope, AnOpThatFetchesDataIsARowBesideTheStep) {
  FakeClock clock;
  const Report report = recorded(clock, {.schedule = kOneStep}, [&](int) {
    {
      Scope gather("gather_batch", ScopeKind::op);
      gather.describe([] { return OpInfo{.cost = {0, 100, 400}, .role = Role::data}; });
      const KernelSpan kernel;
      clock.advance(2);
    }
    fake_op(clock, "op", 3, 5);
  });
  expect_one_launch(report);
  const Rows rows = report.rows();
  const Row* row = find_row(rows, "gather_batch");
  EXPECT_EQ(row->kind, ScopeKind::data);
  EXPECT_EQ(row->launches, 1);
  EXPECT_EQ(rows.calls.size(), 1u);
  test::expect_facts(report.table(), {"gather_batch", "0.000 MFLOP  0.0 kB  launches 1"});
}

}  // namespace
}  // namespace sinter::profiler
