// Programs that once failed, as they were found.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "ops/ops.h"

namespace sinter {
namespace {

// Thread B makes bad labels all the time; thread A, which does nothing wrong, gets right values and
// no error of B's.
TEST(CasesSimt, SimtErrorOfAnotherThread) {
  const Device d{Device::Type::simt, 0};
  std::atomic<bool> stop{false};
  int heard = 0, of_b = 0;
  std::thread b([&] {
    for (; !stop; ++of_b) {
      try {
        cross_entropy(Tensor::zeros({2, 3}, DType::f32, d),
            Tensor::from(std::vector<int32_t>{1, 7}, {2}).to(d))
            .to_vector<float>();
      } catch (const Error&) {
        ++heard;
      }
    }
  });
  int wrong = 0, errors = 0;
  for (int i = 0; i < 2000; ++i) {
    try {
      const Tensor x = Tensor::full({8}, i % 50, DType::f32, d);
      wrong += (relu(x * 2.0) + x).to_vector<float>()[0] != 3.f * float(i % 50);
    } catch (const Error&) {
      ++errors;
    }
  }
  stop = true;
  b.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(errors, 0);
  EXPECT_EQ(heard, of_b) << "B hears of each";
}

}  // namespace
}  // namespace sinter
