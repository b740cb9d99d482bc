#include "data/batch_source.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/numbers.h"
#include "data/word_stream.h"

namespace sinter {

BatchSource::BatchSource(int64_t rows, int64_t size, bool drop_last) : rows_(rows) {
  SINTER_CHECK(size >= 1, usage, str("batches: size out of range: ", size, "; at least 1"));
  SINTER_CHECK(rows > 0, data, "batches: the set is empty: 0 rows; at least 1");
  SINTER_CHECK(rows <= std::numeric_limits<int32_t>::max(), data,
      str("batches: too many rows: ", rows, "; at most 2^31-1"));
  SINTER_CHECK(!drop_last || size <= rows, data,
      str("batches: none is left without the last: ", count_of(rows, "row"), " in batches of ",
          size, "; drop_last wants at least ", size, " rows"));
  size_ = std::min(size, rows);  // the same, and no sum overflows
  per_epoch_ = drop_last ? rows / size_ : (rows + size_ - 1) / size_;
}

int64_t BatchSource::rows_of(BatchPosition position) const {
  return std::min(size_, rows_ - position.batch * size_);
}

BatchPosition BatchSource::after(BatchPosition position) const {
  if (position.batch + 1 == per_epoch()) return {position.epoch + 1, 0};
  return {position.epoch, position.batch + 1};
}

void BatchSource::seek(BatchPosition position) {
  SINTER_CHECK(position.epoch >= 0 && position.batch >= 0 && position.batch < per_epoch(), usage,
      str("seek: no such position: epoch ", position.epoch, ", batch ", position.batch,
          "; epoch must be at least 0, batch within 0..", per_epoch() - 1));
  position_ = position;
}

Tensors BatchSource::draw(int64_t rows) {
  SINTER_ASSERT(false, rows);
  return {};
}

std::string BatchSource::sizes() const {
  return str(count_of(rows_, "row"), " in batches of ", grouped(size_));
}

std::vector<int32_t> epoch_order(int64_t n, uint64_t seed, int64_t epoch) {
  constexpr uint32_t kShuffle =
      0x73687566;  // "shuf": keeps this stream apart from those of weights and dropout
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  WordStream words(seed, kShuffle, uint32_t(epoch), uint32_t(epoch >> 32));
  for (int64_t i = n - 1; i > 0; --i) {
    const auto j = int64_t((words.next() * uint64_t(i + 1)) >> 32);
    std::swap(order[i], order[j]);
  }
  return order;
}

}  // namespace sinter
