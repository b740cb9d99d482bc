// A fixture for tests that need a card: skipped, in the device's own words, where there is none.
#pragma once

#include <gtest/gtest.h>

#include "core/device/device.h"
#include "core/error.h"

namespace sinter::test {

inline constexpr Device kCuda{Device::Type::cuda, 0};

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      Device::parse("cuda");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

}  // namespace sinter::test
