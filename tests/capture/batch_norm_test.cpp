// A step with a BatchNorm2d, captured: its running statistics change in place at each replay as
// they do eagerly, to the bit, and evaluation in between sees them.
#include <gtest/gtest.h>

#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/pool.h"
#include "nn/sequential.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"

namespace sinter {
namespace {

using capture::Step;

struct ImageNet {
  nn::Sequential net{nn::BatchNorm2d(2), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(2 * 3 * 2, 4)};
  std::unique_ptr<nn::Optimizer> optimizer;
  explicit ImageNet(Device device) {
    net.init_parameters(3);
    net.to(device);
    optimizer = std::make_unique<nn::Adam>(net.named_parameters(), nn::AdamOptions{.lr = 0.01});
  }
  Tensors operator()(const Tensors& in) {
    optimizer->zero_grad();
    const Tensor losses = cross_entropy(net(in[0]), in[1]);
    backward(losses);
    optimizer->step(losses);
    return {losses};
  }
};

void expect_same_state(const ImageNet& a, const ImageNet& b) {
  const nn::NamedTensors x = a.net.state_dict(), y = b.net.state_dict();
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(x[i].tensor.to_vector<double>(), y[i].tensor.to_vector<double>()) << x[i].name;
}

void check_replays(Device device) {
  ImageNet eager(device), captured(device);
  Step step([&](const Tensors& in) { return captured(in); },
      {.rules = capture::RuleSet("none"),
          .parameters = nn::parameter_visitor(captured.net),
          .measure = false});
  for (uint64_t call = 0; call < 6; ++call) {
    const int64_t rows = call == 4 ? 3 : 5;  // a ragged batch
    const Tensors in{cast(sample_tensor({rows, 2, 6, 5}, call), DType::f32).to(device),
        sample_labels(rows, 4, call).to(device)};
    const uint64_t version = captured.net.state_dict()[2].tensor.storage()->version();
    EXPECT_EQ(step(in)[0].to_vector<float>(), eager(in)[0].to_vector<float>()) << call;
    expect_same_state(captured, eager);
    EXPECT_GT(captured.net.state_dict()[2].tensor.storage()->version(), version);
    if (call != 3) continue;
    const NoGrad no_grad;
    const nn::EvalMode a(captured.net), b(eager.net);
    EXPECT_EQ(captured.net(in[0]).to_vector<float>(), eager.net(in[0]).to_vector<float>());
  }
  EXPECT_EQ(captured.net.state_dict()[4].tensor.item(), 6);
  EXPECT_NE(
      ops_of(step.captured()->fused.graph).find("batch_norm2d max_pool2d"), std::string::npos);
}

TEST(BatchNormStep, ReplaysChangeTheRunningStatistics) { check_replays(kCpu); }
TEST(BatchNormStepSimt, ReplaysChangeTheRunningStatistics) { check_replays(kSimt); }
using BatchNormStepGpu = test::GpuTest;
TEST_F(BatchNormStepGpu, ReplaysChangeTheRunningStatistics) { check_replays(test::kCuda); }

}  // namespace
}  // namespace sinter
