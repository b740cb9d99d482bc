// Samples of product_chain: input_grad_act.
#include "tests/ops/ends.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> input_grad_act_samples() {
  const auto make = [](int64_t b, int64_t o, int64_t i, Act act, const char* what) {
    Tensor saved = sample_tensor({b, i}, 3, act == Act::sigmoid ? 0.1 : -0.9, 0.9);
    if (act == Act::relu) saved = relu(saved);
    return fixed_sample({sample_tensor({b, o}, 1), sample_tensor({o, i}, 2), {}, saved},
        ends::input_grad_act(act, DType::f64), what);
  };
  Sample bad_saved = make(4, 5, 6, Act::relu, "saved of another shape");
  bad_saved.in[3] = sample_tensor({5, 6}, 3);
  bad_saved.bad = true;
  Sample row = make(17, 33, 40, Act::relu, "saved of one row"),
         number = make(17, 33, 41, Act::gelu_tanh, "saved is a number");
  row.in[3] = sample_tensor({40}, 3);
  number.in[3] = sample_tensor({}, 3);
  std::vector<Sample> all{row, number, make(17, 77, 333, Act::relu, "odd"),
      make(97, 333, 77, Act::relu, "ragged"), make(1, 10, 130, Act::relu, "one row"),
      make(0, 7, 5, Act::relu, "empty batch"), make(64, 128, 256, Act::relu, "whole tiles"),
      make(17, 33, 40, Act::none, "no activation"), bad_saved,
      bad_sample({sample_tensor({4, 5}, 1), sample_tensor({6, 7}, 2), {}, sample_tensor({4, 7}, 3)},
          ends::input_grad_act(Act::silu, DType::f64), "features differ")};
  for (const Act act : kActivations) {
    all.push_back(make(97, 33, 40, act, "each activation"));
    all.push_back(make(17, 32, 40, act, "each activation, whole groups"));
  }
  return all;
}

const Samples input_grad_act_samples_of(kProductChainOp, input_grad_act_samples);

}  // namespace
}  // namespace sinter
