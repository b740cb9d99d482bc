// A training run, in f64 if nothing else is said, of which each rank does its part: for the tests
// of data parallelism, which compare it with one process.
#pragma once

#include "capture/step.h"
#include "distributed/data_parallel.h"
#include "nn/clip.h"
#include "nn/net.h"
#include "nn/optim.h"
#include "ops/ops.h"

namespace sinter::distributed {

struct Run {
  std::string what, net;
  Shape image;
  std::string optimizer = "adam";
  bool fused = false;
  int64_t parts = 1;  // batches that are accumulated for one update
  double clip = 0;
  int64_t bucket_bytes = 1024;  // several buckets, of several tensors
  Device device = kCpu;
  DType dtype = DType::f64;
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
        for (const int64_t parts : {1, 3}) {
          const std::string what = cat(net[0] == 'f' ? "MLP " : "CNN ", optimizer,
              fused ? " fused" : " eager", " in ", parts, " parts");
          runs.push_back({.what = what,
              .net = net,
              .image = image,
              .optimizer = optimizer,
              .fused = fused,
              .parts = parts,
              .clip = parts > 1 ? 0.5 : 0.0});
        }
      }
    }
  }
  return runs;
}

class TrainingRun {
 public:
  TrainingRun(const Run& run, Communicator* ranks) : run_(run), net_(run.net, run.image) {
    net_.init_parameters(5);
    if (run.dtype == DType::bf16) {
      net_.enable_bf16();
    } else {
      net_.to(run.dtype);
    }
    net_.to(run.device);
    manual_seed(7);
    parallel_.emplace(net_, ranks, DataParallelOptions{.bucket_bytes = run.bucket_bytes});
    if (run.optimizer == "adam")
      optimizer_ =
          std::make_unique<nn::Adam>(net_.named_parameters(), nn::AdamOptions{.lr = 0.002});
    if (run.optimizer == "sgd")
      optimizer_ = std::make_unique<nn::Sgd>(net_.named_parameters(), nn::SgdOptions{.lr = 0.05});
    if (run.fused)
      step_ = std::make_unique<capture::Step>([this](const Tensors& in) { return step(in); },
          capture::StepOptions{.parameters = nn::parameter_visitor(net_),
              .mode = [this] { return rows_; },
              .cache_size = 32});
  }

  // Batches of several sizes, also smaller than the number of ranks.
  void train(int steps) {
    constexpr int64_t kRows[] = {11, 8, 3, 16, 9};
    for (int s = 0; s < steps; ++s) {
      rows_ = kRows[s % 5];
      const Tensors in = own_rows(static_cast<uint64_t>(s));
      if (step_) {
        (*step_)(in);
      } else {
        step(in);
      }
      if (s % 10 == 9) parallel_->check_equal();
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
  const capture::Step* captured_step() const { return step_.get(); }
  nn::Net& net() { return net_; }
  DataParallel& parallel() { return *parallel_; }

 private:
  int64_t part_rows(int64_t part) const {
    return rows_of_rank(rows_, static_cast<int>(part), static_cast<int>(run_.parts)).size();
  }
  RowRange begin_part(int64_t part) {
    return parallel_->begin_batch(part_rows(part), {.of = rows_, .last = part + 1 == run_.parts});
  }

  // This rank's rows of each part, one behind the other; nothing, if it has none.
  Tensors own_rows(uint64_t seed) {
    const Tensor x =
        cast(sample_tensor({rows_, run_.image.numel()}, seed, 0, 1), run_.dtype).to(run_.device);
    const Tensor labels = sample_labels(rows_, net_.output()[0], seed + 1).to(run_.device);
    Tensors images, own_labels;
    for (int64_t part = 0, at = 0; part < run_.parts; at += part_rows(part++)) {
      const RowRange mine = begin_part(part);
      if (mine.size() == 0) continue;
      images.push_back(slice(x, 0, at + mine.begin, at + mine.end));
      own_labels.push_back(slice(labels, 0, at + mine.begin, at + mine.end));
    }
    if (images.empty()) return {};
    return {cat(images), cat(own_labels)};
  }

  Tensors step(const Tensors& in) {
    optimizer_->zero_grad();
    Tensors losses;
    for (int64_t part = 0, at = 0; part < run_.parts; ++part) {
      const RowRange mine = begin_part(part);
      if (mine.size() == 0) {
        parallel_->backward({});
        continue;
      }
      const int64_t end = at + mine.size();
      const Tensor loss =
          cross_entropy(net_(slice(in[0], 0, at, end)), slice(in[1], 0, at, end), 0.1);
      parallel_->backward(loss);
      losses.push_back(detach(loss));
      at = end;
    }
    if (run_.clip > 0) nn::clip_grad_norm(net_.parameters(), run_.clip);
    const Tensor all = losses.empty() ? Tensor() : losses.size() == 1 ? losses[0] : cat(losses);
    optimizer_->step(all);
    return all.defined() ? Tensors{all} : Tensors{};
  }

  const Run run_;
  nn::Net net_;
  std::optional<DataParallel> parallel_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<capture::Step> step_;
  int64_t rows_ = 0;
};

// After `steps` updates.
inline std::vector<double> train(const Run& run, Communicator* ranks, int steps) {
  TrainingRun training(run, ranks);
  training.train(steps);
  return training.weights();
}

}  // namespace sinter::distributed
