#include "distributed/data_parallel.h"

#include "autograd/tape.h"
#include "core/crc32.h"
#include "nn/batch_norm.h"
#include "nn/clip.h"
#include "ops/ops.h"

namespace sinter::distributed {
namespace {

void check_no_batch_norm(nn::Module& net) {
  for (const nn::Module* module : net.modules()) {
    SINTER_CHECK(!dynamic_cast<const nn::BatchNorm2d*>(module), usage,
        str("data parallel: batch normalization is not supported: found ", module->describe(),
            "; its statistics would be those of one rank's rows instead of the whole batch"),
        "use layer normalization, or train in one process");
  }
}

}  // namespace

// Note [Buckets]
struct DataParallel::Bucket {
  std::vector<size_t> params;  // by their number
  size_t complete = 0;         // of them, in this backward
};

DataParallel::DataParallel(nn::Module& net, Communicator* ranks, const DataParallelOptions& options)
    : params_(net.named_parameters()), ranks_(ranks && ranks->size() > 1 ? ranks : nullptr) {
  if (!ranks_) return;
  check_no_batch_norm(net);
  int64_t room = 0;
  for (size_t i = params_.size(); i-- > 0;) {
    if (room <= 0) {
      buckets_.emplace_back();
      room = options.bucket_bytes;
    }
    const Tensor& param = params_[i].tensor;
    bucket_of_[param.id()] = buckets_.size() - 1;
    buckets_.back().params.push_back(i);
    room -= param.numel() * static_cast<int64_t>(size_of(param.dtype()));
  }
  check_equal();
}

DataParallel::~DataParallel() { set_first_row(0); }

RowRange DataParallel::begin_batch(int64_t rows, const Batch& batch) {
  SINTER_CHECK(!ranks_ || Communicator::current() == ranks_, state,
      str("data parallel: the communicator of ", ranks_->size(),
          " ranks is not the current one of this thread"),
      "make it that by CommunicatorScope");
  SINTER_CHECK(rows > 0 && (batch.of == 0 || batch.of >= rows), usage,
      str("data parallel: no batch: rows is ", rows, ", at least 1; of all batches together ",
          batch.of, ", 0 or at least rows"));
  if (last_) counted_ = {};
  rows_ = batch.of > 0 ? batch.of : rows;
  last_ = batch.last;
  mine_ = ranks_ ? rows_of_rank(rows, ranks_->rank(), ranks_->size()) : RowRange{0, rows};
  set_first_row(mine_.begin);
  return mine_;
}

void DataParallel::backward(const Tensor& losses) {
  const int64_t found = losses.defined() ? losses.numel() : 0;
  const int64_t own = mine_.size();
  SINTER_CHECK(found == own || (found > own && own > 0 && found % own == 0), shape,
      str("data parallel: one loss for each row is wanted, or as many for each: losses is ",
          losses.describe(), "; this rank has the ", own, " rows from ", mine_.begin, " on"));
  const bool sums = ranks_ && last_;
  started_ = 0;
  for (Bucket& bucket : buckets_) bucket.complete = 0;
  if (losses.defined()) {
    // Told by this backward alone.
    struct Told {
      ~Told() { Tape::current().on_complete = nullptr; }
    } told;
    if (sums) Tape::current().on_complete = [this](const Tensor& leaf) { complete(leaf); };
    nn::add_counted(counted_, losses);
    sinter::backward(
        losses, {.gradient = {}, .rows = is_all() ? 0 : nn::divisor(losses, own, rows_)});
  }
  if (sums) sum_rest(!losses.defined());
  if (last_ && !is_all()) average();
}

// The gradients, which are whole, over the rows that count. Without such a number nothing is
// launched.
void DataParallel::average() {
  if (ranks_ && !counts_) counts_ = ranks_->sum(counted_.defined()) > 0;
  if (!counts_.value_or(counted_.defined())) return;
  const NoGrad no_grad;
  Tensors params;
  for (const nn::NamedTensor& p : params_) params.push_back(p.tensor);
  const Device device = params[0].device();
  const Tensor own = counted_.defined() ? counted_
                                        : copy(reshape(constant(0, DType::f32, device), {1})),
               all = ranks_ ? copy(own) : own;
  if (ranks_) {
    const auto bucket = static_cast<int64_t>(buckets_.size());
    all_reduce({all}, bucket);
    all_reduce_wait({all}, bucket);
  }
  nn::average_counted(params, rows_, own, all);
}

void DataParallel::complete(const Tensor& parameter) {
  const auto bucket = bucket_of_.find(parameter.id());
  if (bucket == bucket_of_.end()) return;  // a leaf of the caller's
  ++buckets_[bucket->second].complete;
  for (; started_ < buckets_.size(); ++started_) {
    const Bucket& next = buckets_[started_];
    if (next.complete < next.params.size()) return;
    all_reduce(gradients(next), static_cast<int64_t>(started_));
  }
}

// Those that this backward has not completed: all of a rank without rows; and what only an earlier
// one of several batches has reached.
void DataParallel::sum_rest(bool zeros) {
  const NoGrad no_grad;
  for (size_t b = started_; b < buckets_.size(); ++b) {
    for (const size_t i : buckets_[b].params) {
      const auto& [name, param] = params_[i];
      AutogradMeta& meta = param.autograd();
      if (meta.grad.defined()) continue;
      SINTER_CHECK(zeros, state,
          str("data parallel: ", name, " got no gradient: it is ", param.describe(),
              "; every parameter needs one, since all ranks must sum the same tensors"),
          "train a module of which the loss uses all parameters");
      meta.grad = copy(broadcast_to(constant(0, param.dtype(), param.device()), param.shape()));
      meta.grad_taken_by = nullptr;
    }
    all_reduce(gradients(buckets_[b]), static_cast<int64_t>(b));
  }
  for (size_t b = 0; b < buckets_.size(); ++b)
    all_reduce_wait(gradients(buckets_[b]), static_cast<int64_t>(b));
}

Tensors DataParallel::gradients(const Bucket& bucket) const {
  Tensors list;
  for (const size_t i : bucket.params) list.push_back(params_[i].tensor.grad());
  return list;
}

void DataParallel::check_equal() {
  if (!ranks_) return;
  std::string sums;  // 4 bytes for each parameter
  for (const auto& [_, param] : params_) {
    const Tensor here = param.to(kCpu);
    const uint32_t crc = crc32(here.raw(), static_cast<size_t>(bytes_of(here)));
    sums.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  }
  const std::vector<std::string> all = ranks_->gather(sums);
  for (size_t i = 0; i < params_.size(); ++i) {
    for (size_t r = 1; r < all.size(); ++r) {
      const bool same =
          all[r].size() == all[0].size() && all[r].compare(4 * i, 4, all[0], 4 * i, 4) == 0;
      SINTER_CHECK(same, state,
          str("data parallel: ranks hold different weights: ", params_[i].name, " of rank ", r,
              " is not that of rank 0; it is the first of ", params_.size(),
              " parameters that differs"),
          "give all ranks the same seed, checkpoint and order of updates");
    }
  }
}

std::vector<int64_t> DataParallel::bucket_sizes() const {
  std::vector<int64_t> sizes;
  for (const Bucket& bucket : buckets_) {
    sizes.push_back(0);
    for (const size_t i : bucket.params) sizes.back() += params_[i].tensor.numel();
  }
  return sizes;
}

}  // namespace sinter::distributed
