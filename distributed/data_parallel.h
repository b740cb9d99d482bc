// DataParallel: one model on several ranks. Each rank has all weights and computes the gradients of
// its part of the batch; their sum over the ranks is the gradient of the whole batch, and all ranks
// make the same update.
//
//   DataParallel parallel(net, ranks);               // nullptr: one process, no sums
//   const RowRange mine = parallel.begin_batch(rows);  // the rows of the whole batch
//   opt.zero_grad();
//   Tensor losses = cross_entropy(net(x), labels);   // of the rows mine.begin .. mine.end
//   parallel.backward(losses);                       // undefined, if mine is empty
//   opt.step(losses);
//
// Note [Buckets]
//   The gradients' sums run beside backward. Parameters are put into buckets in reverse order, so
//   about in the order in which backward completes their gradients, until a bucket holds
//   bucket_bytes. As soon as the last gradient of a bucket is there, its sum starts; after backward
//   all are waited for. Buckets start in one order on all ranks.
//
// What a rank computes depends on the whole batch, not on the number of ranks: losses are divided
// by the rows of the whole batch, or those of them that count (Note [Rows that do not count] in
// ops/rows/losses.cpp), and dropout's mask of a row is that of its place in it. Gradients
// are whole after backward(): clip them then. Batch normalization, whose statistics would be those
// of a part, is refused. What begin_batch() is told is no tensor of the step: a captured step needs
// in StepOptions::mode a number from which it follows, as a Trainer (train/trainer.h) gives it.
//
// Not thread-safe: of the thread that made it.
#pragma once

#include <optional>
#include <unordered_map>

#include "core/communicator.h"
#include "nn/module.h"

namespace sinter::distributed {

struct DataParallelOptions {
  int64_t bucket_bytes = 128 << 10;
};

class DataParallel {
 public:
  // Checks that all ranks hold the same weights. Throws usage for a batch normalization in `net`,
  // state for weights that differ. REQUIRES: both outlive it.
  DataParallel(nn::Module& net, Communicator* ranks, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  struct Batch {
    int64_t of = 0;    // rows of all batches whose gradients are added up before the update; 0:
                       // this batch alone
    bool last = true;  // of those batches: then gradients are summed over the ranks
  };
  // Begins a batch of `rows` rows on all ranks together; gives the rows that are this rank's.
  RowRange begin_batch(int64_t rows, const Batch& batch);
  RowRange begin_batch(int64_t rows) { return begin_batch(rows, {}); }

  // backward() of losses [B], one for each row of this rank, or as many for each; undefined if it
  // has none. Then every
  // parameter's grad() is that of the whole batch, if it is the last one.
  // Throws state for a parameter that got no gradient.
  void backward(const Tensor& losses);

  // Compares a checksum of every parameter over all ranks; throws state that names the first one
  // that differs, and its ranks.
  void check_equal();
  // Elements of each bucket, in the order in which they start.
  std::vector<int64_t> bucket_sizes() const;

 private:
  struct Bucket;
  // Are all rows of this update in the losses of one backward()?
  bool is_all() const { return !ranks_ && mine_.size() == rows_; }
  void average();
  void complete(const Tensor& parameter);
  void sum_rest(bool zeros);
  std::vector<Tensor> gradients(const Bucket& bucket) const;

  const nn::NamedTensors params_;
  Communicator* const ranks_;  // nullptr: none but this
  std::vector<Bucket> buckets_;
  std::unordered_map<const void*, size_t> bucket_of_;  // by Tensor::id()
  size_t started_ = 0;                                 // of buckets_, in this backward
  RowRange mine_;
  int64_t rows_ = 0;  // of all batches of this update
  Tensor counted_;    // of them, of this rank, if not all count
  // Have the losses of any rank such a number? The ranks ask each other once.
  std::optional<bool> counts_;
  bool last_ = true;
};

}  // namespace sinter::distributed
