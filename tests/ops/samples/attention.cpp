// Samples of attention.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

// q, k, v.
Tensors operands(const Shape& q, int64_t groups, int64_t keys) {
  const Shape k{q[0], groups, keys, q[3]};
  return {sample_tensor(q, 1), sample_tensor(k, 2), sample_tensor(k, 3)};
}
// As a layer has them: heads of one [B, S, 3 H D], each a view.
Tensors heads_of_one(int64_t batch, int64_t heads, int64_t rows, int64_t depth) {
  const Tensor all = sample_tensor({batch, rows, 3 * heads * depth}, 4);
  Tensors in;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor columns =
        slice(reshape(all, {batch, rows, 3 * heads, depth}), 2, i * heads, (i + 1) * heads);
    in.push_back(transpose(columns, 1, 2));
  }
  return in;
}

std::vector<Sample> attention_samples() {
  const AttentionAttrs plain{0.5, false}, causal{0.5, true}, rows{0.5, true, true};
  const auto good = [](Tensors in, const AttentionAttrs& attrs, const char* what) {
    return Sample{.in = std::move(in), .attrs = attrs, .what = what, .first_only = true};
  };
  const Tensors odd = operands({2, 2, 5, 3}, 2, 7);
  const auto bad = [&](size_t i, const Shape& shape, const char* what) {
    Tensors in = odd;
    in[i] = sample_tensor(shape, 5);
    return bad_sample(std::move(in), plain, what);
  };
  return {good(odd, plain, "odd"), good(odd, causal, "causal, more keys than rows"),
      good(operands({1, 2, 7, 4}, 2, 3), causal, "causal, more rows than keys"),
      good(operands({1, 4, 3, 4}, 2, 5), causal, "two heads to a group"),
      good(operands({1, 3, 2, 8}, 1, 4), plain, "one group"),
      good(operands({2, 1, 1, 5}, 1, 1), causal, "one row, one key"),
      good(heads_of_one(2, 2, 4, 3), causal, "heads of one tensor"),
      good(operands({2, 4, 5, 3}, 2, 6), rows, "results by rows"),
      good(operands({0, 2, 3, 4}, 1, 5), plain, "empty batch"),
      good(operands({1, 2, 0, 4}, 2, 5), causal, "no rows"),
      good(operands({1, 2, 3, 4}, 2, 0), plain, "no keys"), bad(0, {2, 2, 5}, "three dims"),
      bad(1, {2, 2, 7, 4}, "depths differ"), bad(2, {2, 2, 6, 3}, "as many values as keys"),
      bad(1, {3, 2, 7, 3}, "batches differ"), bad(0, {2, 2, 5, 0}, "no depth"),
      bad_sample(operands({2, 3, 5, 3}, 2, 7), plain, "heads do not divide"),
      bad_sample(operands({2, 3, 5, 3}, 0, 7), plain, "no groups")};
}

// do, q, k, v, o, lse: o and lse are those of the op.
std::vector<Sample> backward_samples() {
  std::vector<Sample> all;
  for (const Sample& forward : attention_samples()) {
    if (forward.bad) continue;
    Tensors in{sample_tensor(forward.in[0].shape(), 6)};
    in.insert(in.end(), forward.in.begin(), forward.in.end());
    for (const Tensor& t : apply(kAttentionOp, forward.in, forward.attrs)) in.push_back(t);
    if (forward.attrs.as<AttentionAttrs>().by_rows) in[4] = transpose(in[4], 1, 2);
    all.push_back(fixed_sample(std::move(in), forward.attrs, forward.what));
  }
  for (const Sample& sample : std::vector<Sample>(all)) {
    for (const int64_t merged : {2, 3}) {
      if (merged == 3 && sample.in[1].size(2) != sample.in[2].size(2)) continue;
      all.push_back(fixed_sample(sample.in, AttentionAttrs{0.5, true, true, merged},
          str(sample.what, ", the last ", merged, " merged")));
    }
  }
  const Sample good = all.front();
  for (size_t i = 0; i < good.in.size(); ++i) {
    Tensors in = good.in;
    in[i] = sample_tensor({2, 2, 6}, 9);
    all.push_back(bad_sample(std::move(in), good.attrs, str("operand ", i, " of another shape")));
  }
  return all;
}

const Samples attention_samples_of(kAttentionOp, attention_samples);
const Samples attention_backward_samples_of(kAttentionBackwardOp, backward_samples);

}  // namespace
}  // namespace sinter
