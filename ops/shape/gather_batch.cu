// gather_batch: y[b, i] = pixel(x[index[c + b], i]), label_out[b] = label[index[c + b]].   N items,
// M indices, B of the batch, D pixels of an image, c the cursor, or 0 without one.
// Thread: 4 neighbouring pixels of one row, or 1 where D is odd; the thread of a row's first pixel
// owns its label. The last block to arrive moves the cursor, which all have read; what they asked
// of the images is under way meanwhile. Reads BD + 12B bytes and writes BDe + 4B, e bytes to an
// element. An image without pixels counts as one that nobody reads: it has a label.
#include "core/device/memory.h"
#include "ops/kernel_args.h"
#include "ops/shape/gather_batch.h"

namespace sinter::SINTER_KERNEL_NS {

template <bool kMnist, class T, int kPixels>
SINTER_KERNEL gather_batch_rows(In<uint8_t> x, In<int32_t> label, In<int64_t> index, Out<T> y,
    InOut<int64_t> cursor, InOut<uint32_t> counter, Out<int32_t> label_out, int64_t N, int64_t M,
    int64_t D, int64_t count, int64_t stride, uint32_t* flag) {
  const int64_t at = (block_x() * threads_per_block() + thread_x()) * kPixels;
  const int64_t b = at / D, i = at - b * D, c = cursor ? cursor[0] : 0, place = c + b;
  const bool listed = at < count && place >= 0 && place < M;
  const int64_t row = listed ? index[place] : -1;
  const bool there = row >= 0 && row < N;
  Vec<uint8_t, kPixels> in{};
  if (there && x) in = x.template load_vec<kPixels>(row * D + i);
  if (cursor && ticket(counter, static_cast<uint32_t>(grid_x())) && thread_x() == 0)
    cursor.put(0, c + stride < M ? c + stride : 0);
  if (at >= count) return;
  if (!there) {
    fault(flag, Fault::index_out_of_range, b, listed ? row : place, listed ? N : M);
    return;
  }
  if (x) {
    Vec<T, kPixels> out;
    SINTER_UNROLL
    for (int k = 0; k < kPixels; ++k) out[k] = T(pixel<kMnist>(in[k]));
    y.store_vec(at, out);
  }
  if (i == 0) label_out.put(b, label[row]);
}

namespace {

template <bool kMnist, class T> void run(const Call& call) {
  constexpr int kBlock = 256;
  const Tensor &images = call.in[0], &index = call.in[2], &y = call.out[0],
               place = optional_input(call.in, 3);
  InOut<int64_t> cursor;
  InOut<uint32_t> counter;
  if (place.defined()) {
    cursor = in_out<int64_t>(place);
    counter = {scratch(kDevice, 0).ticket, 1};
  }
  const bool empty = y.numel() == 0;
  const int64_t pixels = empty ? 1 : y.size(1), count = y.size(0) * pixels;
  const bool fours = pixels % 4 == 0 && reinterpret_cast<uintptr_t>(images.raw()) % 4 == 0;
  with_width<4>(fours, [&]<int kPixels>() {
    launch<gather_batch_rows<kMnist, T, kPixels>>(Grid{blocks_for(count, kBlock * kPixels)}, kBlock,
        0, empty ? In<uint8_t>() : in<uint8_t>(images), in<int32_t>(call.in[1]), in<int64_t>(index),
        out<T>(y), cursor, counter, out<int32_t>(call.out[1]), images.size(0), index.numel(),
        pixels, count, call.as<GatherBatchAttrs>().stride, fault_flag());
  });
}

}  // namespace

void gather_batch(const Call& call) {
  const auto& attrs = call.as<GatherBatchAttrs>();
  if (call.out[1].numel() == 0) return;
  if (attrs.out == DType::bf16) return attrs.mnist ? run<true, bf16>(call) : run<false, bf16>(call);
  return attrs.mnist ? run<true, float>(call) : run<false, float>(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
