// What the planner's stopwatch decides by its times. The times here are made up.
#include "capture/measure.h"

#include <gtest/gtest.h>

#include "tests/capture/recorded.h"

namespace sinter::capture {
namespace {

using Times = std::vector<double>;

Times times(const Times& of, double factor) {
  Times out;
  for (const double t : of) out.push_back(t * factor);
  return out;
}

const Times kQuiet{10.0, 10.2, 9.9, 10.1, 10.0, 10.3, 9.8, 10.1};

constexpr Device::Type kHost = Device::Type::cpu, kCard = Device::Type::cuda;

TEST(Measure, AGroupGoesOnlyIfItIsShownToBeSlower) {
  EXPECT_EQ(choose(kQuiet, times(kQuiet, 2), kHost), GroupChoice::fuse);
  EXPECT_EQ(choose(kQuiet, kQuiet, kHost), GroupChoice::fuse);
  constexpr double kMargin = margin_on(kHost), kOfCard = margin_on(kCard);
  EXPECT_EQ(choose(times(kQuiet, 0.99 * kMargin), kQuiet, kHost), GroupChoice::fuse);
  EXPECT_EQ(choose(times(kQuiet, 1.01 * kMargin), kQuiet, kHost), GroupChoice::unfuse);
  EXPECT_EQ(choose(times(kQuiet, 1.01 * kOfCard), kQuiet, kHost), GroupChoice::fuse);
  EXPECT_EQ(choose(times(kQuiet, 1.01 * kOfCard), kQuiet, kCard), GroupChoice::unfuse);
  // Most pairs say slower, but not so many that it cannot be chance.
  EXPECT_EQ(choose(Times{12, 12, 10, 12, 10, 12, 10, 12}, Times(8, 10), kHost), GroupChoice::fuse);
}

// One lucky run of the parts among slow ones: the best of a few runs would have decided by it.
TEST(Measure, OneLuckyRunDecidesNothing) {
  Times parts = times(kQuiet, 1.1);
  parts[3] = 4;
  EXPECT_EQ(choose(kQuiet, parts, kHost), GroupChoice::fuse);
}

TEST(Measure, ABusyMachineIsNotDecidedOn) {
  const Times stalls{10, 400, 10, 350, 10, 500, 10, 380};  // each other run waits for somebody else
  EXPECT_EQ(choose(stalls, kQuiet, kHost), GroupChoice::undecided);
  EXPECT_EQ(choose(kQuiet, stalls, kHost), GroupChoice::undecided);
  EXPECT_EQ(choose(Times(5, 20), Times(5, 10), kHost), GroupChoice::undecided) << "five pairs";
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which abort on such a size
// A step of 2^45 rows, which is recorded without being done: no address space has room for a copy.
TEST(Measure, WhatCannotBeCopiedIsFusedAsCounted) {
  const SmallMlp mlp;
  const Tensor x = Tensor::shape_only({int64_t{1} << 45, 6}, DType::f32, kCpu);
  const NoGrad no_grad;
  Recording recording({x}, false);
  const Tensor y = mlp.logits(x);
  const Graph graph = recording.finish({y}, {});
  const Rewriter measured = rewrite_measured(graph, RuleSet("all"), kHost);
  ASSERT_EQ(measured.groups.size(), 1u);
  EXPECT_FALSE(measured.groups[0].kept_unfused());
  EXPECT_TRUE(measured.groups[0].choice.note.starts_with("not measured: cpu: out of memory"))
      << measured.groups[0].choice.note;
  EXPECT_EQ(undecided(measured), 1);
}
#endif

}  // namespace
}  // namespace sinter::capture
