// On a card its records say of our kernels the registers that ptxas said when they were compiled.
#include "core/device/compiled_kernels.h"
#include "ops/ops.h"
#include "profiler/session.h"
#include "tests/gpu_test.h"

namespace sinter {
namespace {

class FootprintGpu : public test::GpuTest {};

TEST_F(FootprintGpu, RegistersAreThoseThatPtxasSaid) {
  profiler::Session session(
      {.schedule = {.wait = 0, .warmup = 1, .active = 1}, .device = test::kCuda});
  const Tensor x = Tensor::full({256, 512}, 0.5, DType::f32, test::kCuda);
  for (; !session.done(); session.step()) softmax(gelu(log_softmax(x)));
  const profiler::Profile profile = session.finish().profile();
  if (profile.source != profiler::Source::cupti)
    GTEST_SKIP() << "CUPTI keeps no records here: " << profile.source_why;
  const auto compiled = compiled_registers(profile.card.capability);
  if (compiled.empty()) GTEST_SKIP() << "no machine code for this card in this build";
  int found = 0;
  for (const profiler::KernelSum& kernel : profile.kernels) {
    const auto said = compiled.find(kernel_key(kernel.name));
    if (said == compiled.end()) continue;
    ++found;
    ASSERT_TRUE(kernel.footprint) << kernel.name;
    EXPECT_EQ(kernel.footprint->registers, said->second) << kernel.name;
    EXPECT_TRUE(kernel.occupancy) << kernel.name;
  }
  EXPECT_GE(found, 2);
}

}  // namespace
}  // namespace sinter
