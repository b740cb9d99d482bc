// Samples of matmul.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

std::vector<Sample> matmul_samples() {
  std::vector<Sample> all;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Shape a = ta ? Shape{11, 7} : Shape{7, 11}, b = tb ? Shape{5, 11} : Shape{11, 5};
      all.push_back({{sample_tensor(a, 1), sample_tensor(b, 2)}, MatmulAttrs{ta, tb, DType::f64},
          str("odd, ", ta, tb)});
    }
  }
  const MatmulAttrs plain{false, false, DType::f64};
  all.push_back({{sample_tensor({1, 17}, 1), sample_tensor({17, 1}, 2)}, plain, "one element"});
  all.push_back({{sample_tensor({9, 16}, 1), sample_tensor({16, 24}, 2)}, plain, "whole groups"});
  all.push_back({{sample_tensor({0, 3}, 1), sample_tensor({3, 4}, 2)}, plain, "empty batch"});
  all.push_back({{transpose(sample_tensor({5, 6}, 1)), transpose(sample_tensor({4, 5}, 2))}, plain,
      "transposed views"});
  all.push_back(
      fixed_sample({broadcast_to(sample_tensor({1, 5}, 1), {3, 5}), sample_tensor({5, 2}, 2)},
          plain, "spread rows"));
  all.push_back(bad_sample(
      {sample_tensor({3, 4}, 1), sample_tensor({5, 4}, 2)}, plain, "inner sizes differ"));
  all.push_back(bad_sample(
      {sample_tensor({2, 3, 4, 5, 6}, 1), sample_tensor({6, 4}, 2)}, plain, "three dims in front"));
  all.push_back(bad_sample({sample_tensor({2, 3, 4}, 1), sample_tensor({3, 4, 5}, 2)}, plain,
      "as many products, but of one another"));

  // Several products. Heads lie as transpose(1, 2) of [B, S, H, D].
  const auto heads = [](int64_t rows, uint64_t seed) {
    return transpose(sample_tensor({2, rows, 3, 4}, seed), 1, 2);
  };
  const auto add = [&](Tensor a, Tensor b, bool ta, bool tb, const char* what) {
    all.push_back({{std::move(a), std::move(b)}, MatmulAttrs{ta, tb, DType::f64}, what});
  };
  add(sample_tensor({3, 7, 5}, 1), sample_tensor({3, 5, 6}, 2), false, false, "three products");
  add(heads(5, 1), heads(7, 2), false, true, "scores of heads");
  add(sample_tensor({2, 3, 5, 7}, 1), heads(7, 2), false, false, "scores and values of heads");
  add(sample_tensor({2, 3, 5, 7}, 1), heads(5, 2), true, false, "gradients of values of heads");
  add(sample_tensor({2, 1, 9, 16}, 1), sample_tensor({3, 16, 8}, 2), false, false,
      "one a for three b, one b for two a");
  add(sample_tensor({6, 5}, 1), sample_tensor({2, 5, 4}, 2), false, false, "one a for all");
  add(transpose(sample_tensor({2, 5, 6}, 1)), sample_tensor({5, 4}, 2), false, false,
      "one b for all");
  add(sample_tensor({2, 5, 1, 6}, 1), sample_tensor({2, 1, 6, 1}, 2), true, true, "outer products");
  add(sample_tensor({0, 5, 6}, 1), sample_tensor({0, 6, 4}, 2), false, false, "no product");
  add(sample_tensor({2, 0, 6}, 1), sample_tensor({2, 6, 4}, 2), false, false, "no rows");
  all.push_back(fixed_sample(
      {slice(sample_tensor({2, 5, 12}, 1), 2, 0, 0), slice(sample_tensor({2, 12, 3}, 2), 1, 0, 0)},
      plain, "no terms"));
  all.push_back(fixed_sample({broadcast_to(sample_tensor({2, 1, 5}, 1), {2, 3, 5}),
                                 broadcast_to(sample_tensor({5, 2}, 2), {2, 5, 2})},
      plain, "spread rows and products"));
  return all;
}

const Samples matmul_samples_of(kMatmulOp, matmul_samples);

}  // namespace
}  // namespace sinter
