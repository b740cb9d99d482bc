// A tensor and its name, and an ordered list of them: parameters, a state dict, optimizer state.
// Names in a list are unique. Values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace sinter::nn {

struct NamedTensor {
  std::string name;  // "0.weight", as in PyTorch
  Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

// The tensor of that name, or nullptr.
inline const Tensor* find(const NamedTensors& list, std::string_view name) {
  for (const NamedTensor& item : list) {
    if (item.name == name) return &item.tensor;
  }
  return nullptr;
}

// Writes the values of `from` over those of `to`, in place, converting between element types; `to`
// keeps its storage. Any devices; `to` is dense, `from` may have any strides. Throws shape if the
// shapes differ. `writer` is named by "changed in place" errors.
void copy_values(const Tensor& to, const Tensor& from, const char* writer);

// Tensors of another element type that share storage as the originals do: two halves of one block
// stay halves of one block. Remembers what it converted, so use one Converter for all tensors that
// may share.
class Converter {
 public:
  Tensor operator()(const Tensor& t, DType dtype);

 private:
  std::vector<std::pair<uint64_t, std::shared_ptr<Storage>>> done_;  // by the uid of the original
};

}  // namespace sinter::nn
