// What the programs of bench/ share: the training step that they time, the time of one call against
// its budget, the words of a command line, and a main that reports an Error.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "examples/cli/command_line.h"
#include "measure/timer.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "nn/optim.h"
#include "nn/state_dict.h"
#include "profiler/stats.h"

namespace sinter::bench {

struct TrainingOptions {
  std::vector<int64_t> sizes{784, 256, 128, 10};
  std::string layers;              // in their place, if given: of nn::Net for 28 x 28
  std::string optimizer = "adam";  // of nn::optimizers()
  double lr = 0.001, momentum = 0.9;
  DType dtype = DType::f32;  // bf16: with f32 weights beside
  Device device = kCpu;
};

// A classifier, its optimizer, and the step that trains it. Stays where it is: a capture keeps its
// address.
class Training {
 public:
  explicit Training(const TrainingOptions& options) : model(model_of(options)), net(*model) {
    if (options.dtype == DType::bf16) {
      net.enable_bf16();
    } else {
      net.to(options.dtype);
    }
    net.to(options.device);
    const nn::OptimizerChoice& choice = nn::optimizer_named(options.optimizer);
    optimizer_ =
        choice.make(net.named_parameters(), options.lr, choice.weight_decay, options.momentum);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // The batch: images and labels. Returns the losses.
  Tensors operator()(const Tensors& batch) {
    optimizer_->zero_grad();
    const Tensor losses = cross_entropy(net(batch[0]), batch[1]);
    backward(losses);
    optimizer_->step(losses);
    return {losses};
  }
  std::unique_ptr<capture::Step> captured(
      const std::string& rules = "all", std::optional<bool> measure = {}) {
    return std::make_unique<capture::Step>([this](const Tensors& batch) { return (*this)(batch); },
        capture::StepOptions{.rules = capture::RuleSet(rules),
            .parameters = nn::parameter_visitor(net),
            .measure = measure});
  }

  // As before the first step, with these weights.
  void restart(const nn::NamedTensors& weights) {
    nn::load_state_dict(net, weights);
    for (const auto& [name, t] : optimizer_->state_tensors())
      nn::copy_values(t, Tensor::zeros(t.shape(), t.dtype(), t.device()), name.c_str());
    optimizer_->set_steps(0);
  }

  const std::unique_ptr<nn::Module> model;
  nn::Module& net;

 private:
  static std::unique_ptr<nn::Module> model_of(const TrainingOptions& options) {
    if (options.layers.empty()) return std::make_unique<nn::Mlp>(options.sizes);
    auto made = std::make_unique<nn::Net>(options.layers, Shape{1, 28, 28});
    made->init_parameters(1);
    return made;
  }
  std::unique_ptr<nn::Optimizer> optimizer_;
};

// Made-up images and labels.
inline Tensors random_batch(int64_t rows, int64_t features, DType dtype = DType::f32) {
  return {cast(sample_tensor({rows, features}, 3, 0, 1), dtype), sample_labels(rows, 10, 4)};
}

// Median ns of one body(), over batches of `calls`.
template <class F> double ns_per_call(int batches, int calls, F&& body) {
  std::vector<double> samples;
  for (int b = 0; b < batches; ++b) {
    const measure::Timer timer;
    for (int i = 0; i < calls; ++i) {
      body();
      asm volatile("" ::: "memory");  // keeps the loop, and keeps it a loop
    }
    samples.push_back(timer.ns() / calls);
  }
  return profiler::median(samples);
}

// Prints a figure beside its budget, and says whether it keeps it.
inline bool within_budget(
    const std::string& what, double value, double limit, const char* unit, bool at_least = false) {
  const bool ok = at_least ? value >= limit : value <= limit;
  fmt::print("{:<44} {:8.2f} {}  (budget {}{:.3g})  {}\n", what, value, unit, at_least ? ">= " : "",
      limit, ok ? "ok" : "MISSED");
  return ok;
}

// The flags, and words that are none, from the command line; false after --help, which it prints.
inline bool read_flags(const char* name, cli::Flags& flags, int argc, char** argv,
    std::vector<std::string>* inputs = nullptr) {
  cli::Program program{.name = name};
  program.commands.push_back(
      {.name = name, .flags = std::move(flags), .inputs = inputs, .inputs_name = "FILE.."});
  return cli::read_words(program, argc, argv);
}

// For main: the exit status of run(argc, argv), or 1 after an Error.
inline int run_reporting_errors(int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}

}  // namespace sinter::bench
