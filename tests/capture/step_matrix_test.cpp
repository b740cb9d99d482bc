// Training steps of a convolutional net and of one with batch norm, captured against eager from
// equal states, step by step: rules x types x optimizers x devices.
#include <gtest/gtest.h>

#include "nn/net.h"
#include "tests/capture/step_util.h"
#include "tests/closeness.h"

namespace sinter {
namespace {

using capture::Step;

constexpr double kLr = 0.02, kEps = 0.1;

struct StepCase {
  const char *layers, *optimizer;
  DType dtype;
  Device device;
};

struct ImageTraining {
  nn::Net net;
  std::unique_ptr<nn::Optimizer> optimizer;

  explicit ImageTraining(const StepCase& c) : net(c.layers, {2, 8, 8}) {
    net.init_parameters(5);
    if (c.dtype == DType::bf16) {
      net.enable_bf16();
    } else {
      net.to(c.dtype);
    }
    net.to(c.device);
    const std::string name = c.optimizer;
    const nn::NamedTensors params = net.named_parameters();
    if (name == "adam") {
      optimizer = std::make_unique<nn::Adam>(params, nn::AdamOptions{.lr = kLr, .eps = kEps});
    } else if (name == "adamw") {
      optimizer = std::make_unique<nn::AdamW>(params, nn::AdamWOptions{.lr = kLr, .eps = kEps});
    } else if (name == "rmsprop") {
      optimizer = std::make_unique<nn::RMSprop>(params, nn::RMSpropOptions{.lr = kLr, .eps = kEps});
    } else if (name == "lion") {
      optimizer = std::make_unique<nn::Lion>(params, nn::LionOptions{.lr = kLr});
    } else {
      optimizer = std::make_unique<nn::Sgd>(
          params, nn::SgdOptions{.lr = kLr, .momentum = name == "momentum" ? 0.9 : 0});
    }
  }
  Tensors operator()(const Tensors& in) {
    optimizer->zero_grad();
    const Tensor losses = cross_entropy(net(in[0]), in[1]);
    backward(losses);
    optimizer->step(losses);
    return {losses};
  }
  // Weights, running statistics, momenta.
  nn::NamedTensors state() const {
    nn::NamedTensors all = net.state_dict();
    for (nn::NamedTensor& item : optimizer->state_tensors()) all.push_back(std::move(item));
    return all;
  }
};

// The largest number of the momenta of one kind; else 0. The bias before a batch norm has the
// gradient 0, so only that of others says how large the terms are that cancel in it.
double largest_alike(const nn::NamedTensors& state, const std::string& name) {
  const size_t kind = name.find('/');
  double largest = 0;
  for (const nn::NamedTensor& item : state) {
    if (kind == std::string::npos || item.name.compare(0, kind + 1, name, 0, kind + 1) != 0)
      continue;
    for (const double v : item.tensor.to_vector<double>()) largest = std::max(largest, std::abs(v));
  }
  return largest;
}

// Lion's update is a sign, which an error of a gradient may turn: so of its weights it is asked
// that they lie between those that gradients of d less and more make of the state before the step.
struct Range {
  std::string name;
  std::vector<double> less, more;
};
std::vector<Range> ranges_of_lion(
    const nn::Optimizer& before, const nn::Optimizer& eager, double tolerance) {
  double d = 0;
  for (const auto& [_, p] : eager.parameters()) {
    for (const double g : p.grad().to_vector<double>()) d = std::max(d, tolerance * std::abs(g));
  }
  std::vector<Range> ranges;
  for (size_t i = 0; i < eager.parameters().size(); ++i) {
    const auto& [name, p] = eager.parameters()[i];
    const Tensor g = cast(p.grad().to(kCpu), DType::f64);
    ranges.push_back({name, before.after_step(i, g + -d).to_vector<double>(),
        before.after_step(i, g + d).to_vector<double>()});
  }
  return ranges;
}
void expect_between(const Tensor& found, const Range& range, double slack) {
  const std::vector<double> values = found.to_vector<double>();
  for (size_t k = 0; k < values.size(); ++k) {
    const auto [low, high] = std::minmax(range.less[k], range.more[k]);
    EXPECT_GE(values[k], low - slack) << range.name << " at " << k;
    EXPECT_LE(values[k], high + slack) << range.name << " at " << k;
  }
}

void check_steps(const StepCase& c, const char* rules, uint64_t steps, double tolerance) {
  SCOPED_TRACE(cat(c.layers, "\n", c.optimizer, " ", name_of(c.dtype), " on ", c.device.str(),
      ", rules ", rules));
  ImageTraining eager(c), captured(c);
  Step step([&](const Tensors& in) { return captured(in); },
      {.rules = capture::RuleSet(rules),
          .parameters = nn::parameter_visitor(captured.net),
          .measure = false});
  const nn::NamedTensors from = eager.state(), to = captured.state();
  for (uint64_t i = 0; i < steps; ++i) {
    for (size_t t = 0; t < to.size(); ++t) nn::copy_values(to[t].tensor, from[t].tensor, "test");
    const DType type = c.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Tensors in{
        cast(cast(sample_tensor({5, 2, 8, 8}, 10 + i), DType::bf16), type).to(c.device),
        sample_labels(5, 4, 20 + i).to(c.device)};
    const Tensor wanted = eager(in)[0];
    std::vector<Range> ranges;
    if (c.optimizer == std::string("lion"))
      ranges = ranges_of_lion(*captured.optimizer, *eager.optimizer, tolerance);
    const Tensor got = step(in)[0];
    EXPECT_TRUE(test::close(got, wanted, {.of_largest = tolerance})) << "losses, step " << i;
    for (size_t t = 0; t < to.size(); ++t) {
      const Tensor& exact = from[t].tensor;
      const auto range = std::ranges::find(ranges, to[t].name, &Range::name);
      if (range != ranges.end()) {
        expect_between(to[t].tensor, *range, tolerance * kLr);
        continue;
      }
      EXPECT_TRUE(test::close(to[t].tensor, exact,
          {.of_largest = tolerance, .absolute = tolerance * largest_alike(from, to[t].name)}))
          << to[t].name << ", step " << i;
    }
  }
  EXPECT_EQ(step.stats().replays, int64_t(steps) - 2);
}

constexpr const char* kConv = "conv 3 3 pad 1; relu; pool 2; conv 4 3; gelu; flatten; linear 4";
constexpr const char* kBatchNorm =
    "conv 3 3; batchnorm; relu; pool 2; conv 4 2; batchnorm; silu; flatten; linear 4";

// f32 and f64: other orders of sums of some hundred terms, from equal states (docs/TOUR.md).
// bf16: fused and eager differ in up to 16 roundings of u = 2^-8, which is 2 sqrt(16) u by the
// reckoning of bf16_gradients_test.cpp. The eps of Adam and RMSprop is near the gradients, so that
// their updates are no signs of them.
void check_matrix(Device device, const std::vector<const char*>& rule_sets, uint64_t steps) {
  for (const char* layers : {kConv, kBatchNorm}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-5 : 0.03;
      for (const char* optimizer : {"sgd", "momentum", "adam", "adamw", "rmsprop", "lion"}) {
        for (const char* rules : rule_sets)
          check_steps({layers, optimizer, dtype, device}, rules, steps, tolerance);
      }
    }
  }
}

TEST(StepMatrix, CapturedIsEager) {
  check_matrix(kCpu,
      {"none", "all", "all,-weight_grad_update,-conv_act_pool,-conv_act_pool_backward",
          "conv_act,conv_act_backward,weight_bias_grad"},
      3);
}
TEST(StepMatrixSimt, CapturedIsEager) { check_matrix(kSimt, {"all"}, 3); }

}  // namespace
}  // namespace sinter
