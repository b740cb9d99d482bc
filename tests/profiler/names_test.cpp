// Paths of modules, as ops carry them.
#include "profiler/names.h"

#include <gtest/gtest.h>

namespace sinter::profiler {
namespace {

using Frames = std::vector<std::string>;

TEST(Names, ModulesOfSeveralOpsAreAddedUp) {
  std::string modules;
  for (const char* path : {"MLP / 0 / Linear", "MLP / 1 / ReLU", "MLP / 0 / Linear", ""})
    add_modules(modules, path);
  EXPECT_EQ(modules, "MLP / 0 / Linear + MLP / 1 / ReLU");
  add_modules(modules, "MLP / 1 / ReLU + MLP / 2");
  EXPECT_EQ(modules, "MLP / 0 / Linear + MLP / 1 / ReLU + MLP / 2");
}

TEST(Names, FramesAreWhatPathsShareAndThenTheRest) {
  EXPECT_EQ(module_frames(""), Frames{});
  EXPECT_EQ(module_frames("MLP / 0 / Linear"), (Frames{"MLP", "0", "Linear"}));
  EXPECT_EQ(module_frames("MLP / 0 / Linear", 2), (Frames{"MLP", "0"}));
  EXPECT_EQ(module_frames("MLP / 0 / Linear", 0), Frames{});
  const char* two = "MLP / 0 / Linear + MLP / 1 / ReLU";
  EXPECT_EQ(module_frames(two), (Frames{"MLP", "0 / Linear + 1 / ReLU"}));
  EXPECT_EQ(module_frames(two, 2), (Frames{"MLP", "0 + 1"}));
  EXPECT_EQ(module_frames(two, 1), (Frames{"MLP"}));
  EXPECT_EQ(module_frames("A / 0 + B"), (Frames{"A / 0 + B"}));
}

}  // namespace
}  // namespace sinter::profiler
