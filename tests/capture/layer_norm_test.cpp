// A residual block that ends in a LayerNorm, captured: its sum and its norm are one launch, with
// the same bits as eager, forward and backward.
#include <gtest/gtest.h>

#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "ops/fused/fused.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"

namespace sinter {
namespace {

using capture::Step;

// norm(x + second(gelu(first(x)))): the block of a transformer, after its attention.
struct ResidualBlock : nn::Module {
  std::shared_ptr<nn::Linear> first = add("first", std::make_shared<nn::Linear>(12, 20)),
                              second = add("second", std::make_shared<nn::Linear>(20, 12));
  std::shared_ptr<nn::LayerNorm> norm = add("norm", std::make_shared<nn::LayerNorm>(12));
  explicit ResidualBlock(Device device) {
    init_parameters(7);
    to(device);
  }
  Tensor forward(const Tensor& x) override { return (*norm)(x + (*second)(gelu((*first)(x)))); }
  std::string describe() const override { return "ResidualBlock"; }
};

Step block_step(ResidualBlock& block, const char* rules) {
  return Step(
      [&block](const Tensors& in) {
        block.zero_grad();
        const Tensor y = block(in[0]);
        backward(y, {.gradient = in[1]});
        return Tensors{y};
      },
      {.rules = capture::RuleSet(rules),
          .parameters = nn::parameter_visitor(block),
          .measure = false});
}

void check_block(Device device) {
  ResidualBlock plain(device), fused(device);
  Step with = block_step(fused, "add_layer_norm"), without = block_step(plain, "none");
  Tensors a, b;
  for (uint64_t call = 0; call < 4; ++call) {
    const Tensors in{cast(sample_tensor({9, 12}, call), DType::f32).to(device),
        cast(sample_tensor({9, 12}, 90 + call), DType::f32).to(device)};
    a = with(in);
    b = without(in);
    EXPECT_EQ(a[0].to_vector<float>(), b[0].to_vector<float>());
    for (size_t i = 0; i < plain.parameters().size(); ++i)
      EXPECT_EQ(fused.parameters()[i].grad().to_vector<float>(),
          plain.parameters()[i].grad().to_vector<float>());
  }
  const capture::Graph& graph = with.captured()->fused.graph;
  EXPECT_EQ(graph.nodes.size() + 1, without.captured()->fused.graph.nodes.size());
  EXPECT_NE(ops_of(graph).find("add_layer_norm"), std::string::npos) << ops_of(graph);
}

TEST(AddLayerNorm, AResidualBlockIsOneLaunchLess) { check_block(kCpu); }
TEST(AddLayerNormSimt, AResidualBlockIsOneLaunchLess) { check_block(kSimt); }
using AddLayerNormGpu = test::GpuTest;
TEST_F(AddLayerNormGpu, AResidualBlockIsOneLaunchLess) { check_block(test::kCuda); }

}  // namespace
}  // namespace sinter
