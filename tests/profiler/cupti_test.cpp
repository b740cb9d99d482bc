// Device times from CUPTI's activity records, of a card that is not there.
#include "tests/profiler/fake_cupti.h"

#include <gtest/gtest.h>

#include <regex>

#if SINTER_HAS_CUPTI

#include "core/device/cuda_graph.h"
#include "core/device/launch_hook.h"
#include "profiler/trace.h"
#include "tests/profiler/scopes.h"
#include "tests/profiler/trace_check.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

using namespace cuda;
constexpr Device kCard{Device::Type::cuda, 0};

class Cupti : public testing::Test {
 protected:
  void launch(std::string_view name, int64_t ns, int launches = 1) {
    fake_.clock.advance(3000);
    fake_.next_ns = ns;
    static const char kernel = 0;
    void* none[] = {nullptr};
    if (launches == 1)
      return cuda::launch(
          &kernel, {.kernel = name, .grid = {}, .block = 32, .shared_bytes = 0}, none);
    const HookedCall hooked(
        DeviceWork::kernel, Device::Type::cuda, name, 0, true, launches);  // as a library does
    const cudaLaunchConfig_t config{};
    api().cudaLaunchKernelExC(&config, &kernel, none);
  }
  void op(StaticName name, int64_t ns, int launches = 1) {
    Scope scope(name, ScopeKind::op);
    launch(name.view(), ns, launches);
  }
  Session session() {
    return Session({.schedule = {.wait = 0, .warmup = 1, .active = 2},
        .title = "CUDA eager",
        .device = kCard,
        .clock = &fake_.clock});
  }
  // Two steps of two ops.
  Report eager() {
    Session s = session();
    for (; !s.done(); s.step()) {
      op("linear", 9000);
      op("relu", 2000);
      fake_.clock.advance(20'000);
    }
    return s.finish();
  }
  std::string why_incomplete(const Report& report) {
    EXPECT_TRUE(report.table().starts_with("INCOMPLETE")) << report.table();
    EXPECT_EQ(report.verdict().code, StepCode::undecided);
    std::string all;
    for (const std::string& why : report.incomplete) all += why + ". ";
    return all;
  }

  test::FakeCupti card_;
  test::Fake& fake_ = card_.state;
};

TEST_F(Cupti, EagerTimesAreExactAndTellIdleTime) {
  const Report report = eager();
  EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
  EXPECT_EQ(report.source, Source::cupti);
  EXPECT_TRUE(report.source_why.empty()) << report.source_why;
  EXPECT_EQ(find_row(report.rows(), "linear")->device_ns, 2 * 9000);
  EXPECT_EQ(find_row(report.rows(), "relu")->device_ns, 2 * 2000);
  EXPECT_EQ(report.overheads.axis_ns, 100);
  const Timeline t = report.timeline();
  EXPECT_TRUE(t.known);
  EXPECT_EQ(t.busy_ns, 2 * 11'000);
  EXPECT_EQ(t.host_ns, 2 * (3000 + 12'000));  // until the first is asked for; from the second's end
                                              // to the end of the step
  EXPECT_EQ(t.idle_ns(), t.window_ns - t.busy_ns);
  test::expect_facts(report.table(), {"source cupti"});
  EXPECT_TRUE(fake_.kinds.empty());  // what follows is clean
  EXPECT_TRUE(fake_.ids.empty());
  EXPECT_TRUE(eager().incomplete.empty());  // and the next session begins anew
}

TEST_F(Cupti, WhatIsLostIsTold) {
  fake_.lose = 3;
  EXPECT_EQ(why_incomplete(eager()), "1 launches were not timed. ");
  fake_.records = 0;
  fake_.lose = -1;
  fake_.zero = 2;
  EXPECT_EQ(why_incomplete(eager()), "1 device times are zero or negative. ");
  Session s = session();
  for (; !s.done(); s.step()) {
    for (int i = 0; i < 70; ++i) op("linear", 10);  // two records each, of which 128 MiB hold 128
  }
  // They are full of those of the warm-up, which count.
  const std::string why = why_incomplete(s.finish());
  EXPECT_TRUE(why.starts_with(
      "292 records dropped by CUPTI, whose buffers were full. 140 launches were not timed"))
      << why;
}

TEST_F(Cupti, ALibraryCallMayRunSeveralKernels) {
  fake_.twice = true;
  Session s = session();
  for (; !s.done(); s.step()) op("matmul", 1000, 0);
  const Report report = s.finish();
  EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
  EXPECT_EQ(report.unproved, 0);  // it was seen
  EXPECT_EQ(report.steps[0].launches, 2);
  EXPECT_EQ(find_row(report.rows(), "matmul")->launches, 2 * 2);
  EXPECT_EQ(find_row(report.rows(), "matmul")->device_ns, 2 * 2000);
  fake_.twice = false;  // it was counted for two, and one is seen
  Session t = session();
  for (; !t.done(); t.step()) op("matmul", 1000, 2);
  EXPECT_EQ(why_incomplete(t.finish()), "2 launches were not timed. ");
}

// A kernel of ours keeps its name, a library's call gets that of what ran.
TEST_F(Cupti, RecordsTellNamesAndFootprints) {
  CUpti_ActivityKernel9& k = fake_.kernel;
  k.name = "_Z6kernelIfEvPT_";
  k.gridX = 1056;
  k.blockX = 128;
  k.gridY = k.gridZ = k.blockY = k.blockZ = 1;
  k.registersPerThread = 255;
  k.staticSharedMemory = 512;
  k.dynamicSharedMemory = 4096;
  const auto rows = [&] {
    Session s = session();
    for (; !s.done(); s.step()) {
      op("linear", 9000);
      op("matmul", 1000, 0);
    }
    return s.finish().rows();
  };
  const Rows told = rows();
  const Footprint footprint{.grid = {1056, 1, 1},
      .block = {128, 1, 1},
      .registers = 255,
      .static_shared = 512,
      .dynamic_shared = 4096};
  for (const auto& [row, name] :
      {std::pair("linear", "linear"), std::pair("matmul", "void kernel<float>(float*)")}) {
    const std::vector<KernelSum>& kernels = find_row(told, row)->kernels;
    ASSERT_EQ(kernels.size(), 1u) << row;
    EXPECT_EQ(kernels[0].name, name);
    EXPECT_EQ(kernels[0].launches, 2);
    EXPECT_EQ(kernels[0].footprint, footprint);
    ASSERT_TRUE(kernels[0].occupancy);
    EXPECT_EQ(kernels[0].occupancy->share, 0.125);  // 2 blocks of 4 warps, see occupancy_test.cpp
    EXPECT_EQ(kernels[0].occupancy->waves, 4);      // of 2 x 132
  }
  // Without records only what was asked for at the launch is known.
  fake_.answer = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  const Rows untold = rows();
  const std::vector<KernelSum>& own = find_row(untold, "linear")->kernels;
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].footprint,
      (Footprint{.grid = {1, 1, 1}, .block = {32, 1, 1}, .static_shared = 0, .dynamic_shared = 0}));
  EXPECT_FALSE(own[0].occupancy);
  EXPECT_FALSE(find_row(untold, "matmul")->kernels[0].footprint);
}

TEST_F(Cupti, WhereItRefusesNothingIsTimed) {
  const auto header = [&] {
    const Report report = eager();
    EXPECT_EQ(report.source, Source::none);
    EXPECT_EQ(report.steps[0].launches, 2);
    EXPECT_TRUE(fake_.kinds.empty());
    return std::regex_replace(report.table(), std::regex("\n  (?! )"), " ");  // lines go on so
  };
  fake_.answer = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  test::expect_facts(header(), {"source none (CUPTI refuses (35): no privilege)"});
  fake_.answer = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  test::expect_facts(header(), {"(CUPTI refuses (39): another tool is attached)"});
  fake_.answer = CUPTI_SUCCESS;
  fake_.version = CUPTI_API_VERSION - 1;
  test::expect_facts(header(), {"source none (libcupti is of version "});
  set_cupti(nullptr);
  test::expect_facts(header(), {"source none (the card is not real)"});
}

// A graph of three ops, the second of two kernels, captured and replayed within a session.
TEST_F(Cupti, ReplaysAreTimedNodeByNode) {
  const auto replays = [&] {
    fake_.records = 0;
    Session s = session();
    std::unique_ptr<DeviceGraph> graph;
    GraphBuilder builder(0, false);
    for (const Pass pass : {Pass::rehearsal, Pass::capture}) {
      builder.begin(pass);
      for (int n = 0; n < 3; ++n) {
        launch("kernel", 0);
        if (n == 1) launch("kernel", 0);
        builder.captured(n);
      }
      graph = builder.end();
    }
    for (; !s.done(); s.step()) {
      fake_.clock.advance(1000);
      fake_.next_ns = 4000;
      graph->launch();
      fake_.clock.advance(30'000);
    }
    Report report = s.finish();
    report.nodes = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    return report;
  };
  const Report report = replays();
  EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
  EXPECT_EQ(report.source, Source::cupti);
  EXPECT_EQ(report.steps[0].launches, 4) << "node b is two kernels";
  EXPECT_EQ(report.steps[0].api_calls, 1);
  EXPECT_EQ(find_row(report.rows(), "a")->device_ns, 2 * 4000);
  EXPECT_EQ(find_row(report.rows(), "b")->device_ns, 2 * 8000);
  EXPECT_EQ(report.timeline().busy_ns, 2 * 16'000);
  fake_.parallel = true;
  const Report branches = replays();  // every kernel for itself in its lane
  EXPECT_TRUE(branches.incomplete.empty()) << branches.incomplete[0];
  EXPECT_EQ(branches.timeline().busy_ns, 2 * 4000);
  const TraceCheck check = validate_trace(chrome_trace({&branches, 1}));
  EXPECT_TRUE(check.problems.empty()) << check.problems[0].what;
  fake_.parallel = false;
  fake_.lose = 9;  // the second kernel of b, in the last step
  const Report lost = replays();
  EXPECT_EQ(why_incomplete(lost), "1 launches were not timed. ");
  EXPECT_EQ(find_row(lost.rows(), "b")->untimed, 1);
  fake_.lose = -1;
  fake_.zero = 9;
  EXPECT_EQ(why_incomplete(replays()), "1 device times are zero or negative. ");
}

TEST_F(Cupti, AGraphFromBeforeHasNoRecords) {
  GraphBuilder builder(0, false);
  std::unique_ptr<DeviceGraph> graph;
  for (const Pass pass : {Pass::rehearsal, Pass::capture}) {
    builder.begin(pass);
    launch("kernel", 0);
    builder.captured(0);
    graph = builder.end();
  }
  Session s = session();
  for (; !s.done(); s.step()) graph->launch();
  EXPECT_EQ(why_incomplete(s.finish()), "2 launches were not timed. ");
}

}  // namespace
}  // namespace sinter::profiler

#else

TEST(Cupti, NotInThisBuild) { GTEST_SKIP() << "no toolkit, or one without cupti.h"; }

#endif  // SINTER_HAS_CUPTI
