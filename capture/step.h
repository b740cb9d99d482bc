// Step: a callable that does a whole training step (or a forward pass), recorded, fused and replayed.
//
//   capture::Step step([&](const Tensors& in) { opt.zero_grad(); Tensor loss = cross_entropy(net(in[0]), in[1]); backward(loss);
//                                               opt.step(loss); return Tensors{loss}; }, {.parameters = ..});
//   step({x, labels});
//
// Per key (shapes, types, devices, strides, the caller's mode) calls 1 and 2 run eagerly and are recorded; if the two graphs agree, call 3
// replays the fused graph, else the difference is the error. Guards are checked at every call: one that fails says which, and the step is
// captured again. Results of a replay are overwritten by the next. Not thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "capture/executor.h"
#include "capture/rules.h"

namespace sinter::capture {

using ParameterVisitor = std::function<void(const Tensor&)>;

struct StepOptions {
  RuleSet rules;
  // Calls the visitor for every parameter, always in one order. Guarded: their number, storage and requires_grad. Their .grad() is a result.
  std::function<void(const ParameterVisitor&)> parameters;
  // Another key for another answer: the training flag, say.
  std::function<int64_t()> mode;
  size_t cache_size = 8;   // keys kept; the one not used for longest goes
  // Time each fused group against its parts and keep the parts where fusing is slower; on CUDA products by cuBLASLt against own kernels too.
  bool measure = false;
  // What measuring kept unfused in an earlier run's first captures: taken, not measured again.
  std::vector<Refused> choices = {};
  bool cuda_graph = true;  // replay as one CUDA graph; off: as a list of launches, which a profiler can look into
};

struct StepStats {
  int64_t calls = 0, recordings = 0, captures = 0, replays = 0, evictions = 0;
  std::vector<std::string> misses;  // guard misses, in words; the last 16
  double capture_ms = 0;            // rewriting, planning, measuring
};

// One captured key.
struct Captured {
  Graph recorded;
  Rewriter fused;
  std::unique_ptr<Executor> executor;
  // Parameters and what their .grad() is after a replay: a tensor, or the rule that consumed it.
  struct Gradient {
    Tensor param, grad;
    const char* taken_by;
  };
  std::vector<Gradient> gradients;
};

class Step {
 public:
  using Function = std::function<Tensors(const Tensors&)>;
  explicit Step(Function function, StepOptions options = {});
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Throws what the function throws, and state if the two recordings differ. The results stay valid until the next call.
  const Tensors& operator()(const Tensors& inputs);
  const StepStats& stats() const { return stats_; }
  // The capture that was called most, or nullptr while there is none.
  const Captured* captured() const;
  // What measuring kept unfused, per capture in their order; empty without `measure`.
  const std::vector<Refused>& choices() const { return choices_; }
  // Forgets all captures.
  void reset();

 private:
  struct Entry;
  struct Guarded {
    Tensor tensor;
    uint64_t storage;
    bool requires_grad;
  };
  Entry& entry_for(const Tensors& inputs);
  std::string failed_guard();
  void run_recorded(Entry& entry, const Tensors& inputs);
  void capture(Entry& entry);

  Function function_;
  StepOptions options_;
  StepStats stats_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Guarded> guarded_;
  std::vector<Refused> choices_;
  Entry* last_ = nullptr;
  Tensors results_;  // of a recorded call
  uint64_t clock_ = 0;
};

}  // namespace sinter::capture
