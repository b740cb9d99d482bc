// Samples of embedding.
#include "ops/fused/fused.h"
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

std::vector<Sample> embedding_add_samples() {
  const auto make = [](const Shape& tokens, int64_t rows, const Shape& added, const char* what) {
    const Tensor weight = sample_tensor({rows, added[-1]}, 1);
    return fixed_sample({tokens_of(tokens, rows), weight, sample_tensor(added, 2)}, {}, what);
  };
  return {make({4, 6}, 27, {6, 16}, "places of each line"),
      make({2, 3, 5}, 4, {3, 5, 1}, "places of two dims"), make({7}, 5, {7, 3}, "places of all"),
      make({3, 4}, 5, {9}, "one row for all"), make({0, 4}, 5, {4, 3}, "empty batch"),
      make({2, 9}, 3, {9, 130}, "more columns than lanes"),
      bad_sample({tokens_of({4, 6}, 5), sample_tensor({5, 3}, 1), sample_tensor({5, 3}, 2)}, {},
          "other places"),
      bad_sample({tokens_of({4, 1}, 5), sample_tensor({5, 3}, 1), sample_tensor({4, 6, 3}, 2)}, {},
          "places that broadcast tokens"),
      bad_sample({tokens_of({4, 6}, 5), sample_tensor({5, 3}, 1), sample_tensor({4, 1, 3}, 2)}, {},
          "a row for each line")};
}

const Samples embedding_add_samples_of(kEmbeddingAddOp, embedding_add_samples);
const Samples embedding_samples_of(kEmbeddingOp, embedding_samples);
const Samples embedding_weight_grad_samples_of(kEmbeddingWeightGradOp, embedding_grad_samples);

}  // namespace
}  // namespace sinter
