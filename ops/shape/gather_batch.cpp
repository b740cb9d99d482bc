#include "ops/shape/gather_batch.h"

#include "core/parallel.h"
#include "ops/kernels.h"

// N items of the set, B of the batch, D pixels of an image
namespace sinter {
namespace {

Tensors infer(Operands in, const Attrs& attrs) {
  const Tensor &images = in[0], &index = in[2], cursor = optional_input(in, 3);
  const auto& [out, mnist, rows, stride] = attrs.as<GatherBatchAttrs>();
  const int64_t least = cursor.defined(), most = least ? index.numel() : 0;
  SINTER_CHECK(rows >= least && rows <= most && stride >= least && stride <= most, shape,
      str("gather_batch: rows out of range: ", rows, ", stride ", stride, " with index ",
          index.describe(), " and cursor ", cursor.describe(),
          "; with a cursor 1 to those of the index, else 0"));
  const int64_t batch = cursor.defined() ? rows : index.numel();
  return {Tensor::shape_only({batch, numel_of_dims(images, 1)}, out, images.device()),
      Tensor::shape_only({batch}, DType::i32, images.device())};
}

// The rows of the batch, not the whole set.
Cost cost(Operands, Operands out, const Attrs& attrs) {
  const int64_t n = out[0].numel();
  return {.flops = n * (attrs.as<GatherBatchAttrs>().mnist ? 5 : 3),
      .bytes_read = n + bytes_of(out[1]) + out[1].numel() * int64_t{sizeof(int64_t)},
      .bytes_written = bytes_of(out[0]) + bytes_of(out[1])};
}

// Rows of a shuffled epoch come from anywhere in memory: asking early hides most of the wait.
void prefetch_row(const uint8_t* row, int64_t d) {
  for (int64_t at = 0; at < d; at += 64) __builtin_prefetch(row + at);
}

// The batch's part of the index, whose items are there. Moves the cursor on.
const int64_t* index_of_batch(const Call& call) {
  const Tensor &index = call.in[2], place = optional_input(call.in, 3);
  const int64_t rows = call.out[1].numel(), items = call.in[1].numel(),
                cursor = place.defined() ? *place.data<int64_t>() : 0,
                next = cursor + call.as<GatherBatchAttrs>().stride;
  SINTER_CHECK(cursor >= 0 && cursor <= index.numel() - rows, data,
      str("gather_batch: cursor out of range: ", rows, " rows from ", cursor, " on of ",
          index.describe()));
  const int64_t* at = index.data<int64_t>() + cursor;
  for (int64_t b = 0; b < rows; ++b) {
    SINTER_CHECK(at[b] >= 0 && at[b] < items, data,
        str("gather_batch: index out of range: ", at[b], " at item ", cursor + b, " of ",
            index.describe(), "; ", items, " items are 0..", items - 1));
  }
  if (place.defined()) *place.data<int64_t>() = next < index.numel() ? next : 0;
  return at;
}

template <bool kMnist, class T> void gather(const Call& call, const int64_t* index) {
  const int64_t d = numel_of_dims(call.in[0], 1);
  const uint8_t* images = call.in[0].data<uint8_t>();
  const int32_t* from = call.in[1].data<int32_t>();
  T* to = call.out[0].data<T>();
  int32_t* labels = call.out[1].data<int32_t>();
  parallel_for(
      call.out[1].numel(), grain_of((1 + int64_t(sizeof(T))) * d), [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          if (b + 4 < end) prefetch_row(images + index[b + 4] * d, d);
          const uint8_t* row = images + index[b] * d;
          T* out = to + b * d;
          for (int64_t i = 0; i < d; ++i) out[i] = T(pixel<kMnist>(row[i]));
          labels[b] = from[index[b]];
        }
      });
}

void cpu(const Call& call) {
  const auto& [out, mnist, rows, stride] = call.as<GatherBatchAttrs>();
  const int64_t* index = index_of_batch(call);
  if (out == DType::bf16)
    return mnist ? gather<true, bf16>(call, index) : gather<false, bf16>(call, index);
  return mnist ? gather<true, float>(call, index) : gather<false, float>(call, index);
}

}  // namespace

const OpDef kGatherBatchOp = listed<kGatherBatchOp>(
    {.formula = "the images and labels of the next batch, scaled and normalized",
        .attrs = attr_type<GatherBatchAttrs>(),
        .infer = infer,
        .cost = cost,
        .cpu = cpu});

}  // namespace sinter
