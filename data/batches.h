// Batches of a split: the order of an epoch, and rows gathered and scaled into a dense batch.
//
// Used by training (shuffled) and evaluation (in file order). The order of an epoch is a pure
// function of (seed, epoch), so a position is two integers: epoch and batch in epoch. The last
// batch of an epoch is smaller where the size does not divide; none is dropped. The work is done
// where the split is (Dataset::to): there the order of an epoch goes as it begins, and a batch
// costs one kernel: next() runs it, or the step itself does, as its first op (begin_step(),
// draw()), so that a captured step needs nothing from the host. A split that its device cannot hold
// stays on the CPU, and next() works two batches ahead: while the caller works on one, the next is
// copied to the device and one thread gathers that behind it; what is under way is not counted in
// position(). On cuda batches are gathered in pinned memory, and copies run beside the step, which
// waits for its own by an event (core/device/cuda_upload.h). So it is with augmentation, which is
// done on the CPU. One Batches belongs to one thread; a batch is a fresh tensor that the caller
// owns (the allocator recycles the memory).
//
//   for (const Batch& batch : batches) ..  // an epoch, or the rest of it
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "data/augment.h"
#include "data/batch_source.h"

namespace sinter {

enum class Normalize : uint8_t { none, mnist };  // x/255; (x/255 - 0.1307) / 0.3081

struct BatchOptions {
  int64_t size = 128;
  bool shuffle = true;
  uint64_t seed = 1;
  DType dtype = DType::f32;  // or bf16
  Normalize normalize = Normalize::none;
  std::optional<Device>
      device{};  // of the batches; that of the split if unset. Another one: the split is on the CPU
  Augment augment{};  // if any, the split is on the CPU
  // One of several processes that share each batch of `size` rows: next() and draw() give the
  // rows_of_rank() of this one (core/communicator.h), of each `part` rows apart where a step takes
  // them part by part (0: it does not).
  int64_t rank = 0, ranks = 1, part = 0;
};

struct Batch {
  Tensor images;   // [B, C*H*W] in the dtype asked for
  Tensor labels;   // i32 [B]
  int64_t of = 0;  // rows of the whole batch; B, or more where several processes share it
  Fed fed() const { return {labels.numel() > 0 ? Tensors{images, labels} : Tensors{}, of}; }
};

class Batches : public BatchSource {
 public:
  // Throws usage for a size below 1, data for an empty split, dtype for other dtypes.
  explicit Batches(Split split, const BatchOptions& options = {});
  ~Batches() override;

  Batch next();
  Fed take() override { return next().fed(); }
  RestOfEpoch<Batches> begin() { return RestOfEpoch(*this); }
  std::default_sentinel_t end() const { return {}; }
  // Is the split where its batches go, as they are in it? Only then a step can draw them.
  bool resident() const {
    return *options_.device == split_.images.device() && !options_.augment.any();
  }
  // In place of next(), before a step that draws the next batch: returns the rows of that, of all
  // ranks. Nothing is copied but where an epoch begins, or after seek() and next(). REQUIRES:
  // resident().
  int64_t begin_step();
  Fed feed() override;
  // By an op that reads on the device where the batch begins and moves that on. What else the step
  // does, and how often it updates, does not matter.
  Tensors draw(int64_t rows) override;
  Tensors shape_only(int64_t rows) const override;
  std::string describe() const override;
  // Of the data set (Dataset::crc32) or, of a split by other hands, of its images and labels.
  uint32_t crc32() override;
  // Of `rows` rows of a batch, how many are this rank's.
  int64_t own_rows(int64_t rows) const;
  void seek(BatchPosition position) override;

 private:
  // In `memory` of the host, if given: labels_at() bytes for images, then the labels.
  Batch make(BatchPosition position, std::byte* memory = nullptr);
  size_t labels_at() const;
  Split augmented(int64_t epoch, const Tensor& index) const;
  void load_order(int64_t epoch);
  void write_order(std::span<const int32_t> order);
  Split split_;
  BatchOptions options_;
  Tensor order_;  // i64 [N], of order_epoch_, where the split is; always the same memory
  int64_t order_epoch_ = -1;
  Tensor cursor_;        // i64 [1], beside it: where in order_ the next batch that is drawn begins
  bool placed_ = false;  // is that position()?
  class Ahead;
  std::unique_ptr<Ahead> ahead_;  // last: it is waited for before the rest goes
};

// Rows `indices` of the split as one batch; what next() calls, and how single items are read.
Batch gather_batch(const Split& split, std::span<const int32_t> indices, DType dtype = DType::f32,
    Normalize normalize = Normalize::none);

}  // namespace sinter
