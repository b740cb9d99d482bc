// What the planner does on the host. What it makes of a card's times is in cuda_plan_test.cpp.
#include "capture/measure.h"

#include <gtest/gtest.h>

#include "tests/capture/recorded.h"

namespace sinter::capture {
namespace {

constexpr Device::Type kHost = Device::Type::cpu;

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
  EXPECT_TRUE(measured.plan.note.starts_with("none does not run: cpu: out of memory"))
      << measured.plan.note;
  EXPECT_EQ(undecided(measured), 1);
}
#endif

}  // namespace
}  // namespace sinter::capture
