// A small classifier and its training step, for the tests of capture/.
#pragma once

#include "nn/clip.h"
#include "nn/mlp.h"
#include "ops/ops.h"
#include "tests/closeness.h"
#include "train/trainer.h"

namespace sinter {

inline constexpr Device kSimt{Device::Type::simt, 0};

// "linear_act matmul ..": the names of a graph's ops in order.
inline std::string ops_of(const capture::Graph& graph) {
  std::string names;
  for (const capture::Node& node : graph.nodes) names += str(names.empty() ? "" : " ", node.text());
  return names;
}

struct TrainOptions {
  std::vector<int64_t> sizes{784, 256, 128, 10};
  std::string activation = "relu", optimizer = "adam";
  double dropout = 0, clip = 0, momentum = 0.9;
  DType dtype = DType::f32;
  bool onecycle = false;
  Device device = kCpu;
};

// Model, optimizer and step function with their own state; two of them from equal options start
// equal.
struct Training {
  nn::Mlp net;
  std::unique_ptr<nn::Optimizer> optimizer;
  TrainOptions options;
  std::optional<Trainer> trainer;

  explicit Training(const TrainOptions& o = {})
      : net(o.sizes, {.activation = o.activation, .dropout = o.dropout, .seed = 5}), options(o) {
    if (o.dtype == DType::bf16) {
      net.enable_bf16();
    } else {
      net.to(o.dtype);
    }
    net.to(o.device);
    const nn::OptimizerChoice& choice = nn::optimizer_named(o.optimizer);
    optimizer = choice.make(net.named_parameters(), o.optimizer == "sgd" ? 0.05 : 0.002,
        choice.weight_decay, o.momentum, choice.betas);
    trainer.emplace(net, *optimizer, TrainerOptions{.fused = false, .clip = o.clip});
  }

  Tensors operator()(const Tensors& in) { return function()(in); }
  capture::Step::Function function() { return trainer->function(); }
  // Nothing is measured, on a card neither: the tests ask for the rules' own counts.
  capture::StepOptions step_options(const char* rules = "all") {
    return {.rules = capture::RuleSet(rules),
        .parameters = nn::parameter_visitor(net),
        .measure = false};
  }
};

inline Tensors batch_of(const TrainOptions& o, int64_t rows, uint64_t seed) {
  const Tensor x = sample_tensor({rows, o.sizes.front()}, seed, 0, 1);
  return {
      cast(x, o.dtype).to(o.device), sample_labels(rows, o.sizes.back(), seed + 1).to(o.device)};
}

}  // namespace sinter
