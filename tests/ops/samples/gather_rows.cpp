// Samples of gather_rows.
#include "ops/ops.h"
#include "tests/ops/samples/samples.h"

namespace sinter {
namespace {

Tensor index_of(const std::vector<int64_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

std::vector<Sample> gather_rows_samples() {
  return {{.in = {sample_tensor({7, 5}, 1), index_of({3, 0, 3, 6})},
              .attrs = {},
              .what = "a row twice"},
      {.in = {sample_tensor({4, 2, 3}, 2), index_of({1})},
          .attrs = {},
          .what = "one row, three dims"},
      {.in = {sample_tensor({9}, 3), index_of({8, 2})}, .attrs = {}, .what = "one dim"},
      {.in = {sample_tensor({4, 3}, 4), index_of({})}, .attrs = {}, .what = "empty batch"},
      {.in = {transpose(sample_tensor({3, 4}, 5)), index_of({2, 1})},
          .attrs = {},
          .what = "transposed"},
      bad_sample({sample_tensor({4, 3}, 6), sample_labels(2, 4, 7)}, {}, "i32 index"),
      bad_sample({sample_tensor({}, 6), index_of({0})}, {}, "scalar")};
}

std::vector<Sample> gather_rows_scatter_samples() {
  const ScatterAttrs seven{7};
  return {{.in = {sample_tensor({4, 5}, 1), index_of({3, 0, 3, 6})},
              .attrs = seven,
              .what = "a row twice"},
      {.in = {sample_tensor({0, 5}, 2), index_of({})}, .attrs = seven, .what = "empty batch"},
      bad_sample({sample_tensor({4, 5}, 3), index_of({1, 2})}, seven, "counts differ")};
}

const Samples gather_rows_samples_of(kGatherRowsOp, gather_rows_samples);
const Samples scatter_add_rows_samples_of(kScatterAddRowsOp, gather_rows_scatter_samples);

}  // namespace
}  // namespace sinter
