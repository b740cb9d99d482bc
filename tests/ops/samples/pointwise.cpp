// Samples of the pointwise ops, from what their structs say (ops/pointwise/pointwise.h).
#include "ops/pointwise/pointwise.h"

#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

using pointwise::kSavedValues, pointwise::Saves;

// Odd, ragged, broadcast, empty, non-contiguous, and bad.
template <class Op> std::vector<Sample> pointwise_samples() {
  const auto make = [](const std::vector<Shape>& shapes, const char* what,
                        bool transposed = false) {
    Sample sample{{}, Op{}, what};
    for (int i = 0; i < Op::arity; ++i) {
      const Shape& shape = shapes[i % shapes.size()];
      const bool condition = Op::has_condition && i == 0;
      Tensor t = sample_tensor(shape, 100 + i, condition ? 0 : Op::low, condition ? 2 : Op::high);
      if (condition) t = cast(t, DType::u8);
      if (transposed) t = transpose(t);
      sample.in.push_back(t);
    }
    return sample;
  };
  std::vector<Sample> all{make({{5, 7}}, "odd"), make({{1, 33}}, "one row"),
      make({{0, 4}}, "empty batch"), make({{6, 4}}, "transposed", true), make({{}}, "scalar")};
  if constexpr (Op::arity > 1) {
    all.push_back(make({{3, 1}, {1, 4}}, "broadcast"));
    all.push_back(make({{2, 3, 5}, {5}}, "row broadcast"));
    Sample bad = make({{3, 4}, {3, 5}, {3, 6}}, "shapes that do not broadcast");
    bad.bad = true;
    all.push_back(bad);
  } else {
    Sample bad{{Tensor::zeros({3}, DType::i32)}, Op{}, "integers"};
    bad.bad = true;
    all.push_back(bad);
  }
  return all;
}

// dy, then what forward saves of its own samples.
template <class Op> std::vector<Sample> pointwise_backward_samples(const OpDef& forward) {
  std::vector<Sample> all;
  for (Sample& s : pointwise_samples<Op>()) {
    if (s.bad) continue;
    const Tensors out = apply(forward, s.in, s.attrs);
    Tensors in{sample_tensor(out[0].shape(), 200)};
    if (Op::saves == Saves::inputs) in.insert(in.end(), s.in.begin(), s.in.end());
    if (Op::saves == Saves::output) in.push_back(out[0]);
    all.push_back(fixed_sample(std::move(in), s.attrs, s.what));
  }
  const Sample odd = all[0];
  const auto refuse = [&](size_t i, const Tensor& t, const char* what) {
    Tensors in = odd.in;
    in[i] = t;
    all.push_back(bad_sample(std::move(in), odd.attrs, what));
  };
  refuse(0, Tensor::zeros({5, 7}, DType::i32), "integers");
  if (kSavedValues<Op> > 0) {
    refuse(
        kSavedValues<Op>, Tensor::zeros({5, 6}, odd.in.back().dtype()), "saved of another shape");
    refuse(kSavedValues<Op>, Tensor::zeros({2, 5, 7}, odd.in.back().dtype()), "saved of more dims");
    refuse(kSavedValues<Op>, Tensor::zeros({5, 7}, DType::i32), "saved of another type");
  }
  return all;
}

template <class... Op> void list_pointwise_samples(std::tuple<Op...>) {
  auto op = pointwise_ops().begin();
  const auto list = [&](auto make, auto make_backward) {
    const OpDef &forward = **op++, &backward = **op++;
    Samples(forward, make);
    Samples(backward, [&forward, make_backward] { return make_backward(forward); });
  };
  (list(pointwise_samples<Op>, pointwise_backward_samples<Op>), ...);
}
const bool kPointwiseSamples = [] {
  list_pointwise_samples(pointwise::List{});
  return true;
}();

}  // namespace
}  // namespace sinter
