// A tensor and its name, and an ordered list of them: parameters, a state dict, optimizer state.
// Names in a list are unique. Values.
#pragma once

#include <span>
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

// The place of `name` among those of things that a user chooses; throws usage for another word.
// `subject` begins the message: "activation: unknown name: rulu; nearest is relu".
size_t place_of(
    const char* subject, std::string_view name, std::span<const std::string_view> names);

// Writes the values of `from` over those of `to`, in place, converting between element types; `to`
// keeps its storage. Any devices; `to` is dense, `from` may have any strides. Throws shape if the
// shapes differ. `writer` is named by "changed in place" errors.
void copy_values(const Tensor& to, const Tensor& from, const char* writer);

// Tensors of another element type that share storage as the originals do: two halves of one block
// stay halves of one block, and what is tied stays so. Remembers what it converted, so use one
// Converter for all tensors that may share.
class Converter {
 public:
  Tensor operator()(const Tensor& t, DType dtype);

 private:
  std::vector<std::pair<Tensor, Tensor>> done_;  // original, converted
};

}  // namespace sinter::nn
