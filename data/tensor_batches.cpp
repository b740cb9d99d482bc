#include "data/tensor_batches.h"

#include <cstring>

#include "core/crc32.h"
#include "core/error.h"
#include "core/numbers.h"
#include "core/parallel.h"
#include "profiler/scope.h"

namespace sinter {
namespace {

Shape with_rows(const Tensor& t, int64_t rows) {
  Shape shape = t.shape();
  shape[0] = rows;
  return shape;
}

// Of each of them, which are to be as many.
int64_t rows_of_set(const Tensors& set) {
  SINTER_CHECK(!set.empty(), data, "batches: the set is empty: no tensors; at least 1");
  for (size_t i = 0; i < set.size(); ++i) {
    SINTER_CHECK(set[i].defined() && set[i].rank() > 0 && !set[i].is_meta(), shape,
        str("batches: tensor ", i, " of the set has no rows: it is ", set[i].describe(),
            "; the first dimension is that of rows"));
    SINTER_CHECK(set[i].size(0) == set[0].size(0), shape,
        str("batches: rows differ: tensor 0 of the set is ", set[0].describe(), ", tensor ", i,
            " is ", set[i].describe()));
  }
  return set[0].size(0);
}

}  // namespace

TensorBatches::TensorBatches(const Tensors& set, const TensorBatchOptions& options)
    : BatchSource(rows_of_set(set), options.size, options.drop_last), options_(options) {
  if (!options_.device) options_.device = set[0].device();
  for (const Tensor& t : set)
    set_.push_back(t.device() == kCpu && t.is_contiguous() ? t : t.to(kCpu));
}

Tensors TensorBatches::next() {
  const BatchPosition at = position();
  const int64_t rows = rows_of(at), first = at.batch * size(), all = set_[0].size(0);
  if (options_.shuffle && order_epoch_ != at.epoch) {
    order_ = epoch_order(all, options_.seed, at.epoch);
    order_epoch_ = at.epoch;
  }
  Tensors batch;
  for (const Tensor& from : set_) {
    const Tensor to = Tensor::empty(with_rows(from, rows), from.dtype());
    const size_t bytes = size_t(bytes_of(from) / all);
    const auto* const in = static_cast<const std::byte*>(from.raw());
    auto* const out = static_cast<std::byte*>(to.raw());
    const profiler::KernelSpan span;
    parallel_for(bytes > 0 ? rows : 0, 256, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const auto of = size_t(options_.shuffle ? order_[size_t(first + row)] : first + row);
        std::memcpy(out + size_t(row) * bytes, in + of * bytes, bytes);
      }
    });
    batch.push_back(to);
  }
  if (options_.then) batch = options_.then(batch);
  for (Tensor& t : batch) {
    if (*options_.device != kCpu) t = t.to(*options_.device);
  }
  advance();
  return batch;
}

Fed TensorBatches::take() {
  const int64_t rows = rows_of(position());
  return {.tensors = next(), .of = rows};
}

Tensors TensorBatches::shape_only(int64_t rows) const {
  Tensors out;
  for (const Tensor& t : set_)
    out.push_back(Tensor::meta(with_rows(t, rows), t.dtype(), *options_.device));
  return out;
}

std::string TensorBatches::describe() const {
  std::string out = sizes();
  if (options_.drop_last) out += ", each of them whole";
  out += options_.shuffle ? str(", shuffled by seed ", options_.seed) : ", in their order";
  for (const Tensor& t : set_) out += str(", ", name_of(t.dtype()), t.shape().str());
  return out;
}

uint32_t TensorBatches::crc32() {
  if (crc32_) return *crc32_;
  uint32_t crc = 0;
  for (const Tensor& t : set_) crc = sinter::crc32(t.raw(), size_t(bytes_of(t)), crc);
  return *(crc32_ = crc);
}

}  // namespace sinter
