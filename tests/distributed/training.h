// A training run, in f64 if nothing else is said, of which each rank does its part: for the tests
// of data parallelism, which compare it with one process.
#pragma once

#include "nn/net.h"
#include "train/trainer.h"

namespace sinter::distributed {

struct Run {
  std::string what, net;
  Shape image;
  std::string optimizer = "adam";
  bool fused = false;
  int64_t part = 0;  // rows at a time, accumulated for one update; 0: all
  double clip = 0;
  int64_t bucket_bytes = 1024;  // several buckets, of several tensors
  Device device = kCpu;
  DType dtype = DType::f64;
  std::optional<int64_t> ignore_index = {};
};

inline void PrintTo(const Run& run, std::ostream* out) { *out << run.what; }

// Eager and fused, each for an MLP and a CNN, Adam and SGD, accumulated or not.
inline std::vector<Run> all_runs() {
  const std::pair<const char*, Shape> nets[] = {
      {"flatten; linear 16; relu; dropout 0.25; linear 12; relu; linear 5", {1, 3, 4}},
      {"conv 3 3; relu; pool 2; flatten; linear 9; relu; linear 4", {1, 8, 8}}};
  std::vector<Run> runs;
  for (const auto& [net, image] : nets) {
    for (const char* optimizer : {"adam", "sgd"}) {
      for (const bool fused : {false, true}) {
        for (const int64_t part : {0, 4}) {
          const std::string what = str(net[0] == 'f' ? "MLP " : "CNN ", optimizer,
              fused ? " fused" : " eager", part ? " in parts" : " at once");
          runs.push_back({.what = what,
              .net = net,
              .image = image,
              .optimizer = optimizer,
              .fused = fused,
              .part = part,
              .clip = part ? 0.5 : 0.0});
        }
      }
    }
  }
  return runs;
}

// Made while the Communicator of its ranks is current, or none.
class TrainingRun {
 public:
  explicit TrainingRun(const Run& run) : run_(run), net_(run.net, run.image) {
    net_.init_parameters(5);
    if (run.dtype == DType::bf16) {
      net_.enable_bf16();
    } else {
      net_.to(run.dtype);
    }
    net_.to(run.device);
    manual_seed(7);
    const nn::OptimizerChoice& choice = nn::optimizer_named(run.optimizer);
    optimizer_ = choice.make(
        net_.named_parameters(), run.optimizer == "adam" ? 0.002 : 0.05, 0, 0, choice.betas);
    trainer_.emplace(net_, *optimizer_,
        TrainerOptions{.loss = nn::CrossEntropyLoss{0.1, run.ignore_index},
            .fused = run.fused,
            .capture = {.cache_size = 32},
            .clip = run.clip,
            .part = run.part,
            .parallel = {.bucket_bytes = run.bucket_bytes}});
  }

  // Batches of several sizes, also smaller than the number of ranks.
  void train(int steps) {
    constexpr int64_t kRows[] = {11, 8, 3, 16, 9};
    for (int s = 0; s < steps; ++s) {
      const int64_t rows = kRows[s % 5];
      const auto seed = uint64_t(s);
      const Tensor x = sample_tensor({rows, run_.image.numel()}, seed, 0, 1);
      trainer_->step({cast(x, run_.dtype).to(run_.device),
          sample_labels(rows, net_.output()[0], seed + 1).to(run_.device)});
      if (s % 10 == 9 && trainer_->parallel()) trainer_->parallel()->check_equal();
    }
  }

  // All of them, one behind the other.
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const Tensor& param : net_.parameters()) {
      const auto values = param.to_vector<double>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  const capture::Step* captured_step() const { return trainer_->captured_step(); }
  nn::Net& net() { return net_; }
  DataParallel& parallel() { return *trainer_->parallel(); }

 private:
  const Run run_;
  nn::Net net_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::optional<Trainer> trainer_;
};

// After `steps` updates.
inline std::vector<double> train(const Run& run, int steps) {
  TrainingRun training(run);
  training.train(steps);
  return training.weights();
}

}  // namespace sinter::distributed
