// TensorBatches: every row once an epoch, in an order of the seed's, of tensors of any rank and
// type; what it refuses, and what it says of itself.
#include "data/tensor_batches.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/test_util.h"

namespace sinter {
namespace {

using test::expect_error;

// Row i of each tensor says i: sequences [n, 3, 2], tokens [n, 4], a label [n].
Tensors numbered(int64_t n, Device device = kCpu) {
  std::vector<float> sequences;
  std::vector<int64_t> tokens;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < n; ++i) {
    for (int k = 0; k < 6; ++k) sequences.push_back(float(i) + 0.125f * float(k));
    for (int k = 0; k < 4; ++k) tokens.push_back((i << 40) + k);
    labels.push_back(int32_t(i));
  }
  return {Tensor::from(sequences, {n, 3, 2}, device), Tensor::from(tokens, {n, 4}, device),
      Tensor::from(labels, {n}, device)};
}

// The rows that a batch has, each tensor's own, which is to be the same.
std::vector<int64_t> rows_in(const Tensors& batch) {
  std::vector<int64_t> rows;
  const auto sequences = batch[0].to_vector<double>();
  const auto tokens = batch[1].to_vector<int64_t>(), labels = batch[2].to_vector<int64_t>();
  for (size_t i = 0; i < labels.size(); ++i) {
    for (size_t k = 0; k < 6; ++k)
      EXPECT_EQ(sequences[6 * i + k], double(labels[i]) + 0.125 * double(k));
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(tokens[4 * i + k], (labels[i] << 40) + int64_t(k));
    rows.push_back(labels[i]);
  }
  return rows;
}

std::vector<int64_t> epoch_of(TensorBatches& batches) {
  std::vector<int64_t> all;
  for (const Tensors& batch : batches) {
    const auto rows = rows_in(batch);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(TensorBatches, EveryRowOnceInAnOrderOfItsEpochAndSeed) {
  TensorBatches batches(numbered(23), {.size = 10}), same(numbered(23), {.size = 10}),
      other(numbered(23), {.size = 10, .seed = 2});
  EXPECT_EQ(batches.per_epoch(), 3);
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(batches.position(), (BatchPosition{epoch, 0}));
    std::vector<int64_t> order = epoch_of(batches);
    EXPECT_EQ(order, epoch_of(same));
    EXPECT_NE(order, epoch_of(other));
    orders.insert(order);
    std::ranges::sort(order);
    std::vector<int64_t> all(23);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  EXPECT_EQ(orders.size(), 3u) << "each epoch has an order of its own";
  EXPECT_EQ(batches.rows_of({0, 2}), 3);
  const Tensors last = (batches.seek({1, 2}), batches.next());
  EXPECT_EQ(last[0].shape(), (Shape{3, 3, 2}));
  EXPECT_EQ(last[1].dtype(), DType::i64);
  EXPECT_EQ(last[2].dtype(), DType::i32);
}

TEST(TensorBatches, GoesToAnyPlace) {
  TensorBatches straight(numbered(23), {.size = 5, .seed = 7});
  std::vector<std::vector<int64_t>> all;
  for (int i = 0; i < 10; ++i) all.push_back(rows_in(straight.next()));
  for (int i = 9; i >= 0; --i) {
    straight.seek({i / 5, i % 5});
    EXPECT_EQ(rows_in(straight.next()), all[size_t(i)]) << i;
  }
  for (const BatchPosition bad : {BatchPosition{0, 5}, {-1, 0}, {0, -1}})
    expect_error(Error::Kind::usage, {"seek: no such position", "batch within 0..4"},
        [&] { straight.seek(bad); });
  EXPECT_EQ(straight.position(), (BatchPosition{0, 1})) << "none of them moved it";
}

TEST(TensorBatches, InTheirOrderAndWithoutTheLast) {
  TensorBatches plain(numbered(7), {.size = 3, .shuffle = false}),
      whole(numbered(7), {.size = 3, .shuffle = false, .drop_last = true}),
      one(numbered(3), {.size = 3, .shuffle = false, .drop_last = true}),
      large(numbered(3), {.size = INT64_MAX, .shuffle = false});
  EXPECT_EQ(epoch_of(plain), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(whole.per_epoch(), 2);
  for (int epoch = 0; epoch < 2; ++epoch)
    EXPECT_EQ(epoch_of(whole), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(whole.position(), (BatchPosition{2, 0}));
  EXPECT_EQ(epoch_of(one), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(epoch_of(large), (std::vector<int64_t>{0, 1, 2}));
}

TEST(TensorBatchesSimt, WhereverTheSetIsAndTheBatchesGo) {
  const Device simt{Device::Type::simt, 0};
  TensorBatches here(numbered(11), {.size = 4}), there(numbered(11, simt), {.size = 4}),
      sent(numbered(11), {.size = 4, .device = simt});
  for (int i = 0; i < 5; ++i) {
    const std::vector<int64_t> rows = rows_in(here.next());
    for (TensorBatches* batches : {&there, &sent}) {
      const Tensors batch = batches->next();
      EXPECT_EQ(batch[1].device(), simt);
      EXPECT_EQ(rows_in(batch), rows);
    }
  }
  EXPECT_EQ(here.crc32(), there.crc32());
  EXPECT_EQ(
      there.shape_only(2)[0].describe(), Tensor::meta({2, 3, 2}, DType::f32, simt).describe());
}

// A view that is not dense, rows of no element, and a batch that the caller keeps and writes to.
TEST(TensorBatches, ViewsEmptyRowsAndWhatTheCallerWrites) {
  const Tensor grid = Tensor::from({0, 1, 2, 3, 4, 5}, {2, 3}), empty = Tensor::empty({3, 0});
  const Tensor column = Tensor::view_of(grid.storage(), DType::f32, {3, 2}, {1, 3}, 0);
  TensorBatches batches({column, empty}, {.size = 2, .shuffle = false});
  const Tensors first = batches.next();
  EXPECT_EQ(first[0].to_vector<float>(), (std::vector<float>{0, 3, 1, 4}));
  EXPECT_EQ(first[1].shape(), (Shape{2, 0}));
  first[0].data<float>()[0] = 9;
  batches.seek({0, 0});
  EXPECT_EQ(batches.next()[0].to_vector<float>(), (std::vector<float>{0, 3, 1, 4}));
}

TEST(TensorBatches, WhatTheyAreAndOfWhichData) {
  TensorBatches a(numbered(1000), {.size = 64}), b(numbered(1000), {.size = 64, .drop_last = true}),
      c({numbered(5)[2]}, {.size = 2, .shuffle = false});
  EXPECT_EQ(a.describe(),
      "1,000 rows in batches of 64, shuffled by seed 1, f32[1000, 3, 2], i64[1000, 4], i32[1000]");
  EXPECT_EQ(b.describe(),
      "1,000 rows in batches of 64, each of them whole, shuffled by seed 1, f32[1000, 3, 2], "
      "i64[1000, 4], i32[1000]");
  EXPECT_EQ(c.describe(), "5 rows in batches of 2, in their order, i32[5]");
  EXPECT_EQ(a.crc32(), b.crc32());
  Tensors other = numbered(1000);
  other[1].data<int64_t>()[3999] += 1;
  EXPECT_NE(TensorBatches(other).crc32(), a.crc32());
}

TEST(TensorBatches, BadSetsAndOptions) {
  expect_error(Error::Kind::data, {"the set is empty: no tensors"}, [] { TensorBatches({}); });
  expect_error(Error::Kind::data, {"the set is empty: 0 rows"}, [] { TensorBatches(numbered(0)); });
  expect_error(Error::Kind::usage, {"size out of range: 0", "at least 1"},
      [] { TensorBatches(numbered(3), {.size = 0}); });
  expect_error(Error::Kind::data, {"none is left", "3 rows in batches of 4", "drop_last"},
      [] { TensorBatches(numbered(3), {.size = 4, .drop_last = true}); });
  expect_error(Error::Kind::shape, {"rows differ", "tensor 1", "f32[3]", "f32[2]"}, [] {
    TensorBatches({Tensor::zeros({2}), Tensor::zeros({3})});
  });
  for (const Tensor& bad : {Tensor(), Tensor::zeros({}), Tensor::meta({2})})
    expect_error(Error::Kind::shape, {"tensor 1 of the set has no rows", bad.describe()}, [&] {
      TensorBatches({Tensor::zeros({2}), bad});
    });
}

}  // namespace
}  // namespace sinter
