// Samples of embedding.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Tensor tokens_of(const Shape& shape, int64_t rows) {
  return reshape(sample_labels(shape.numel(), rows, 3), shape);
}

std::vector<Sample> embedding_samples() {
  const auto make = [](const Shape& tokens, int64_t rows, int64_t d, const char* what) {
    return Sample{
        .in = {tokens_of(tokens, rows), sample_tensor({rows, d}, 1)}, .attrs = {}, .what = what};
  };
  return {make({7}, 5, 3, "odd"), make({4, 6}, 27, 16, "two dims"),
      make({2, 3, 5}, 4, 1, "one column"), make({}, 6, 5, "one token"),
      make({40}, 2, 7, "each row many times"), make({3}, 50, 4, "most rows never"),
      make({0}, 5, 3, "no tokens"), make({4}, 5, 0, "no columns"),
      make({9}, 3, 130, "more columns than lanes"),
      Sample{.in = {transpose(tokens_of({3, 4}, 5)), transpose(sample_tensor({6, 5}, 1))},
          .attrs = {},
          .what = "transposed"},
      bad_sample({sample_tensor({4}, 1), sample_tensor({5, 3}, 2)}, {}, "floating tokens"),
      bad_sample({tokens_of({4}, 5), sample_tensor({5}, 2)}, {}, "a table of one dim")};
}

std::vector<Sample> embedding_grad_samples() {
  const auto make = [](const Shape& tokens, int64_t rows, int64_t d, const char* what) {
    Shape dy = tokens;
    dy.push_back(d);
    return fixed_sample(
        {sample_tensor(dy, 1), tokens_of(tokens, rows)}, EmbeddingGradAttrs{rows}, what);
  };
  return {make({7}, 5, 3, "odd"), make({4, 6}, 27, 16, "two dims"), make({0}, 5, 3, "no tokens"),
      make({70}, 3, 130, "many of each"), make({3}, 50, 4, "most rows never"),
      bad_sample(
          {sample_tensor({4, 3}, 1), tokens_of({5}, 5)}, EmbeddingGradAttrs{5}, "counts differ"),
      bad_sample({sample_tensor({4}, 1), tokens_of({4}, 5)}, EmbeddingGradAttrs{5}, "one dim")};
}

const Samples embedding_samples_of(kEmbeddingOp, embedding_samples);
const Samples embedding_weight_grad_samples_of(kEmbeddingWeightGradOp, embedding_grad_samples);

}  // namespace
}  // namespace sinter
