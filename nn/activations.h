// Modules without parameters: the activations (formulas and list: ops/pointwise/pointwise.h), and
// Dropout.
#pragma once

#include <functional>
#include <span>

#include "nn/module.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace sinter::nn {

// A function as a module.
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

// The layers that the list in ops/pointwise/pointwise.h makes: nn::Relu, nn::Gelu, nn::GeluTanh,
// ..; with a number nn::LeakyRelu(slope), nn::Elu(alpha).
#define SINTER_LAYER(function, Struct, text)         \
  struct Struct : Activation {                       \
    Struct() : Activation(text, sinter::function) {} \
  };
#define SINTER_NUMBERED_LAYER(function, Struct, text)                                    \
  struct Struct : Activation {                                                           \
    static constexpr double kDefault = pointwise::Struct().*pointwise::Struct::number(); \
    explicit Struct(double number = kDefault)                                            \
        : Activation(sinter::str(text, "(", number, ")"),                                \
              [number](const Tensor& x) { return sinter::function(x, number); }) {}      \
  };
SINTER_ACTIVATIONS(SINTER_LAYER, SINTER_NUMBERED_LAYER)
#undef SINTER_LAYER
#undef SINTER_NUMBERED_LAYER

// By the function's name: "relu", "gelu_tanh", ..; throws usage for another word.
std::shared_ptr<Module> make_activation(std::string_view name);
std::span<const std::string_view> activation_names();

// In training, zeroes each element with probability p and scales the rest by 1 / (1 - p); in
// evaluation the identity.
class Dropout : public Module {
 public:
  // 0 <= p < 1; throws usage.
  explicit Dropout(double p) : p_(p) {
    SINTER_CHECK(p >= 0 && p < 1, usage,
        sinter::str("Dropout: p out of range: ", p, "; allowed 0 <= p < 1"));
  }
  Tensor forward(const Tensor& x) override { return is_training() && p_ > 0 ? dropout(x, p_) : x; }
  std::string describe() const override { return sinter::str("Dropout(", p_, ")"); }

 protected:
  bool depends_on_training() const override { return true; }

 private:
  double p_;
};

}  // namespace sinter::nn
