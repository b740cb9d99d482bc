// A source of batches: what a training reads, epoch by epoch, and can go to any place of.
//
// The order of an epoch is a pure function of a seed and the epoch, so a position is two integers,
// and a training resumes without a walk over what it has read. What a source says of itself,
// describe() and crc32(), is kept in a checkpoint: a resume with others is refused. Batches
// (data/batches.h) are one, of images; TensorBatches (data/tensor_batches.h) another, of any
// tensors. One of your own needs take() and those two; it has so many rows, and gives so many at a
// time:
//
//   struct Windows : BatchSource {  // of a text: 64 tokens, and for each the next one
//     explicit Windows(Tensor text) : BatchSource(text.numel() / 65, 32), text_(text) {}
//     Fed take() override {
//       const BatchPosition at = advance();
//       return {.tensors = {..}, .of = rows_of(at)};
//     }
//     ..
//   };
//
// A source belongs to one thread.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace sinter {

struct BatchPosition {
  int64_t epoch = 0, batch = 0;  // of the next batch
  bool operator==(const BatchPosition&) const = default;
};

class BatchSource;

// What one step gets.
struct Fed {
  Tensors tensors = {};  // {x[B, ..], target[B, ..]}; none if this rank has no row of the batch
  int64_t of = 0;        // rows of the whole batch; B, or more where several processes share it
  BatchSource* drawn_from = nullptr;  // not null: the step itself is to draw(of) them from it
};

class BatchSource {
 public:
  // The last batch of an epoch is smaller where `size` does not divide `rows`, or left out. Throws
  // usage for a size below 1, data where no batch is left.
  BatchSource(int64_t rows, int64_t size, bool drop_last = false);
  virtual ~BatchSource() = default;
  BatchSource(BatchSource&&) = delete;  // a step that draws from it knows where it is

  int64_t per_epoch() const { return per_epoch_; }
  BatchPosition position() const { return position_; }
  int64_t rows_of(BatchPosition position) const;  // of the batch there, of all ranks
  // Goes to a position, as take() would have left it there. Throws usage unless epoch >= 0 and 0 <=
  // batch < per_epoch().
  virtual void seek(BatchPosition position);

  // The next batch; after the last one of an epoch the next epoch begins.
  virtual Fed take() = 0;
  // The same, of which the step may draw the rows itself: then they are not in `tensors`.
  virtual Fed feed() { return take(); }
  virtual Tensors draw(int64_t rows);  // in the step, once; none if this rank has no row of them
  // May batches of as many rows differ in shape?
  virtual bool shapes_vary() const { return false; }
  // As a batch of so many rows, without memory; none: not known before one is made.
  virtual Tensors shape_only(int64_t /*rows*/) const { return {}; }

  // "1,000 rows in batches of 64, shuffled by seed 1, f32": what they are but for the data.
  virtual std::string describe() const = 0;
  // Of the data; 0: unknown, and then nobody compares it.
  virtual uint32_t crc32() = 0;

 protected:
  BatchPosition after(BatchPosition position) const;
  // Moves on by a batch, and returns the position of that.
  BatchPosition advance() { return std::exchange(position_, after(position_)); }
  int64_t size() const { return size_; }  // of a batch, at most all rows
  // "1,000 rows in batches of 64"
  std::string sizes() const;

 private:
  int64_t rows_, size_, per_epoch_;
  BatchPosition position_;
};

// What is left of an epoch, as a range of what Source::next() gives.
template <class Source> class RestOfEpoch {
 public:
  explicit RestOfEpoch(Source& source)
      : source_(source),
        left_(source.per_epoch() - source.position().batch),
        batch_(source.next()) {}
  const auto& operator*() const { return batch_; }
  RestOfEpoch& operator++() {
    if (--left_ > 0) batch_ = source_.next();
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return left_ == 0; }

 private:
  Source& source_;
  int64_t left_;
  decltype(std::declval<Source&>().next()) batch_;
};

// The order of n items in an epoch: a Fisher-Yates shuffle drawn from the stream (seed, epoch).
std::vector<int32_t> epoch_order(int64_t n, uint64_t seed, int64_t epoch);

}  // namespace sinter
