// Batches of a set of tensors of any rank and type, such as sequences of numbers or of tokens: what
// PyTorch has as TensorDataset and DataLoader.
//
//   TensorBatches batches({x, y}, {.size = 32, .seed = 1});  // x[N, ..], y[N, ..]
//   while (trainer.epoch() < 5) trainer.fit(batches);
//   for (const Tensors& batch : batches) ..  // an epoch, or the rest of it
//
// The set stays on the host and is not copied if it is there and dense: nobody may write to it. A
// batch is gathered row by row into fresh tensors and copied to its device. Of several processes
// each gets the whole batch, of which a trainer takes its rows.
#pragma once

#include <functional>
#include <optional>

#include "data/batch_source.h"

namespace sinter {

struct TensorBatchOptions {
  int64_t size = 128;
  bool shuffle = true;
  uint64_t seed = 1;
  bool drop_last = false;             // the last batch of an epoch if it is smaller
  std::optional<Device> device = {};  // of the batches; that of the first tensor if unset
  // What becomes of a batch on the host: as many rows, and shapes that may vary.
  std::function<Tensors(const Tensors&)> then = {};
};

class TensorBatches : public BatchSource {
 public:
  // Throws usage for a size below 1, data for a set without rows, shape where their numbers differ.
  explicit TensorBatches(const Tensors& set, const TensorBatchOptions& options = {});

  Tensors next();
  Fed take() override;
  RestOfEpoch<TensorBatches> begin() { return RestOfEpoch(*this); }
  std::default_sentinel_t end() const { return {}; }
  bool shapes_vary() const override { return bool(options_.then); }
  Tensors shape_only(int64_t rows) const override;
  std::string describe() const override;
  uint32_t crc32() override;

 private:
  Tensors set_;  // dense, on the host
  TensorBatchOptions options_;
  std::vector<int32_t> order_;  // of order_epoch_
  int64_t order_epoch_ = -1;
  std::optional<uint32_t> crc32_;
};

}  // namespace sinter
