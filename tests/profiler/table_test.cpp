#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "core/allocator.h"
#include "core/error.h"
#include "core/text_grid.h"
#include "tests/profiler/scopes.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

constexpr int64_t kBatch = 64;

// The layer's costs as PROFILER.md counts them. B batch, I in, O out, f32
Cost linear_cost(int64_t i, int64_t o) {
  const int64_t b = kBatch;
  return {2 * b * i * o + b * o, 4 * (b * i + i * o + o), 4 * b * o};
}
Cost wgrad_cost(int64_t i, int64_t o) {
  const int64_t b = kBatch;
  return {2 * b * i * o, 4 * (b * o + b * i), 4 * i * o};
}

StaticName shapes(int64_t i, int64_t o) {
  ShapeText key;
  return key.add("f32", std::array{kBatch, i}).add("f32", std::array{o, i}).intern();
}

// One step of the default MLP, less some ops; `extra` ns more in the first linear.
void mlp_step(FakeClock& clock, int64_t extra) {
  constexpr int64_t kSizes[] = {784, 256, 128, 10};
  for (int l = 0; l < 3; ++l) {
    Scope module("Linear", ScopeKind::module);
    const int64_t i = kSizes[l], o = kSizes[l + 1];
    fake_op(clock, "linear", 500, 139'300 + (l == 0 ? extra : 0),
        {.cost = linear_cost(i, o), .shapes = shapes(i, o), .role = Role::fwd});
  }
  fake_op(clock, "log_softmax", 300, 7'000, {.cost = {3264, 2560, 2560}});
  fake_op(clock, "nll", 200, 900, {.cost = {128, 512, 256}});
  for (int l = 3; l-- > 0;) {
    fake_op(clock, "matmul", 700, 153'100,
        {.cost = wgrad_cost(kSizes[l], kSizes[l + 1]), .role = Role::wgrad});
  }
  {
    Scope view("reshape", ScopeKind::op);
    clock.advance(100);
  }
  for (int i = 0; i < 6; ++i) {
    fake_op(clock, "sgd_update", 650, 25'800,
        {.cost = {235'146 * 2 / 6, 1'881'168 / 6, 940'584 / 6}, .role = Role::update});
  }
  clock.advance(7'900);
}

// `extra(step)` ns more in the first linear.
Report steps_with(const std::function<int64_t(int)>& extra,
    Schedule schedule = {.wait = 0, .warmup = 0, .active = 20}, int threads = 0) {
  FakeClock clock;
  const Options options{.schedule = schedule,
      .threads = threads,
      .roofs = Roofs{.f32_gflops = 95,
          .cache_gbs = 21,
          .dram_gbs = 10,
          .cache_bytes = 16'000'000,
          .op_ns = 650},
      .resident_bytes = 2'500'000};
  return recorded(clock, options, [&](int step) { mlp_step(clock, extra(step)); });
}
Report mlp_report() {
  return steps_with(
      [](int step) { return step == 5 ? 4000 : 0; }, {.wait = 1, .warmup = 3, .active = 4}, 2);
}

TEST(Table, Golden) {
  EXPECT_EQ(mlp_report().table(), R"(CPU eager  step#4..7 (4 active, 3 warmup)  2 threads
roofs: GEMM 95 GFLOP/s, copy 21 GB/s (2.5 MB fits LLC 16 MB)
Self%  Self CPU  Calls  Launch    kB  FLOP/B  Verdict        Name
 44.0   461.4us      3       3  1339   22.44  compute-bound  matmul(wgrad)
 40.0   419.4us      3       3  1340   22.44  compute-bound  linear
 15.1   158.7us      6       6  2822    0.17  memory-bound   sgd_update
  0.8     8.5us      3       2   5.9    0.58  -              3 small rows
ops 1048.0 + rest of step 7.9 = profiled step 1055.9us (OK)
60.595 MFLOP  5507.0 kB  launches 14  allocs 0
STEP: COMPUTE-BOUND - 84 % of op time is in rows at >= 60 % of the GEMM roof.
CPU total  Self CPU  Calls  Kind    Scope
  419.4us     0.0us      3  module  Linear
)");
}

TEST(Table, AStallIsListedAndDecidesNothing) {
  const Report quiet = steps_with([](int) { return 0; });
  const Report stalled = steps_with([](int step) { return step == 7 ? 100'000'000 : 0; });
  const std::vector<Row> rows = quiet.rows().rows, again = stalled.rows().rows;
  ASSERT_EQ(rows.size(), again.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(again[i].typical_ns, rows[i].typical_ns) << rows[i].name;
    EXPECT_EQ(again[i].verdict.code, rows[i].verdict.code) << rows[i].name;
  }
  EXPECT_EQ(quiet.verdict().code, StepCode::compute_bound);
  EXPECT_EQ(stalled.verdict().evidence, quiet.verdict().evidence);
  const std::string text = stalled.table();
  EXPECT_LT(text.find("matmul(wgrad)"), text.find("linear"))
      << "the stalled row does not come first\n"
      << text;
  test::expect_facts(
      text, {"stalls (over 2x the median of 1055.9us, in no median above): #7 101055.9us\n"});
}

TEST(Table, ABusyMachineGetsNoVerdictAndNoAdvice) {
  Report busy = steps_with([](int step) { return step % 2 * 900'000; });
  busy.candidates = {{.rule = "linear_act",
      .ops = "linear + relu",
      .rows = {"linear"},
      .times = 2,
      .launches_saved = 2}};
  Report distorted = steps_with([](int) { return 0; });
  distorted.candidates = busy.candidates;
  test::expect_facts(distorted.table(), {" Do: linear_act x2 "});
  distorted.clean_us = std::vector<double>(20, 1055.9 / 1.26);
  for (const Report* report : {&busy, &distorted}) {
    const std::string text = report->table();
    test::expect_facts(text, {"\nSTEP: UNDECIDED - machine busy: no verdict; "});
    for (const char* advice : {" Do: ", "-bound", "SURPRISE"})
      EXPECT_EQ(text.find(advice), std::string::npos) << text;
  }
  test::expect_facts(
      busy.busy(), {"the middle half of the steps spans 60 % of the median, 25 % allowed."});
  test::expect_facts(
      distorted.busy(), {"profiled steps differ by +26 % from clean ones beyond the profiler's "
                         "own cost, 25 % allowed."});
  distorted.clean_us = std::vector<double>(20, 1055.9 / 1.251);
  test::expect_facts(distorted.busy(), {"differ by +26 % from clean ones"});
}

TEST(Table, ByShapeAllRowsAndScopes) {
  EXPECT_EQ(mlp_report().table({.sort_by = "flops",
                .row_limit = -1,
                .group_by_input_shape = true,
                .columns = "CPU total,p95,Disp,MFLOP,Rate,%roof,Pred,xpred,Flags",
                .scopes = true}),
      R"(CPU eager  step#4..7 (4 active, 3 warmup)  2 threads
roofs: GEMM 95 GFLOP/s, copy 21 GB/s (2.5 MB fits LLC 16 MB)
Self%  Self CPU  CPU total      p95  Disp  Calls  Launch  MFLOP    kB  FLOP/B        Rate  %roof     Pred  xpred  Verdict        Name           Flags     Shapes
 44.0   461.4us    461.4us  461.4us   2.1      3       3  30.05  1339   22.44   65.1 GF/s     69  318.2us   1.4x  compute-bound  matmul(wgrad)  HOT
 13.3   139.8us    139.8us  143.2us   0.5      1       1  25.71  1070   24.02  183.9 GF/s    194  271.2us   0.5x  compute-bound  linear                   f32[64, 784] f32[256, 784]
 13.3   139.8us    139.8us  139.8us   0.5      1       1   4.20   230   18.28   30.1 GF/s     32   44.9us   3.1x  mixed          linear         SURPRISE  f32[64, 256] f32[128, 256]
 15.1   158.7us    158.7us  158.7us   3.9      6       6   0.47  2822    0.17   17.8 GB/s     85  138.3us   1.1x  memory-bound   sgd_update
 13.3   139.8us    139.8us  139.8us   0.5      1       1   0.16  40.5    4.06    1.2 GF/s      1    2.6us  54.2x  latency-bound  linear         SURPRISE  f32[64, 128] f32[10, 128]
  0.7     7.3us      7.3us    7.3us   0.3      1       1   0.00   5.1    0.64    0.7 GB/s      3    0.9us   8.2x  latency-bound  log_softmax    SURPRISE
  0.1     1.1us      1.1us    1.1us   0.2      1       1   0.00   0.8    0.17    0.7 GB/s      3    0.7us   1.6x  latency-bound  nll
  0.0     0.1us      0.1us    0.1us     -      1       -      -     -       -           -      -        -      -  META           reshape
ops 1048.0 + rest of step 7.9 = profiled step 1055.9us (OK)
60.595 MFLOP  5507.0 kB  launches 14  allocs 0
STEP: COMPUTE-BOUND - 84 % of op time is in rows at >= 60 % of the GEMM roof.
CPU total  Self CPU  Calls  Kind    Scope
  419.4us     0.0us      3  module  Linear
)");
}

// What is asked for is there, by the word of a group or by its title, and stays in a narrow table.
TEST(Table, ColumnsAreAskedForByWord) {
  const Report report = mlp_report();
  const auto titles = [&](const char* columns) {
    return test::lines_of(report.table({.columns = columns})).at(2);
  };
  EXPECT_EQ(titles(""), "Self%  Self CPU  Calls  Launch    kB  FLOP/B  Verdict        Name");
  EXPECT_EQ(titles("xpred,Disp"),
      "Self%  Self CPU  Disp  Calls  Launch    kB  FLOP/B  xpred  Verdict        Name");
  const std::string all = titles("all");
  test::expect_facts(all, {"CPU total", "p95", "MFLOP", "Kept kB", "Rate", "%roof", "Flags"});
  EXPECT_EQ(all.find("Occ%"), std::string::npos) << "a row of the CPU has none: " << all;
  const std::string narrow =
      test::lines_of(report.table({.columns = "memory,FLOP/B", .width = 80})).at(2);
  test::expect_facts(narrow, {"FLOP/B", "Alloc kB  Freed kB  Peak kB  Kept kB"});
  for (const char* gone : {"Calls", "Launch", " kB  FLOP/B"})
    EXPECT_EQ(narrow.find(gone), std::string::npos) << narrow;
}

TEST(Table, SaysWhatIsNotThereAndHowToGetIt) {
  const Report report = mlp_report();
  const std::string narrow = report.table({.columns = "all", .width = 80});
  test::expect_facts(narrow, {"note: no room in 80 columns for CPU total, p95, Disp,",
                                 "; a wider terminal, a pipe or\n  a file has it"});
  for (const TableOptions& options : {TableOptions{.columns = "all"}, {.width = 60}, {}})
    EXPECT_EQ(report.table(options).find("no room"), std::string::npos) << report.table(options);
  test::expect_facts(report.table({.columns = "p95, Disp"}), {"p95", "Disp"});
  test::expect_facts(report.table({.filter = "zzz"}),
      {"note: no row matches zzz; there are linear, ", "matmul(wgrad)"});
  EXPECT_EQ(report.table({.filter = "linear"}).find("no row"), std::string::npos);
  try {
    report.table({.columns = "nonsense"});
    ADD_FAILURE();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("Self CPU"), text.rfind("Self CPU")) << text;
  }
}

// A scope below 5 % of the longest is counted, and listed with --rows -1.
TEST(Table, SmallScopesAreOneLine) {
  FakeClock clock;
  const Options four{.schedule = {.wait = 0, .warmup = 0, .active = 4}};
  const Report report = recorded(clock, four, [&](int) {
    for (const char* name : {"first", "second", "third"}) {
      const Scope scope(intern(name));
      clock.advance(name[0] == 'f' ? 100'000 : 4000);
    }
  });
  test::expect_facts(report.table(), {"annotation  first\n", "  -           2 small scopes\n"});
  test::expect_facts(report.table({.row_limit = -1}), {"second\n", "third\n"});
}

TEST(Table, LimitFoldsTheRest) {
  const std::string text = mlp_report().table({.row_limit = 1});
  test::expect_facts(text, {"5 other rows\n"});
  EXPECT_EQ(text.find("sgd_update"), std::string::npos) << text;
}

// Columns go by importance, names are cut; the prose round the table is broken at spaces.
TEST(Table, FitsTheTerminal) {
  const Report report = mlp_report();
  for (const size_t width : {60, 80, 120}) {
    for (const std::string& line : test::lines_of(report.table({.scopes = true, .width = width})))
      EXPECT_LE(line.size(), width) << line;
  }
  const std::string narrow = report.table({.width = 60});
  test::expect_facts(narrow, {"Self%", "Self CPU", "Calls", "Verdict", "Name"});
  for (const char* gone : {"FLOP/B", "Launch"})
    EXPECT_EQ(narrow.find(gone), std::string::npos) << narrow;
}

// A step that takes 1,024 bytes in the forward pass and 4,096 in the backward, frees the first in
// there and the second outside of all ops.
TEST(Table, MemoryIsOfTheRowThatTookIt) {
  FakeClock clock;
  Allocator& memory = allocator(kCpu);
  const int64_t live = memory.stats().live_bytes;
  const Options two{.schedule = {.wait = 0, .warmup = 0, .active = 2}};
  const Report report = recorded(clock, two, [&](int) {
    void *kept = nullptr, *gradient = nullptr;
    const auto op = [&](StaticName name, const std::function<void()>& run) {
      clock.advance(1000);
      const Scope scope(name, ScopeKind::op);
      clock.advance(1000);
      run();
      clock.advance(1000);
    };
    op("relu", [&] { kept = memory.allocate(1024); });
    {
      const Scope backward("backward");
      op("relu_backward", [&] {
        gradient = memory.allocate(4096);
        clock.advance(1000);
        memory.release(kept, 1024);
      });
    }
    clock.advance(1000);
    memory.release(gradient, 4096);
  });
  const Rows rows = report.rows();
  EXPECT_EQ(find_row(rows, "relu")->memory,
      (MemoryUse{.allocated = 2048, .freed = 0, .peak = live + 1024, .kept = 2048}));
  EXPECT_EQ(find_row(rows, "relu_backward")->memory,
      (MemoryUse{.allocated = 8192, .freed = 2048, .peak = live + 5120}));
  EXPECT_EQ(rows.memory.freed, rows.memory.allocated);
  test::expect_facts(report.table({.columns = "memory"}),
      {"Alloc kB  Freed kB  Peak kB  Kept kB", "4.1       1.0",
          "memory: allocated 5.1 = ops 5.1 + rest of step 0.0 kB, freed 5.1 = ops 1.0 +\n"
          "  rest of step 4.1 kB\n",
          "kept: no module keeps 1.0 kB (relu) until relu_backward\n"});
  EXPECT_EQ(report.table().find("Alloc"), std::string::npos);
  EXPECT_THROW(report.table({.columns = "memry"}), Error);
}

TEST(Table, WhatIsKeptStandsBesideWhatTheFusedStepKeeps) {
  const std::vector<Kept> eager{
      {.module = "M / b", .ops = "relu", .until = "relu_backward", .bytes = 9000},
      {.module = "M / a", .ops = "linear", .until = "matmul", .bytes = 500},
      {.module = "M / c", .ops = "tanh", .until = "tanh_backward", .bytes = 400}};
  const std::vector<GraphNode> nodes{{.name = "linear_act",
                                         .memory = {.kept = 4000},
                                         .kept_until = "input_grad_act",
                                         .module = "M / a + M / b"},
      {.name = "sum", .memory = {.allocated = 8}, .module = "M / c"},
      {.name = "glu", .memory = {.kept = 200}, .module = "M / d"}};
  const std::vector<Kept> fused = kept_of(nodes);
  EXPECT_EQ(fused.size(), 2U);
  EXPECT_EQ(kept_lines(fused),
      "kept: M / a + M / b keeps 4.0 kB (linear_act) until input_grad_act\n"
      "kept: M / d keeps 0.2 kB (glu) until \n");
  EXPECT_EQ(kept_lines(eager, &fused),
      "kept     M / b keeps 9.0 kB (relu) until relu_backward; fused: 4.0 kB\n"
      "kept     M / a keeps 0.5 kB (linear) until matmul; fused: 0.0 kB\n"
      "kept     M / c keeps 0.4 kB (tanh) until tanh_backward; fused: 0.0 kB\n"
      "kept     fused alone: 0.2 kB\n");
}

// Twenty steps of about 20 us, with noise, and a stall now and then.
Report of_steps(uint64_t seed, int64_t more_at_first) {
  FakeClock clock;
  uint64_t state = seed;
  const auto noise = [&](int64_t most) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return int64_t(state >> 33) % most;
  };
  const Options options{.schedule = {.wait = 0, .warmup = 2, .active = 20}};
  return recorded(clock, options, [&](int step) {
    fake_op(clock, "linear", 1000, 12'000 + noise(1500), {.cost = {400'000, 2000, 1000}});
    fake_op(clock, "adam_update", 500, 6000 + noise(800) + (step == 2 ? more_at_first : 0),
        {.cost = {400, 2000, 1000}});
    clock.advance(step > 2 && noise(25) == 0 ? 30'000 : 500);
  });
}

TEST(Table, AFirstStepThatIsNotAsTheOthersIsToldWithItsRow) {
  const std::string table = of_steps(1, 40'000).table();
  test::expect_facts(table, {"note: not warm: the first recorded step took ", "by adam_update +4",
                                "more steps of warm-up"});
  EXPECT_EQ(table.find("linear +"), std::string::npos) << table;
  for (uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_EQ(of_steps(seed, 0).table().find("not warm"), std::string::npos) << seed;
}

TEST(Table, ProseIsBrokenAtBlanksAndNoneIsLeft) {
  EXPECT_EQ(wrapped("one two   three\nfour", 9), "one two\n  three\nfour");
  EXPECT_EQ(wrapped("one two   three", 0), "one two   three");
}

TEST(Table, ACellThatIsTooWideIsCutAndARowIsOneLine) {
  TextGrid grid({"<fused <- eager", "us"});
  grid.add({"act x2 <- linear x2, relu x2", "3.5"});
  grid.add({"a_name_without_any_space", "1"});
  grid.fit(24);
  EXPECT_EQ(grid.text(),
      "fused <- eager        us\n"
      "act x2 <- linear ..  3.5\n"
      "a_name_without_an..    1\n");
}

TEST(Table, WrongSortKeyNamesTheNearest) {
  const Report report = mlp_report();
  test::expect_error(Error::Kind::usage, {"; nearest is self_cpu_time_total; allowed "},
      [&] { report.table({.sort_by = "self_cpu_time_totl"}); });
  EXPECT_THROW(report.table({.row_limit = -2}), Error);
  EXPECT_THROW(report.table({.columns = "footprnt"}), Error);
  test::expect_facts(
      report.table({.columns = "footprint"}), {"note: a row of the CPU has no footprint\n"});
  for (const char* key : {"self_cpu_time_total", "cpu_time_total", "cpu_time",
           "dispatch_time_total", "count", "flops", "bytes"}) {
    EXPECT_NO_THROW(report.table({.sort_by = key}));
  }
}

TEST(Table, DrillLateStepsVaryingCountsAndOddNames) {
  FakeClock clock;
  const Options four{.schedule = {.wait = 0, .warmup = 0, .active = 4}};
  const std::string text = recorded(clock, four, [&](int step) {
    for (int i = 0; i <= step / 2; ++i) {
      Scope outer("outer", ScopeKind::op);
      clock.advance(1000);
      fake_op(clock,
          "in\"n\x1b"
          "er",
          500, 4500);
    }
    if (step == 3) clock.advance(90'000);
  }).table({.columns = "Flags"});
  test::expect_facts(text,
      {"DRILL in\"n\\x1ber", "launches 1..2  allocs 0",
          "stalls (over 2x the median of 9.0us, in no median above): #3 102.0us\n", "   1.50  "});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Table, HeaderCountsTurns) {
  FakeClock clock;
  const Options options{.schedule = {.wait = 0, .warmup = 1, .active = 2, .repeat = 2},
      .title = "CPU fused",
      .threads = 1};
  const Report report = recorded(clock, options, [&](int) { fake_op(clock, "op", 1, 1); });
  EXPECT_TRUE(
      report.table().starts_with("CPU fused  step#1..5 (2 x 2 active, 1 warmup)  1 thread\n"
                                 "roofs: not measured (the command calibrate)\n"));
}

// A stall in one of twenty steps moves neither the time nor the share beside it.
TEST(Table, SharesAndTimesAreOfOneStatistic) {
  const Profile p = steps_with([](int step) { return step == 7 ? 100'000'000 : 0; }).profile();
  double all = 0, shares = 0;
  for (const Row& row : p.rows) all += row.kind == ScopeKind::op ? row.typical_ns : 0;
  for (const Row& row : p.rows) {
    EXPECT_EQ(row.share.has_value(), row.kind == ScopeKind::op) << row.name;
    if (row.kind != ScopeKind::op) continue;
    EXPECT_EQ(*row.share, row.typical_ns / all) << row.name;
    shares += *row.share;
    if (row.name == "linear") {
      EXPECT_EQ(row.typical_ns, 20 * 419'400);
    }
  }
  EXPECT_NEAR(shares, 1, 1e-12);
  test::expect_facts(table(p),
      {" 40.0   419.4us      3", "ops 1048.0 + rest of step 7.9 = profiled step 1055.9us"});
}

// What fetches the batch is a row below the others, with its times and in no sum: the rows of ops
// have all of Self%, and add up to `ops`.
TEST(Table, WhatIsNoOpStandsApart) {
  FakeClock clock;
  const Options four{.schedule = {.wait = 0, .warmup = 0, .active = 4},
      .roofs = Roofs{.f32_gflops = 1, .cache_gbs = 1, .dram_gbs = 1}};
  const Report report = recorded(clock, four, [&](int) {
    fake_op(clock, "gather_batch", 0, 50'000, {.cost = {1, 2000, 3000}, .role = Role::data});
    fake_op(clock, "linear", 0, 75'000, {.cost = {70'000, 1, 1}, .role = Role::fwd});
    fake_op(clock, "relu", 0, 25'000, {.cost = {1, 1, 1}, .role = Role::fwd});
    clock.advance(200'000);
  });
  const std::string text = report.table({.row_limit = 1});
  test::expect_facts(text,
      {" 75.0    75.0us", "compute-bound  linear", " 25.0    25.0us", "    -    50.0us      1",
          "ops 100.0 + rest of step 250.0 = ", "75 % of op time is in rows at"});
  EXPECT_LT(text.find("linear"), text.find("gather_batch")) << text;
  test::expect_facts(text, {"  data           gather_batch\n"});
  const Profile p = report.profile();
  for (const Row& row : p.rows)
    EXPECT_EQ(row.share.has_value(), row.name != "gather_batch") << row.name;
  EXPECT_EQ(table_cells(p).back()[0], "-") << "on a page it stands last, too";
}

// Medians of rows, each of other steps, may be more than the median step: that is not OK.
TEST(Table, TheRestOfAStepIsNeverNegative) {
  FakeClock clock;
  const Options three{.schedule = {.wait = 0, .warmup = 0, .active = 3}};
  const std::string text = recorded(clock, three, [&](int step) {
    fake_op(clock, "a", 0, step == 0 ? 1000 : 9000);
    fake_op(clock, "b", 0, step == 1 ? 1000 : 9000);
    fake_op(clock, "c", 0, step == 2 ? 1000 : 9000);
  }).table();
  test::expect_facts(
      text, {"\nops 27.0 are more than the profiled step 19.0us: medians of 3 steps, too few or\n"
             "  too unsteady to add up (not OK)\n"});
  EXPECT_EQ(text.find("rest of step"), std::string::npos) << text;
}

// Without a graph nobody knows whether a rule would join the calls; with one it is known.
TEST(Table, ManyNamesARuleOnlyWhereAGraphIsThere) {
  Report report = mlp_report();
  const TableOptions flags{.columns = "Flags"};
  EXPECT_EQ(report.table(flags).find("MANY"), std::string::npos) << report.table(flags);
  report.candidates.emplace();
  test::expect_facts(report.table(flags), {"MANY -\n"});
  report.candidates->push_back({.rule = "multi_tensor_update", .rows = {"sgd_update"}});
  test::expect_facts(report.table(flags), {"MANY multi_tensor_update\n"});
}

// A user's own scope, with the call that session.h shows; and the same advice as in the text.
TEST(Table, AUsersScopeShowsByDefault) {
  FakeClock clock;
  const Options four{.schedule = {.wait = 0, .warmup = 0, .active = 4}};
  test::expect_facts(recorded(clock, four,
                         [&](int) {
                           Scope mine("my data loading");
                           fake_op(clock, "op", 500, 500);
                         })
                         .table({.row_limit = 15}),
      {"annotation  my data loading\n"});
}

// What describing an op takes is measured and taken off; what is left is other programs' doing.
TEST(Table, TheProfilersOwnCostIsNoDistortion) {
  FakeClock clock;
  const Options options{.schedule = {.wait = 0, .warmup = 0, .active = 20},
      .roofs = Roofs{.f32_gflops = 1, .cache_gbs = 1, .dram_gbs = 1, .scope_ns = 50}};
  Report report = recorded(clock, options, [&](int) {
    Scope scope("op", ScopeKind::op);
    scope.describe([&] {
      clock.advance(400);
      return OpInfo{};
    });
    KernelSpan span;
    clock.advance(1100);  // 100 of them the two clocks'
  });
  report.clean_us = std::vector<double>(20, 1.0);
  EXPECT_NEAR(report.profiler_us(), 0.5, 1e-9);
  EXPECT_NEAR(report.distortion(), 0, 1e-9);
  EXPECT_EQ(report.busy(), "");
  test::expect_facts(report.table(), {"profiler 0.5us, distortion +0.0 %"});
}

// --fail-on and the table speak of one number.
TEST(Table, SaysTheDistortionThatCounts) {
  FakeClock clock;
  const Options twenty{.schedule = {.wait = 0, .warmup = 0, .active = 20}};
  Report report = recorded(clock, twenty, [&](int step) {
    fake_op(clock, "op", 500, 500);
    if (step == 3) clock.advance(90'000);  // a stall
  });
  report.clean_us = std::vector<double>(20, 0.8);
  EXPECT_NEAR(report.distortion(), 25, 1e-9);
  test::expect_facts(report.table(), {"distortion +25.0 %"});
}

}  // namespace
}  // namespace sinter::profiler
