// Glu: the gated block down(act(gate(x)) * up(x)), without biases (Shazeer, "GLU variants improve
// transformer", 2020): GeGLU, SwiGLU. gate and up are the two row halves of one storage [2H, I], so
// a rule may run them as one product; the user sees two parameters.
#pragma once

#include "nn/linear.h"

// I in, H hidden, O out
namespace sinter::nn {

enum class Gate : uint8_t { gelu, gelu_tanh, silu };

class Glu : public ProductLayer {
 public:
  // Sizes >= 1; throws usage.
  Glu(int64_t in_features, int64_t hidden, int64_t out_features, Gate gate = Gate::gelu_tanh)
      : gate_(gate) {
    SINTER_CHECK(in_features > 0 && hidden > 0 && out_features > 0, usage,
        sinter::str("Glu: sizes must be 1 or more: in ", in_features, ", hidden ", hidden, ", out ",
            out_features));
    const Tensor both = Tensor::empty({2 * hidden, in_features});
    add_parameter("gate_proj.weight", slice(both, 0, 0, hidden));
    add_parameter("up_proj.weight", slice(both, 0, hidden, 2 * hidden));
    add_parameter("down_proj.weight", Tensor::empty({out_features, hidden}));
    ProductLayer::init_own(init::default_stream());
  }
  // x[.., I] -> [.., O]
  Tensor forward(const Tensor& x) override {
    const bool mixed = gate_weight().autograd().bf16_copy.defined();
    const Tensor in = mixed && x.dtype() != DType::bf16 ? cast(x, DType::bf16) : x;  // for both
    const Tensor gate = linear_mixed(in, gate_weight(), {}, DType::bf16),
                 up = linear_mixed(in, up_weight(), {}, DType::bf16);
    const Tensor open = gate_ == Gate::silu   ? silu(gate)
                        : gate_ == Gate::gelu ? gelu(gate)
                                              : gelu_tanh(gate);
    return linear_mixed(open * up, down_weight(), {}, result_);
  }
  std::string describe() const override {
    constexpr const char* kName[] = {"gelu", "gelu tanh", "silu"};
    return sinter::str("GLU(", gate_weight().size(1), " -> ", gate_weight().size(0), " -> ",
        down_weight().size(0), ", ", kName[int(gate_)], ")");
  }

  const Tensor& gate_weight() const { return tensor(0); }  // "gate_proj.weight" [H, I]
  const Tensor& up_weight() const { return tensor(1); }    // "up_proj.weight" [H, I]
  const Tensor& down_weight() const { return tensor(2); }  // "down_proj.weight" [O, H]

 private:
  Gate gate_;
};

}  // namespace sinter::nn
