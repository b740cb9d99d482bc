// Training steps of convolutional nets, of nets with batch norm and of MLPs, captured against eager
// from equal states, step by step: rules x types x optimizers x devices. Two right programs part by
// more over many steps, so that only the states at the start of a step are made equal.
#include <gtest/gtest.h>

#include <set>

#include "core/numbers.h"
#include "nn/net.h"
#include "ops/fused/fused.h"
#include "ops/product/gemm_library.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using capture::Step;

constexpr double kLr = 0.02, kEps = 0.1;

struct Images {
  const char* layers;
  Shape image = {2, 8, 8};
  double clip = 0;
};
struct StepCase {
  Images net;
  const char *optimizer, *rules;
  DType dtype;
  Device device;
  Device reference = kCpu;  // where the eager steps run
};

struct ImageTraining {
  nn::Net net;
  std::unique_ptr<nn::Optimizer> optimizer;
  double clip;

  ImageTraining(const StepCase& c, Device device)
      : net(c.net.layers, c.net.image), clip(c.net.clip) {
    net.init_parameters(5);
    if (c.dtype == DType::bf16) {
      net.enable_bf16();
    } else {
      net.to(c.dtype);
    }
    net.to(device);
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
    if (clip != 0) nn::clip_grad_norm(net.parameters(), clip);
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

double largest_of(const Tensor& t) {
  double largest = 0;
  for (const double v : t.to_vector<double>()) largest = std::max(largest, std::abs(v));
  return largest;
}
// The biases of convolutions before a batch norm, with nothing but convolutions between: "0.bias".
// The norm takes them off again: their gradient is 0 but for what rounding leaves of terms as large
// as those of the weight's.
std::set<std::string> biases_without_effect(const Images& net) {
  std::set<std::string> names;
  const auto layers = parts_of(net.layers, "; ");
  for (size_t i = 0; i < layers.size(); ++i) {
    size_t next = i;
    while (next < layers.size() && layers[next].starts_with("conv")) ++next;
    if (next > i && next < layers.size() && layers[next].starts_with("batchnorm"))
      names.insert(str(i, ".bias"));
  }
  return names;
}
// What a tensor of a list may be off, each by its own numbers; `name` may have a kind before it,
// "momentum/0.bias".
test::Within within_own(const nn::NamedTensors& all, const std::string& name, double tolerance,
    const std::set<std::string>& without_effect) {
  test::Within within{.of_largest = tolerance};
  if (!without_effect.contains(name.substr(name.find('/') + 1))) return within;
  const std::string weight = name.substr(0, name.size() - 4) + "weight";
  for (const nn::NamedTensor& item : all)
    if (item.name == weight) within.absolute = tolerance * largest_of(item.tensor);
  return within;
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

// Weights that have a copy in bf16: it is the rounded weight.
size_t expect_rounded_copies(const nn::Net& net) {
  size_t copies = 0;
  for (const Tensor& p : net.parameters()) {
    const Tensor copy = p.autograd().bf16_copy;
    if (!copy.defined()) continue;
    const NoGrad no_grad;
    EXPECT_EQ(copy.to_vector<float>(), cast(p, DType::bf16).to_vector<float>());
    ++copies;
  }
  return copies;
}

capture::Graph check_steps(const StepCase& c, uint64_t steps = 3) {
  SCOPED_TRACE(str(c.net.layers, "\n", c.optimizer, " ", name_of(c.dtype), " on ", c.device.str(),
      ", rules ", c.rules));
  // f32 and f64: other orders of sums of some hundred terms, from equal states (docs/TOUR.md).
  // bf16: fused and eager differ in up to 16 roundings of u = 2^-8, which is 2 sqrt(16) u by the
  // reckoning of bf16_gradients_test.cpp. The eps of Adam and RMSprop is near the gradients, so
  // that their updates are no signs of them. TF32: the same reckoning with u = 2^-11. The same ops
  // on the same device: the same bits.
  const bool same = c.rules == std::string("none") && c.device == c.reference;
  const double tolerance = same                    ? 0
                           : c.dtype == DType::f64 ? 1e-12
                           : allow_tf32()          ? 0.004
                           : c.dtype == DType::f32 ? 1e-5
                                                   : 0.03;
  ImageTraining eager(c, c.reference), captured(c, c.device);
  Step step([&](const Tensors& in) { return captured(in); },
      {.rules = capture::RuleSet(c.rules),
          .parameters = nn::parameter_visitor(captured.net),
          .measure = false,
          // Of these the third call is recorded once more, which must leave no trace.
          .recheck_every = c.optimizer == std::string("momentum")});
  const nn::NamedTensors from = eager.state(), to = captured.state();
  const std::set<std::string> without_effect = biases_without_effect(c.net);
  for (uint64_t i = 0; i < steps; ++i) {
    SCOPED_TRACE(str("step ", i));
    for (size_t t = 0; t < to.size(); ++t) nn::copy_values(to[t].tensor, from[t].tensor, "test");
    std::vector<int64_t> shape{5};
    for (const int64_t size : c.net.image) shape.push_back(size);
    const Tensor x = cast(cast(sample_tensor(Shape(shape), 10 + i), DType::bf16),
        c.dtype == DType::f64 ? DType::f64 : DType::f32);
    const Tensor labels = sample_labels(5, eager.net.output()[0], 20 + i);
    const auto equal_draws = [&] {
      manual_seed(30 + i);
      restart_random_ops();
    };
    equal_draws();
    const Tensor wanted = eager({x.to(c.reference), labels.to(c.reference)})[0];
    std::vector<Range> ranges;
    if (c.optimizer == std::string("lion") && !same)
      ranges = ranges_of_lion(*captured.optimizer, *eager.optimizer, tolerance);
    std::vector<uint64_t> versions;
    for (const auto& [_, t] : captured.net.state_dict()) versions.push_back(t.storage()->version());
    equal_draws();
    const Tensor got = step({x.to(c.device), labels.to(c.device)})[0];
    EXPECT_EQ(got.device(), c.device);
    EXPECT_TRUE(test::close(got, wanted, {.of_largest = tolerance})) << "losses";
    for (size_t t = 0; t < versions.size(); ++t)
      EXPECT_GT(to[t].tensor.storage()->version(), versions[t]) << to[t].name;
    if (i < 1 || !capture::RuleSet(c.rules).has("weight_grad_update")) {  // else one may be taken
      nn::NamedTensors gradients;
      for (const auto& [name, p] : eager.net.named_parameters())
        gradients.push_back({name, p.grad()});
      for (size_t p = 0; p < gradients.size(); ++p)
        EXPECT_TRUE(test::close(captured.net.parameters()[p].grad(), gradients[p].tensor,
            within_own(gradients, gradients[p].name, tolerance, without_effect)))
            << "gradient of " << gradients[p].name;
    }
    for (size_t t = 0; t < to.size(); ++t) {
      const Tensor& exact = from[t].tensor;
      const auto range = std::ranges::find(ranges, to[t].name, &Range::name);
      if (range != ranges.end()) {
        expect_between(to[t].tensor, *range, tolerance * kLr);
        continue;
      }
      EXPECT_TRUE(
          test::close(to[t].tensor, exact, within_own(from, to[t].name, tolerance, without_effect)))
          << to[t].name;
    }
    EXPECT_EQ(expect_rounded_copies(captured.net), expect_rounded_copies(eager.net));
    EXPECT_EQ(expect_rounded_copies(eager.net) > 0, c.dtype == DType::bf16);
    const StepState mine = read_step_state(captured.optimizer->state()),
                    its = read_step_state(eager.optimizer->state());
    EXPECT_EQ(mine.step, its.step);
    EXPECT_EQ(mine.beta1_power, its.beta1_power);
    EXPECT_EQ(mine.root_scale, its.root_scale);
    EXPECT_EQ(mine.loss_rows, its.loss_rows);
    EXPECT_NEAR(mine.last_loss, its.last_loss, tolerance * std::max(1.0, its.last_loss));
    EXPECT_EQ(mine.ticket, 0u);
  }
  EXPECT_EQ(step.stats().replays, int64_t(steps) - 1);
  EXPECT_EQ(step.stats().rechecks, c.optimizer == std::string("momentum"));
  return step.captured()->fused.graph;
}

const Images kConv{"conv 3 3 pad 1; relu; pool 2; conv 4 3; gelu; flatten; linear 4"},
    kBatchNorm{"conv 3 3; batchnorm; relu; pool 2; conv 4 2; batchnorm; silu; flatten; linear 4"},
    kMlp{"flatten; linear 19; relu; linear 16; relu; linear 10"},
    kClipped{"flatten; linear 19; gelu; dropout 0.2; linear 16; tanh; linear 4", {2, 8, 8}, 0.1};
constexpr const char* kOptimizers[] = {"sgd", "momentum", "adam", "adamw", "rmsprop", "lion"};
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16};

void check_cpu() {
  for (const Images& net : {kConv, kBatchNorm, kMlp, kClipped}) {
    for (const DType dtype : kTypes) {
      for (const char* optimizer : kOptimizers) {
        for (const char* rules :
            {"none", "all", "all,-weight_grad_update,-conv_act_pool,-conv_act_pool_backward",
                "conv_act,conv_act_backward,weight_bias_grad"})
          check_steps({net, optimizer, rules, dtype, kCpu});
      }
    }
  }
}
// The updates are those of the CPU to the bit (tests/ops/device_parity_test.cpp), so that every
// optimizer is tried on one net alone.
void check_device(Device device) {
  for (const Images& net : {kConv, kBatchNorm, kMlp, kClipped}) {
    for (const DType dtype : kTypes) {
      for (const std::string optimizer : kOptimizers) {
        if (net.layers == kMlp.layers || optimizer == "momentum" || optimizer == "adam")
          check_steps({net, optimizer.c_str(), "all", dtype, device});
      }
      check_steps({net, "adam", "all,-weight_grad_update,-row_chain", dtype, device});
      // Op by op: against the device's own eager steps, and the CPU's.
      for (const Device reference : {device, kCpu})
        check_steps({net, "adam", "none", dtype, device, reference});
    }
  }
  // The default net, in three launches of each kind.
  const Images mnist{"flatten; linear 256; relu; linear 128; relu; linear 10", {1, 28, 28}};
  for (const DType dtype : {DType::f32, DType::bf16})
    check_steps({mnist, "sgd", "all", dtype, device});
  const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
  check_steps({mnist, "sgd", "all", DType::f32, device, device});
}

TEST(StepMatrix, CapturedIsEager) { check_cpu(); }
TEST(StepMatrixSimt, CapturedIsEager) { check_device(kSimt); }
using StepMatrixGpu = test::GpuTest;
TEST_F(StepMatrixGpu, CapturedIsEager) { check_device(test::kCuda); }

// What is fused of LeNet-5 with ReLU and max pooling, or pooling and ReLU; of two convolutions
// before one pooling; and of one with a norm behind it. Lenet pools with ReLU, and never stores a
// convolution; pooling has ReLU's forward and backward in it, whatever is in front of them.
void check_fusions(Device device) {
  const auto graph_of = [&](const char* layers) {
    return check_steps({{layers, {1, 28, 28}}, "momentum", "all", DType::f64, device});
  };
  for (const char* layers :
      {"conv 6 5 pad 2; relu; pool 2; conv 16 5; relu; pool 2; flatten; linear 10",
          "conv 6 5 pad 2; pool 2; relu; conv 16 5; pool 2; relu; flatten; linear 10"}) {
    EXPECT_EQ(ops_of(graph_of(layers)),
        "conv_act_pool conv_act_pool linear softmax_xent matmul conv_act_pool_backward "
        "conv_act_pool_backward multi_tensor_update weight_grad_update");
  }
  const capture::Graph deep =
      graph_of("conv 5 3; relu; conv 4 3; relu; pool 2; flatten; linear 10");
  EXPECT_EQ(ops_of(deep),
      "conv_act conv_act_pool linear softmax_xent matmul conv_act_pool_backward "
      "conv_act_backward multi_tensor_update weight_grad_update");
  // Note [ReLU between two convolutions]
  for (const capture::Node& node : deep.nodes) {
    if (node.op == &kConvActBackwardOp) {
      EXPECT_EQ(node.in[2], -1);
    } else if (node.op == &kConvActPoolBackwardOp) {
      EXPECT_TRUE(node.attrs.as<Conv2dGradAttrs>().relu);
    }
  }
  const std::string normed =
      ops_of(graph_of("conv 5 3; conv 4 3; batchnorm; relu; pool 2; flatten; linear 10"));
  EXPECT_TRUE(
      normed.starts_with("conv2d conv2d batch_norm2d max_pool2d linear softmax_xent matmul "
                         "max_pool2d_backward "))
      << normed;
}
TEST(StepMatrix, FusesConvolutions) { check_fusions(kCpu); }
TEST(StepMatrixSimt, FusesConvolutions) { check_fusions(kSimt); }
TEST_F(StepMatrixGpu, FusesConvolutions) { check_fusions(test::kCuda); }

}  // namespace
}  // namespace sinter
