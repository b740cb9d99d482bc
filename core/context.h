// What a thread is doing: which recorders listen, where in the module tree it is, whether host
// reads are allowed. One per thread, so nothing here is shared; the tape and the capture hang on it
// through ops::Recorder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sinter {

class Recorder;  // ops/op.h

// Which library multiplies matrices on the CPU; process-wide, for comparison.
enum class GemmBackend : uint8_t { onednn, eigen };

struct Context {
  static Context& current();
  // `setup` runs on the context of this thread now and on those of threads to come (autograd hangs
  // its tape in).
  static void on_create(void (*setup)(Context&));

  bool grad_enabled = true;                    // off inside no_grad
  bool keep_paths = false;                     // anomaly mode: the tape remembers module paths
  const char* host_reads_forbidden = nullptr;  // set to the reason inside a captured step
  std::vector<Recorder*> recorders;  // told about every op, in this order (tape, capture, anomaly)
  std::vector<const std::string*>
      module_labels;  // "MLP", "layers.2", "Linear(512 -> 256)": from the outside in
  std::vector<const void*> module_inputs;  // Tensor::id() of what each of them was called with

  // "MLP / layers.2 / Linear(512 -> 256)", or "".
  std::string module_path() const;
};

// Pushes a label for the scope of a Module's forward.
class ModuleScope {
 public:
  ModuleScope(const std::string& label, const void* input) {
    Context::current().module_labels.push_back(&label);
    Context::current().module_inputs.push_back(input);
  }
  ~ModuleScope() {
    Context::current().module_labels.pop_back();
    Context::current().module_inputs.pop_back();
  }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;
};

}  // namespace sinter
