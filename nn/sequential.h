// Sequential: modules one after the other, numbered from 0, as in PyTorch.
//
//   Sequential net{Linear(784, 128), Relu(), Linear(128, 10)};
//
// Write braces, not parentheses: only with braces does C++ make the modules from left to right, so
// that each draws the same initial values with every compiler.
#pragma once

#include <concepts>

#include "core/error.h"
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
  // Negative: from the end. Throws usage for a layer that is not there.
  Module& operator[](int64_t i) const {
    const auto n = int64_t(size());
    SINTER_CHECK(i >= -n && i < n, usage,
        sinter::str("Sequential: no such layer: ", i, " of ", n,
            n > 0 ? sinter::str("; allowed ", -n, "..", n - 1) : "; it has none"));
    return child(size_t(i < 0 ? i + n : i));
  }

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
