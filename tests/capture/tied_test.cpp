// A step over tied weights: replayed and fused it computes what the ops one by one do.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "nn/linear.h"
#include "nn/optim.h"
#include "ops/ops.h"
#include "tests/closeness.h"

namespace sinter::capture {
namespace {

// The decoder is the encoder's weight, transposed.
struct Autoencoder : nn::Module {
  std::shared_ptr<nn::Linear> encoder = add("encoder", std::make_shared<nn::Linear>(12, 5));
  Autoencoder() {
    add_parameter("decoder", encoder->weight());
    init_parameters(3);
  }
  Tensor forward(const Tensor& x) override { return matmul(relu((*encoder)(x)), tensor(0)); }
  std::string describe() const override { return "Autoencoder"; }
};

TEST(TiedWeights, AReplayTrainsThemAsEagerDoes) {
  for (const char* rules : {"none", "all"}) {
    Autoencoder eager, fused;
    nn::Adam eager_adam(eager.named_parameters(), {.lr = 0.01}),
        fused_adam(fused.named_parameters(), {.lr = 0.01});
    const auto train = [](Autoencoder& net, nn::Optimizer& adam, const Tensor& x) {
      adam.zero_grad();
      const Tensor y = net(x) - x, loss = mean(y * y);
      backward(loss);
      adam.step(loss);
      return loss;
    };
    Step step([&](const Tensors& in) { return Tensors{train(fused, fused_adam, in[0])}; },
        {.rules = RuleSet(rules), .parameters = nn::parameter_visitor(fused)});
    Tensor x = Tensor::empty({7, 12});
    nn::init::Stream stream{5, 1};
    nn::init::uniform(x, -1, 1, stream);
    for (int i = 0; i < 6; ++i) {
      const double loss = train(eager, eager_adam, x).item();
      EXPECT_NEAR(step({x})[0].item(), loss, 1e-5 * loss) << rules << " " << i;
    }
    // Adam magnifies the rounding of small gradients: lr/20 a step.
    EXPECT_TRUE(
        test::close(fused.encoder->weight(), eager.encoder->weight(), {.absolute = 6 * 0.01 / 20}))
        << rules;
    EXPECT_GT(step.stats().replays, 0);
  }
}

}  // namespace
}  // namespace sinter::capture
