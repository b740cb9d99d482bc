// Clipping inside a step.
#include <gtest/gtest.h>

#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

void check_two_types(Device device) {
  Tensor a = Tensor::zeros({4}, DType::bf16, device).set_requires_grad(true),
         b = Tensor::zeros({4}, DType::f32, device).set_requires_grad(true);
  Step step(
      [&](const Tensors& x) {
        a.autograd().grad = b.autograd().grad = {};
        backward(sum(cast(a, DType::f32) * x[0]) + sum(b * x[0]));
        nn::clip_grad_norm({a, b}, 1.0);
        return Tensors{copy(x[0])};
      },
      {.parameters = [&](const auto& visit) {
        visit(a);
        visit(b);
      }});
  for (int i = 0; i < 4; ++i) step({Tensor::full({4}, i + 1).to(device)});
  EXPECT_EQ(step.stats().replays, 3);
  EXPECT_TRUE(test::close(b.grad(), std::vector<double>(4, std::sqrt(0.125)), {.absolute = 1e-7}));
  EXPECT_TRUE(test::close(a.grad(), std::vector<double>(4, std::sqrt(0.125)), {.of_each = 0x1p-8}));
}
TEST(Cases, ClipOfTwoTypes) { check_two_types(kCpu); }
TEST(CasesSimt, ClipOfTwoTypes) { check_two_types(kSimt); }

}  // namespace
}  // namespace sinter::capture
