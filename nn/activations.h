// Modules without parameters: the activations, one line each (formulas: ops/pointwise.h), and
// Dropout.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "nn/module.h"
#include "ops/ops.h"

namespace sinter::nn {

// A pointwise function as a module.
class Activation : public Module {
 public:
  Activation(std::string text, std::function<Tensor(const Tensor&)> function)
      : text_(std::move(text)), function_(std::move(function)) {}
  Tensor forward(const Tensor& x) override { return function_(x); }
  std::string describe() const override { return text_; }

 private:
  std::string text_;
  std::function<Tensor(const Tensor&)> function_;
};

enum class GeluForm : uint8_t { erf, tanh };
inline Tensor gelu(const Tensor& x, GeluForm form) {
  return form == GeluForm::erf ? sinter::gelu(x) : gelu_tanh(x);
}

// A function without settings, and its name in print.
template <size_t N>
struct Text {
  consteval Text(const char (&text)[N]) {
    std::copy_n(text, N, chars);
  }  // NOLINT: a template argument
  char chars[N];
};
template <Text kName, Tensor (*kFunction)(const Tensor&)>
struct Pointwise : Activation {
  Pointwise() : Activation(kName.chars, kFunction) {}
};
using Relu = Pointwise<"ReLU", relu>;
using Silu = Pointwise<"SiLU", silu>;
using Sigmoid = Pointwise<"Sigmoid", sigmoid>;
using Tanh = Pointwise<"Tanh", sinter::tanh>;
using Softplus = Pointwise<"Softplus", softplus>;
struct Gelu : Activation {
  explicit Gelu(GeluForm form = GeluForm::erf)
      : Activation(form == GeluForm::erf ? "GELU" : "GELU(tanh)",
            [form](const Tensor& x) { return gelu(x, form); }) {}
};
struct LeakyRelu : Activation {
  explicit LeakyRelu(double slope = 0.01)
      : Activation(cat("LeakyReLU(", slope, ")"),
            [slope](const Tensor& x) { return leaky_relu(x, slope); }) {}
};
struct Elu : Activation {
  explicit Elu(double alpha = 1)
      : Activation(cat("ELU(", alpha, ")"), [alpha](const Tensor& x) { return elu(x, alpha); }) {}
};

// "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus", "leaky_relu", "elu"; throws
// usage for another word.
std::shared_ptr<Module> make_activation(std::string_view name);
std::span<const std::string_view> activation_names();

// In training, zeroes each element with probability p and scales the rest by 1 / (1 - p); in
// evaluation the identity.
class Dropout : public Module {
 public:
  // 0 <= p < 1; throws usage.
  explicit Dropout(double p);
  Tensor forward(const Tensor& x) override { return is_training() && p_ > 0 ? dropout(x, p_) : x; }
  std::string describe() const override { return cat("Dropout(", p_, ")"); }

 protected:
  bool depends_on_training() const override { return true; }

 private:
  double p_;
};

}  // namespace sinter::nn
