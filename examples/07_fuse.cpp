// 06: fusing. The same training step, once more: this time it is recorded, rewritten and replayed.
//
// The first call runs as usual and is recorded. At the second the function is recorded once more,
// without being done; from then on the step is a flat list of kernel calls over memory that was
// laid out once: no shapes to infer, nothing to allocate, and fewer, larger kernels. The code of
// the step does not change.
#include <cstdio>

#include "autograd/autograd.h"
#include "capture/explain.h"
#include "nn/mlp.h"
#include "nn/optim.h"

using namespace sinter;

int main() {
  nn::Mlp model({784, 256, 128, 10});
  nn::Adam optimizer(model.named_parameters());
  const auto train_step = [&](const Tensors& in) {
    optimizer.zero_grad();
    const Tensor losses = cross_entropy(model(in[0]), in[1]);
    backward(losses);
    optimizer.step(losses);
    return Tensors{losses};
  };

  // 1. Wrap it. The parameters are guarded: should one be replaced, the step is captured again.
  capture::Step step(train_step, {.parameters = nn::parameter_visitor(model)});
  const Tensors batch{
      cast(sample_tensor({128, 784}, 1, 0, 1), DType::f32), sample_labels(128, 10, 2)};
  for (int i = 0; i < 5; ++i) step(batch);
  const capture::StepStats& stats = step.stats();
  std::printf("calls %ld: %ld recorded, %ld replayed\n\n", long(stats.calls),
      long(stats.recordings), long(stats.replays));

  // 2. What was recorded, and what it became. A line is a launch; an optimizer update has no
  // result, it changes its parameter in place.
  const capture::Captured& captured = *step.captured();
  std::printf("eager, %zu launches:\n", captured.recorded.nodes.size());
  for (const capture::Node& node : captured.recorded.nodes)
    std::printf("  %s\n", std::string(node.text()).c_str());
  std::printf("fused, %zu launches:\n", captured.executor->launches());
  for (const capture::Node& node : captured.fused.graph.nodes)
    std::printf("  %s\n", std::string(node.text()).c_str());

  // 3. Why: every group with what it saves. The FLOPs are the same; what goes is launches, and
  // memory that was written to be read again.
  std::printf("\n%s\n", capture::explain(captured, capture::RuleSet()).c_str());

  // 4. Rules are switches. Without weight_grad_update there are gradients to look at after the
  // step.
  capture::Step other(train_step, {.rules = capture::RuleSet("all,-weight_grad_update"),
                                      .parameters = nn::parameter_visitor(model)});
  for (int i = 0; i < 3; ++i) other(batch);
  std::printf("rules all,-weight_grad_update: %zu launches, gradient of 4.bias: %s\n",
      other.captured()->executor->launches(), model.parameters()[5].grad().describe().c_str());

  // 5. A captured step is a promise that the next call does the same. What breaks it is an error
  // that says how.
  double factor = 1;
  capture::Step baked([&](const Tensors& in) { return Tensors{in[0] * (factor *= 0.5)}; });
  baked({batch[0]});
  try {
    baked({batch[0]});
  } catch (const Error& error) {
    std::printf("\n%s\n", error.what());
  }
}
