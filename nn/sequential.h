// Sequential: modules one after the other, numbered from 0, as in PyTorch.
//
//   Sequential net{Linear(784, 128), Relu(), Linear(128, 10)};
//
// Write braces: only there are the modules made from left to right, so that each gets its initial
// values with every compiler.
#pragma once

#include <concepts>

#include "nn/module.h"

namespace sinter::nn {

class Sequential : public Module {
 public:
  Sequential() = default;
  template <std::derived_from<Module>... Ms>
    requires(sizeof...(Ms) > 0)
  explicit Sequential(Ms... modules) {
    (append(std::make_shared<Ms>(std::move(modules))), ...);
  }
  template <class M> std::shared_ptr<M> append(std::shared_ptr<M> module) {
    return add(std::to_string(num_children()), std::move(module));
  }
  size_t size() const { return num_children(); }
  Module& operator[](size_t i) const { return child(i); }

  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (size_t i = 0; i < size(); ++i) y = child(i)(y);
    return y;
  }
  std::string describe() const override { return "Sequential"; }

 protected:
  bool is_container() const override { return true; }
};

}  // namespace sinter::nn
