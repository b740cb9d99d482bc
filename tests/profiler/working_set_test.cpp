// The working set of a step, which chooses the roof that its rows are set beside.
#include <gtest/gtest.h>

#include "core/tensor.h"
#include "profiler/session.h"

namespace sinter::profiler {
namespace {

// What a step touches is what it says it does and what it asks for beside that. A data set that
// lies there meanwhile is none of it.
TEST(WorkingSet, IsThatOfTheStepAndNotWhatLiesBesideIt) {
  constexpr int64_t kResident = 1000, kOwn = 1 << 20;
  const auto working_set = [](int64_t beside) {
    const Tensor data = Tensor::zeros({beside, 1}, DType::u8);
    Session session({.schedule = {.wait = 0, .warmup = 1, .active = 2},
        .roofs = Roofs{},
        .resident_bytes = kResident});
    for (; !session.done(); session.step()) {
      const Tensor own = Tensor::empty({kOwn}, DType::u8);
      const Scope scope("op", ScopeKind::op);
    }
    return session.finish().working_set;
  };
  EXPECT_EQ(working_set(1), kResident + kOwn);
  EXPECT_EQ(working_set(64 << 20), kResident + kOwn);
  Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}});
  session.step();
  EXPECT_EQ(session.finish().working_set, 0) << "not known where no step says what it touches";
}

}  // namespace
}  // namespace sinter::profiler
