#include "core/device/plan_cache.h"

#include <gtest/gtest.h>

namespace sinter {
namespace {

TEST(PlanCache, TheOneNotUsedForLongestGoes) {
  struct Plan {
    int size;
    bool stays;
  };
  PlanCache<int, Plan> plans(3);
  const auto may_go = [](const Plan& plan) { return !plan.stays; };
  const auto add = [&](int size, bool stays = false) {
    return plans.add(size, std::make_unique<Plan>(size, stays), may_go);
  };
  EXPECT_EQ(add(1, true)->size, 1);
  const auto* second = add(2);
  add(3);
  EXPECT_EQ(plans.find(2), second);
  add(4);
  EXPECT_EQ(plans.find(3), nullptr);
  EXPECT_EQ(plans.find(2), second);
  EXPECT_EQ(plans.find(1)->size, 1) << "it may not go";
  for (int size = 5; size < 100; ++size) add(size);
  EXPECT_EQ(plans.size(), 3u);
  EXPECT_TRUE(plans.find(1) && plans.find(98) && plans.find(99));
  plans.add(100, std::make_unique<Plan>(100, true), [](const Plan&) { return false; });
  EXPECT_EQ(plans.size(), 4u) << "none may go: all stay";
  plans.clear();
  EXPECT_EQ(plans.find(100), nullptr);
}

}  // namespace
}  // namespace sinter
