#include "nn/glu.h"

#include "nn/linear.h"

namespace sinter::nn {

Glu::Glu(int64_t in_features, int64_t hidden, int64_t out_features, Gate gate) : gate_(gate) {
  SINTER_CHECK(in_features > 0 && hidden > 0 && out_features > 0, usage,
      cat("Glu: sizes must be 1 or more: in ", in_features, ", hidden ", hidden, ", out ",
          out_features));
  const Tensor both = Tensor::empty({2 * hidden, in_features});
  add_parameter("gate_proj.weight", slice(both, 0, 0, hidden));
  add_parameter("up_proj.weight", slice(both, 0, hidden, 2 * hidden));
  add_parameter("down_proj.weight", Tensor::empty({out_features, hidden}));
  Glu::init_own(init::default_stream());
}

void Glu::init_own(init::Stream& stream) {
  for (size_t i = 0; i < 3; ++i) init::linear_default(tensor(i), tensor(i).size(1), stream);
}

bool Glu::enable_bf16_own(Converter& convert, DType out) {
  for (size_t i = 0; i < 3; ++i) tensor(i).autograd().bf16_copy = convert(tensor(i), DType::bf16);
  result_ = out;
  return true;
}

Tensor Glu::forward(const Tensor& x) {
  const bool mixed = gate_weight().autograd().bf16_copy.defined();
  const Tensor in = mixed && x.dtype() != DType::bf16 ? cast(x, DType::bf16) : x;  // once for both
  const Tensor gate = linear_mixed(in, gate_weight(), {}, DType::bf16),
               up = linear_mixed(in, up_weight(), {}, DType::bf16);
  const Tensor open = gate_ == Gate::silu   ? silu(gate)
                      : gate_ == Gate::gelu ? gelu(gate)
                                            : gelu_tanh(gate);
  return linear_mixed(open * up, down_weight(), {}, result_);
}

std::string Glu::describe() const {
  constexpr const char* kName[] = {"gelu", "gelu tanh", "silu"};
  return cat("GLU(", gate_weight().size(1), " -> ", gate_weight().size(0), " -> ",
      down_weight().size(0), ", ", kName[int(gate_)], ")");
}

}  // namespace sinter::nn
