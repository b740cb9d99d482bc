#include "nn/clip.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/ops.h"
#include "tests/closeness.h"

namespace sinter::nn {
namespace {

TEST(Cases, ClipOverflow) {
  Tensor p = Tensor::zeros({100}).set_requires_grad(true);
  backward(sum(p * 1e20));
  EXPECT_NEAR(clip_grad_norm({p}, 1.0).item() / 1e21, 1, 1e-6);
  EXPECT_TRUE(test::close(p.grad(), std::vector<double>(100, 0.1), {.absolute = 1e-7}));
  // And the other end.
  p.autograd().grad = {};
  backward(sum(p * 1e-25));
  clip_grad_norm({p}, 1e-26);
  EXPECT_TRUE(test::close(p.grad(), std::vector<double>(100, 1e-27), {.of_each = 1e-6}));
}

// 4 + 4 ones: the norm is sqrt(8), whichever type comes first.
TEST(Cases, ClipF32AndF64) {
  for (const bool f64_first : {false, true}) {
    Tensor a = Tensor::zeros({4}).set_requires_grad(true),
           b = Tensor::zeros({4}, DType::f64).set_requires_grad(true);
    backward(sum(a));
    backward(sum(b));
    const std::vector<Tensor> both = f64_first ? std::vector{b, a} : std::vector{a, b};
    EXPECT_NEAR(clip_grad_norm(both, 1.0).item(), std::sqrt(8), 1e-12);
    for (const Tensor& p : both)
      EXPECT_TRUE(
          test::close(p.grad(), std::vector<double>(4, std::sqrt(0.125)), {.of_each = 1e-7}));
  }
}

}  // namespace
}  // namespace sinter::nn
