// What a thread is doing: which recorders listen, where in the module tree it is, whether host
// reads are allowed. One per thread, so nothing here is shared; the tape and the capture hang on it
// through ops::Recorder.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sinter {

class Recorder;  // ops/op.h

// Where in a training step a thread is.
enum class Phase : uint8_t { none, forward, backward, optimizer };

struct Context {
  static Context& current();
  // `setup` runs on the context of this thread now and on those of threads to come (autograd hangs
  // its tape in).
  static void on_create(void (*setup)(Context&));

  bool grad_enabled = true;                    // off inside no_grad
  const char* host_reads_forbidden = nullptr;  // set to the reason inside a captured step
  // Off: ops give meta tensors, whatever they are called with, and the profiler looks away. So a
  // step is recorded without being done (capture/recording.h).
  bool launches = true;
  std::vector<Recorder*> recorders;  // told about every op, in this order (tape, capture, anomaly)
  // Of the module whose forward runs, or whose gradients are made: "MLP / layers.2 / Linear(512 ->
  // 256)", or "". Such a path lives as long as the process.
  const char* module = "";
  Phase phase = Phase::none;
  std::vector<const void*> module_inputs;  // Tensor::id() of what each module was called with
};

// What this thread runs while it lives belongs to the module of that path.
class ModulePath {
 public:
  explicit ModulePath(const char* path) : before_(std::exchange(Context::current().module, path)) {}
  ~ModulePath() { Context::current().module = before_; }
  ModulePath(const ModulePath&) = delete;
  ModulePath& operator=(const ModulePath&) = delete;

 private:
  const char* before_;
};

// The same for a Module's forward, with its input.
class ModuleScope : ModulePath {
 public:
  ModuleScope(const char* path, const void* input) : ModulePath(path) {
    Context::current().module_inputs.push_back(input);
  }
  ~ModuleScope() { Context::current().module_inputs.pop_back(); }
};

}  // namespace sinter
