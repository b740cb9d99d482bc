// 08_new_op: an op of your own, from one struct.
//
// A pointwise op is a formula for one number, its derivative, and a few facts. From that the
// framework makes the kernel for tensors of any shape and type, the backward op, the shape rule,
// the cost, and the entry in the profile. This program defines softsign, x / (1 +
// |x|), which Sinter does not have, and trains with it. In the library, the struct would stand in
// ops/pointwise/pointwise.h.
#include <cstdio>

#include "autograd/autograd.h"
#include "nn/linear.h"
#include "nn/optim.h"
#include "ops/pointwise/pointwise_op.h"

using namespace sinter;

// Backward reads y, so x need not be kept; the FLOPs are per element.
struct Softsign : pointwise::Unary<pointwise::Facts{
                      .saves = pointwise::Saves::output, .flops = 3, .backward_flops = 3}> {
  SINTER_POINTWISE(Softsign, "softsign")
  // Written once for float and double; math.h has exp, log and tanh with the same bits on
  // every device.
  template <class T> SINTER_FN T forward(T x) const { return x / (T(1) + (x < 0 ? -x : x)); }
  // d/dx = 1 / (1 + |x|)^2, and 1 / (1 + |x|) is 1 - |y|.
  template <class T> SINTER_FN T grad(T dy, T y) const {
    const T slope = T(1) - (y < 0 ? -y : y);
    return dy * slope * slope;
  }
};

// What users call: like relu(x) or tanh(x).
Tensor softsign(const Tensor& x) { return apply1(pointwise_op<Softsign>(), {x}, Softsign{}); }

int main() {
  // ---- 1. It computes, for any shape, strides and floating type.
  const Tensor x = Tensor::from({-3, -1, 0, 1, 3, 9}, {2, 3});
  std::printf("softsign of\n%s\nis\n%s\n", x.values().c_str(), softsign(x).values().c_str());
  std::printf("of its transpose, in bf16: %s\n\n",
      softsign(cast(transpose(x), DType::bf16)).describe().c_str());

  // ---- 2. Its derivative is right, for odd, empty, scalar and transposed shapes: gradcheck
  // compares it with differences. And bad input gets a clear message. In the library, the tests
  // would do this for the op by themselves.
  const OpDef& op = pointwise_op<Softsign>();
  const std::vector<std::pair<const char*, Tensor>> inputs{{"odd", sample_tensor({5, 7}, 1)},
      {"one row", sample_tensor({1, 33}, 1)}, {"empty batch", sample_tensor({0, 4}, 1)},
      {"transposed", transpose(sample_tensor({6, 4}, 1))}, {"scalar", sample_tensor({}, 1)}};
  for (const auto& [what, values] : inputs) {
    Tensor input = copy(values);
    input.set_requires_grad(true);
    const GradcheckResult check =
        gradcheck([](const Tensors& in) { return Tensors{softsign(in[0])}; }, {input});
    const Cost cost = op.cost(std::array{input}, std::array{softsign(input)}, Softsign{});
    std::printf("%-12sgradcheck %s, %ld FLOP, %ld bytes\n", what,
        check.ok ? "ok" : check.message.c_str(), long(cost.flops), long(cost.bytes()));
  }
  try {
    softsign(Tensor::zeros({3}, DType::i32));
  } catch (const Error& error) {
    std::printf("%-12srefused: %s\n", "integers", error.message().c_str());
  }

  // ---- 3. And it trains: a small network with softsign between its layers learns y = |x|.
  nn::init::manual_seed(3);
  nn::Linear first(1, 16), second(16, 1);
  nn::NamedTensors parameters = first.named_parameters();
  for (const auto& [name, tensor] : second.named_parameters())
    parameters.push_back({"second." + name, tensor});
  nn::Adam optimizer(parameters, {.lr = 0.01});
  const Tensor points = cast(sample_tensor({256, 1}, 1), DType::f32), wanted = abs(points);
  double before = 0, after = 0;
  for (int step = 0; step < 400; ++step) {
    optimizer.zero_grad();
    const Tensor losses = mse(second(softsign(first(points))), wanted);
    backward(losses);
    optimizer.step();
    (step == 0 ? before : after) = mean(losses).item();
  }
  std::printf("\ntraining with it: the error fell %s\n",
      after < before / 100 ? "to less than a hundredth" : "too little");
}
