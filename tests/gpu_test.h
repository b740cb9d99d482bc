// A fixture for tests that need a card: skipped, in the device's own words, where there is none.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "core/device/device.h"
#include "core/device/launch_log.h"
#include "core/error.h"

namespace sinter::test {

inline constexpr Device kCuda{Device::Type::cuda, 0};

// The kernels that cuBLASLt started since the log began, and cuDNN for convolutions: of how many
// they make a product (two, where k is split and added) is their own choice.
inline int64_t library_launches(const LaunchLog& log) {
  const std::vector<LaunchShape> launches = log.launches();
  return std::ranges::count_if(launches, [](const LaunchShape& launch) {
    return launch.kernel == "cublaslt_gemm" || launch.kernel.starts_with("cudnn_conv2d");
  });
}

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
