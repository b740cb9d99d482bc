// Glu: the gated block down(act(gate(x)) * up(x)), without biases (Shazeer, "GLU variants improve
// transformer", 2020): GeGLU, SwiGLU. gate and up are the two row halves of one storage [2H, I], so
// a rule may run them as one product; the user sees two parameters.
#pragma once

#include "nn/activations.h"
#include "nn/module.h"

// I in, H hidden, O out
namespace sinter::nn {

enum class Gate : uint8_t { gelu, gelu_tanh, silu };

class Glu : public Module {
 public:
  // Sizes >= 1; throws usage.
  Glu(int64_t in_features, int64_t hidden, int64_t out_features, Gate gate = Gate::gelu_tanh);
  // x[.., I] -> [.., O]
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  const Tensor& gate_weight() const { return tensor(0); }  // "gate_proj.weight" [H, I]
  const Tensor& up_weight() const { return tensor(1); }    // "up_proj.weight" [H, I]
  const Tensor& down_weight() const { return tensor(2); }  // "down_proj.weight" [O, H]

 protected:
  void init_own(init::Stream& stream) override;
  bool enable_bf16_own(Converter& convert, DType out) override;

 private:
  Gate gate_;
  DType result_ = DType::f32;
};

}  // namespace sinter::nn
