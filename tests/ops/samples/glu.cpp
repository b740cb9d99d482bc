// Samples of pointwise_chain: gates and their gradients.
#include "tests/ops/ends.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

template <size_t N> std::vector<Sample> glu_samples() {
  const auto make = [](const Shape& shape, Act act, bool merged, const char* what) {
    const ChainAttrs attrs = N == 2 ? ends::glu(act) : ends::glu_backward(act, merged);
    Sample s = fixed_sample({}, attrs, what);
    for (uint64_t i = 0; i < N; ++i) s.in.push_back(sample_tensor(shape, i + 1));
    return s;
  };
  Sample halves = make({17, 77}, Act::silu, N == 3, "halves of one tensor");
  const Tensor both = sample_tensor({17, 154}, 9);
  halves.in[N - 2] = slice(both, 1, 0, 77);
  halves.in[N - 1] = slice(both, 1, 77, 154);
  Sample bad = make({4, 5}, Act::silu, false, "shapes differ");
  bad.in[1] = sample_tensor({5, 4}, 2);
  bad.bad = true;
  std::vector<Sample> all{make({17, 333}, Act::gelu_tanh, false, "odd"),
      make({97, 77}, Act::silu, N == 3, "ragged"), make({1, 2077}, Act::gelu, false, "one row"),
      make({0, 5}, Act::silu, N == 3, "empty batch"), make({17, 33}, Act::none, false, "bilinear"),
      halves, bad};
  for (const Act act : kActivations)
    all.push_back(make({17, 33}, act, N == 3 && act == Act::tanh, "each activation"));
  return all;
}

const Samples glu_samples_of(kPointwiseChainOp, glu_samples<2>);
const Samples glu_backward_samples_of(kPointwiseChainOp, glu_samples<3>);

}  // namespace
}  // namespace sinter
