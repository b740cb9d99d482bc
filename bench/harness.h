// What the programs of bench/ share: the training step that they time, and their main.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/app.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "train/trainer.h"

namespace sinter::bench {

struct TrainingOptions {
  std::vector<int64_t> sizes{784, 256, 128, 10};
  std::string model = "mlp";       // or lenet or cnn, for 28 x 28 and without dropout
  std::string optimizer = "adam";  // of nn::optimizers()
  double lr = 0.001, momentum = 0.9;
  DType dtype = DType::f32;  // bf16: with f32 weights beside
  Device device = kCpu;
};

// A classifier and its optimizer, as a trainer.
inline std::unique_ptr<Trainer> make_trainer(
    const TrainingOptions& options, TrainerOptions how = {}) {
  std::shared_ptr<nn::Module> model;
  if (options.model == "mlp") {
    model = std::make_shared<nn::Mlp>(options.sizes);
  } else {
    std::string layers = str(options.model == "lenet" ? nn::kLenetLayers : nn::kCnnLayers, 10);
    for (size_t at; (at = layers.find("dropout ")) != std::string::npos;)
      layers.erase(at, layers.find(' ', layers.find(';', at)) + 1 - at);
    model = std::make_shared<nn::Net>(layers, Shape{1, 28, 28});
    model->init_parameters(1);
  }
  if (options.dtype == DType::bf16) {
    model->enable_bf16();
  } else {
    model->to(options.dtype);
  }
  model->to(options.device);
  const nn::OptimizerChoice& choice = nn::optimizer_named(options.optimizer);
  return std::make_unique<Trainer>(model,
      choice.make(model->named_parameters(), options.lr, choice.weight_decay, options.momentum,
          choice.betas),
      std::move(how));
}

// Made-up images and labels.
inline Tensors random_batch(int64_t rows, int64_t features, DType dtype = DType::f32) {
  return {cast(sample_tensor({rows, features}, 3, 0, 1), dtype), sample_labels(rows, 10, 4)};
}

// For main: a program of one command, to which `setup` gives flags and run().
inline int run_program(const char* name, int argc, char** argv,
    std::function<void(cli::App& app, cli::Command& command)> setup) {
  cli::App app(name, "");
  app.common().device = "cpu";  // unless --device says another
  app.add(name, "", std::move(setup));
  return app.main(argc, argv);
}

}  // namespace sinter::bench
