#include "data/batches.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "data/digits.h"

namespace sinter {
namespace {

constexpr uint32_t kShuffle = 0x73687566;  // "shuf": keeps this stream apart from those of weights and dropout

// Note [x/255 without a division]: 1/255 = 2^-8 + 2^-16 + rest. x times the first two terms is exact (17 bits), so adding x times the rest
// rounds once where it matters; a test finds all 256 results equal to x/255.0f.
constexpr float kHigh = 0x1.01p-8f, kRest = static_cast<float>(1.0 / 255 - 0x1.01p-8);

// Rows of a shuffled epoch come from anywhere in memory: asking early hides most of the wait.
void prefetch_row(const uint8_t* row) {
  for (int at = 0; at < kImagePixels; at += 64) __builtin_prefetch(row + at);
}

template <class T>
void scale_row(const uint8_t* from, T* to, Normalize normalize) {
  if (normalize == Normalize::none) {
    for (int i = 0; i < kImagePixels; ++i) {
      const auto x = static_cast<float>(from[i]);
      to[i] = T(x * kHigh + x * kRest);
    }
  } else {
    for (int i = 0; i < kImagePixels; ++i) {
      const auto x = static_cast<float>(from[i]);
      to[i] = T((x * kHigh + x * kRest - 0.1307f) / 0.3081f);
    }
  }
}

}  // namespace

std::vector<int32_t> epoch_order(int64_t n, uint64_t seed, int64_t epoch) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::array<uint32_t, 4> words{};
  for (int64_t i = n - 1, drawn = 0; i > 0; --i, ++drawn) {
    if (drawn % 4 == 0) {
      words = philox4x32({static_cast<uint32_t>(drawn / 4), kShuffle, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    }
    const auto j = static_cast<int64_t>((words[drawn % 4] * static_cast<uint64_t>(i + 1)) >> 32);
    std::swap(order[i], order[j]);
  }
  return order;
}

Batch gather_batch(const Split& split, std::span<const int32_t> indices, DType dtype, Normalize normalize) {
  const auto n = static_cast<int64_t>(indices.size());
  Batch batch{Tensor::empty({n, kImagePixels}, dtype), Tensor::empty({n}, DType::i32)};
  const uint8_t* images = split.images.data<uint8_t>();
  const int32_t* from = split.labels.data<int32_t>();
  int32_t* labels = batch.labels.data<int32_t>();
  const auto gather = [&](auto* to) {
    parallel_for(n, grain_of(5 * kImagePixels), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (i + 4 < end) prefetch_row(images + int64_t{indices[i + 4]} * kImagePixels);
        scale_row(images + int64_t{indices[i]} * kImagePixels, to + i * kImagePixels, normalize);
        labels[i] = from[indices[i]];
      }
    });
  };
  if (dtype == DType::bf16) {
    gather(batch.images.data<bf16>());
  } else {
    gather(batch.images.data<float>());
  }
  return batch;
}

Batches::Batches(Split split, const BatchOptions& options) : split_(std::move(split)), options_(options) {
  SINTER_CHECK(options.size >= 1, usage, cat("usage: --batch-size out of range: ", options.size, "; at least 1"));
  SINTER_CHECK(options.dtype == DType::f32 || options.dtype == DType::bf16, dtype,
               cat("batches: unsupported dtype: ", name_of(options.dtype), "; allowed f32, bf16"));
  SINTER_CHECK(split_.size() > 0, data, "batches: the set is empty: 0 images; at least 1");
  SINTER_CHECK(split_.size() <= std::numeric_limits<int32_t>::max(), data,
               cat("batches: too many images: ", split_.size(), "; at most 2^31-1"));
  if (!options.shuffle) {
    order_.resize(static_cast<size_t>(split_.size()));
    std::iota(order_.begin(), order_.end(), 0);
  }
}

void Batches::seek(BatchPosition position) {
  SINTER_ASSERT(position.epoch >= 0 && position.batch >= 0 && position.batch < per_epoch(), "epoch ", position.epoch, " batch ",
                position.batch);
  position_ = position;
}

Batch Batches::next() {
  if (options_.shuffle && order_epoch_ != position_.epoch) {
    order_ = epoch_order(split_.size(), options_.seed, position_.epoch);
    order_epoch_ = position_.epoch;
  }
  const int64_t first = position_.batch * options_.size, count = std::min(options_.size, split_.size() - first);
  Batch batch = gather_batch(split_, std::span(order_).subspan(first, count), options_.dtype, options_.normalize);
  if (++position_.batch == per_epoch()) position_ = {position_.epoch + 1, 0};
  return batch;
}

}  // namespace sinter
