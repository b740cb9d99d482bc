// What the planner makes of whole steps, on a recorder whose clock is a script: each test says what
// the card would take for a graph, and looks at which step was built.
#include <gtest/gtest.h>

#include <set>

#include "capture/explain.h"
#include "ops/shape/gather_batch.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

#if SINTER_HAS_CUDA
#include "core/device/kept_choices.h"
#include "tests/cuda_recorder.h"
#endif

namespace sinter::capture {
namespace {

#if !SINTER_HAS_CUDA

TEST(CudaPlan, NotInThisBuild) {
  GTEST_SKIP() << "the recorder needs the headers of the CUDA toolkit";
}

#else

using test::kCuda;
using Names = std::vector<std::string>;

int64_t count(const Names& nodes, std::string_view name) {
  return std::ranges::count_if(
      nodes, [&](const std::string& node) { return node.starts_with(name); });
}
bool has(const Names& nodes, std::string_view name) { return count(nodes, name) > 0; }
// A step's graph, not one of a group again and again: it has the loss, and an update behind it.
bool is_step(const Names& nodes) {
  const bool loss = has(nodes, "row_chain") || has(nodes, "rows_by_warp");
  return loss && (has(nodes, "weight_grad_update") || has(nodes, "multi_tensor_update") ||
                     has(nodes, "adam_update"));
}

double two_us_each(const Names& nodes) { return 2 * double(nodes.size()); }

// Records and captures a step of an MLP in many groups (its layers but the last do not fit into a
// row_chain), on a card whose graphs take what `us_of_step` says of them (less than 0: they fail).
struct Planned {
  std::string text;  // explain()
  Names nodes;       // of the graph that is replayed
  int64_t captured_ns = 0;
  bool measured = false;
};
using StepUs = std::function<double(const Names& nodes)>;
Planned plan(const StepUs& us_of_step, bool keeps = false, const char* rules = "all") {
  cuda::FakeToolkit recorder;
  recorder.set({.clock = [&](const Names& nodes) {
    return std::llround(1e3 * (is_step(nodes) ? us_of_step(nodes) : two_us_each(nodes)));
  }});
  if (keeps) set_keep_choices(true);
  Training training({.sizes = {16, 600, 600, 10}, .device = kCuda});
  StepOptions options = training.step_options(rules);
  options.measure = true;
  Step step(training.function(), options);
  const Tensors batch = batch_of(training.options, 8, 1);
  step(batch);
  Planned out{.captured_ns = -recorder.device_ns()};
  // Call 2 replays what it has captured, which fails where every step does.
  try {
    step(batch);
  } catch (const Error& error) {
    EXPECT_LT(us_of_step({}), 0) << error.what();
  }
  out.captured_ns += recorder.device_ns();
  out.measured = recorder.count("cudaEventElapsedTime") > 0;
  out.text = explain(*step.captured(), options.rules);
  out.nodes = recorder.graphs().back().names();
  return out;
}
// The lower one in three timings of five. A run and a warm-up come before the first timing, which
// has ten runs.
double noisy(int& turn, double high, double low) { return (++turn + 7) / 10 % 5 < 2 ? high : low; }

TEST(CudaPlan, WhereEachGroupPaysAllStay) {
  const Planned planned = plan(two_us_each);
  EXPECT_EQ(planned.nodes.size(), 5u);
  test::expect_facts(planned.text, {"plan     all groups, measured 10 us, none 50\n",
                                       "   whole step measured 10 us, without it 12\n"});
  EXPECT_EQ(planned.text.find("fallback"), std::string::npos) << planned.text;
}

// One group slows down the step that it is in.
TEST(CudaPlan, AFlipFindsTheFasterStep) {
  const Planned planned = plan(
      [](const Names& nodes) { return two_us_each(nodes) + (has(nodes, "row_chain") ? 30 : 0); });
  EXPECT_FALSE(has(planned.nodes, "row_chain"));
  EXPECT_TRUE(has(planned.nodes, "weight_grad_update")) << "the other groups stay";
  EXPECT_EQ(planned.nodes.size(), 7u);
  test::expect_facts(
      planned.text, {"plan     all groups, measured 40 us, none 50\n", "fallback row_chain <- ",
                        ": whole step measured 14 us, with it 40: kept unfused"});
}

TEST(CudaPlan, NoneIsTakenWhereEveryFusedStepIsSlower) {
  const Planned planned = plan([](const Names& nodes) { return nodes.size() < 25 ? 70. : 50.; });
  EXPECT_EQ(planned.nodes.size(), 25u);
  test::expect_facts(planned.text, {"plan     none, measured 50 us, all groups 70",
                                       "fallback linear_act <- ", "25 launches -> 25 (rules all)"});
  // And by the median alone where it is more than 1 % faster.
  int turn = 0;
  const Planned near =
      plan([&](const Names& nodes) { return nodes.size() < 25 ? 50. : noisy(turn, 50.5, 49.2); });
  EXPECT_EQ(near.nodes.size(), 25u) << near.text;
}

TEST(CudaPlan, AFlipWhoseIntervalHoldsOneIsRefused) {
  int turn = 0;
  const Planned planned = plan([&](const Names& nodes) {
    if (has(nodes, "row_chain")) return nodes.size() > 5 ? 60. : 40.;
    return nodes.size() == 7 ? noisy(turn, 44, 39) : 60.;
  });
  EXPECT_TRUE(has(planned.nodes, "row_chain")) << planned.text;
  EXPECT_EQ(planned.nodes.size(), 5u);
  test::expect_facts(planned.text, {"whole step measured 40 us, without it 39"});
}

TEST(CudaPlan, AStepThatFailsIsLeftOut) {
  // Without groups it does not run: all of them stay.
  const Planned planned =
      plan([](const Names& nodes) { return nodes.size() > 20 ? -1 : two_us_each(nodes); });
  EXPECT_EQ(planned.nodes.size(), 5u);
  test::expect_facts(planned.text, {"none does not run: cuda: the call failed: "});
  // None does: all groups stay, too.
  const Planned unmeasured = plan([](const Names&) { return -1.; });
  EXPECT_EQ(unmeasured.nodes.size(), 5u);
  test::expect_facts(unmeasured.text, {"plan     all groups, ", " does not run: "});
}

TEST(CudaPlan, IsKeptForLaterProcesses) {
  const test::TempDir folder;
  const test::ScopedEnv cache("XDG_CACHE_HOME", folder.path().c_str());
  const auto slow_update = [](const Names& nodes) {
    return two_us_each(nodes) + (has(nodes, "row_chain") ? 30 : 0);
  };
  const Planned first = plan(slow_update, true), second = plan(two_us_each, true);
  EXPECT_TRUE(first.measured);
  EXPECT_FALSE(second.measured);
  EXPECT_EQ(second.nodes, first.nodes);
  EXPECT_EQ(second.nodes.size(), 7u);
  test::expect_facts(second.text,
      {"whole step measured 14 us, with it 40; measured before on this card: kept unfused"});
  EXPECT_TRUE(plan(two_us_each, true, "all,-input_grad_act").measured) << "another question";
}

// A step of 0.9 ms with as many groups as this one.
TEST(CudaPlan, TakesLessThanASecondOfTheCard) {
  const Planned planned = plan([](const Names&) { return 900.; });
  EXPECT_LT(planned.captured_ns, 1'000'000'000);
  EXPECT_GT(planned.captured_ns, 100'000'000);
  const Planned long_step = plan([](const Names&) { return 9000.; });
  EXPECT_LT(long_step.captured_ns, 2'000'000'000);
  test::expect_facts(long_step.text, {"whole step not tried, to save time"});
}

// There is time for two of the five groups: those that save the fewest bytes.
TEST(CudaPlan, TheGroupThatSavesLeastIsTriedFirst) {
  const Planned planned = plan([](const Names&) { return 9000.; });
  std::vector<double> tried, left;  // kB saved
  for (const std::string& line : test::lines_of(planned.text)) {
    const size_t at = line.find(" kB");
    if (!line.starts_with("group ") || at == line.npos) continue;
    const double saved = std::stod(line.substr(line.rfind(' ', at - 1)));
    const bool measured = line.find("whole step measured") != line.npos;
    (measured ? tried : left).push_back(saved);
  }
  ASSERT_EQ(tried.size(), 2u) << planned.text;
  ASSERT_EQ(left.size(), 3u) << planned.text;
  EXPECT_LE(std::ranges::max(tried), std::ranges::min(left)) << planned.text;
}

// On a card that has little memory left: where the step fits, it is captured, however little is
// left for measuring.
TEST(CudaPlan, WhatTheStepLeavesOfTheCardsMemoryIsEnough) {
  const auto captures = [](int64_t left, bool measure) {
    cuda::FakeToolkit recorder;
    Training training({.sizes = {16, 600, 600, 10}, .device = kCuda});
    StepOptions options = training.step_options();
    options.measure = measure;
    Step step(training.function(), options);
    const Tensors batch = batch_of(training.options, 8, 1);
    step(batch);
    size_t free = 0, total = 0;
    cuda::api().cudaMemGetInfo(&free, &total);
    recorder.set({.memory = total - free + size_t(left)});
    const std::string message = test::message_of([&] { step(batch); });
    if (message.empty()) step(batch);
    return message.empty();
  };
  std::set<bool> fits;
  for (int64_t left = 1 << 20; left <= 64 << 20; left *= 2) {
    const bool plain = captures(left, false);
    EXPECT_TRUE(captures(left, true) || !plain) << left;
    fits.insert(plain);
  }
  EXPECT_EQ(fits.size(), 2u) << "neither always nor never";
}

// A step that draws its own batch would run off the end of its epoch while it is timed.
TEST(CudaPlan, ABatchThatTheStepFetchesIsGivenToTheTimedSteps) {
  cuda::FakeToolkit recorder;
  Training training({.sizes = {16, 12, 10, 10}, .device = kCuda});
  const Tensor images = Tensor::empty({32, 16}, DType::u8, kCuda),
               labels = Tensor::empty({32}, DType::i32, kCuda),
               order = Tensor::empty({8}, DType::i64, kCuda);
  StepOptions options = training.step_options();
  options.measure = true;
  Step step(
      [&](const Tensors&) {
        const GatherBatchAttrs attrs{.out = DType::f32};
        return training(apply(kGatherBatchOp, {images, labels, order}, attrs, Role::data));
      },
      options);
  for (int call = 0; call < 2; ++call) step({});
  std::vector<cuda::FakeToolkit::Graph> graphs = recorder.graphs();
  EXPECT_EQ(count(graphs.back().names(), "gather_batch"), 1);
  graphs.pop_back();
  int64_t timed = 0;
  for (const cuda::FakeToolkit::Graph& graph : graphs) {
    timed += is_step(graph.names()) ? graph.launches : 0;
    EXPECT_FALSE(has(graph.names(), "gather_batch"));
  }
  EXPECT_GT(timed, 100);
}

#endif

}  // namespace
}  // namespace sinter::capture
