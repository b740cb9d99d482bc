// Loading weights by name: strict, all or nothing, in place (the parameters keep their storage, so
// a captured step stays valid).
//
// Keys must be the same; only the prefix module., which PyTorch's DataParallel puts before all of
// them, is dropped. What is left over is an error that lists the difference: a file whose layers
// have other names is renamed by who knows them, as a NamedTensor's name is a text. Of tied weights
// one name is enough: PyTorch's safetensors.torch.save_model() writes only one. Used by the
// programs for checkpoints and by users for their own state dicts.
#pragma once

#include <string>

#include "nn/module.h"
#include "nn/named_tensor.h"

namespace sinter::nn {

struct LoadOptions {
  bool same_keys_only = false;        // resuming: module. stays, too
  std::string source = "state dict";  // what `from` is, for messages: the path of the file
  std::string hint = "";              // of the error
};

// Copies the values of `from` into `to`. Returns what happened in a line: "same keys" or "dropped
// the prefix module.", each also with "; converted bf16 to f32". Throws checkpoint; then nothing
// was changed.
std::string load_state_dict(
    const NamedTensors& to, const NamedTensors& from, const LoadOptions& options = {});
inline std::string load_state_dict(
    const Module& to, const NamedTensors& from, const LoadOptions& options = {}) {
  return load_state_dict(to.state_dict(), from, options);
}

// What model a state dict is, by its shapes: "mlp 784-256-128-10", "linear 784-10", "geglu
// 784-512-10", or "12 tensors".
std::string architecture(const NamedTensors& state_dict);

}  // namespace sinter::nn
