// gather_batch: y[b, i] = pixel(x[index[c + b], i]), label_out[b] = label[index[c + b]].   N items,
// M indices, B of the batch, D pixels of an image, c the cursor of a step state, or 0 without one.
// Thread: 4 neighbouring pixels of one row, or 1 where D is odd;
// the thread of a row's first pixel owns its label. Reads BD + 12B bytes and writes BDe + 4B, e
// bytes to an element. An image without pixels counts as one that nobody reads: it has a label.
#include "ops/kernel_args.h"
#include "ops/shape/gather_batch.h"

namespace sinter::SINTER_KERNEL_NS {

template <bool kMnist, class T, int kPixels>
SINTER_KERNEL gather_batch_rows(In<uint8_t> x, In<int32_t> label, In<int64_t> index, Out<T> y,
    In<int64_t> cursor, Out<int32_t> label_out, int64_t N, int64_t M, int64_t D, int64_t count,
    uint32_t* flag) {
  const int64_t at = (block_x() * threads_per_block() + thread_x()) * kPixels;
  if (at >= count) return;
  const int64_t b = at / D, i = at - b * D, place = (cursor ? cursor[0] : 0) + b;
  if (place < 0 || place >= M) {
    fault(flag, Fault::index_out_of_range, b, place, M);
    return;
  }
  const int64_t row = index[place];
  if (row < 0 || row >= N) {
    fault(flag, Fault::index_out_of_range, b, row, N);
    return;
  }
  if (x) {
    const Vec<uint8_t, kPixels> in = x.template load_vec<kPixels>(row * D + i);
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
               state = optional_input(call.in, 3);
  In<int64_t> cursor;
  if (state.defined()) cursor = In<int64_t>(&static_cast<StepState*>(state.raw())->cursor, 1);
  const bool empty = y.numel() == 0;
  const int64_t pixels = empty ? 1 : y.size(1), count = y.size(0) * pixels;
  const bool fours = pixels % 4 == 0 && reinterpret_cast<uintptr_t>(images.raw()) % 4 == 0;
  with_width<4>(fours, [&]<int kPixels>() {
    launch<gather_batch_rows<kMnist, T, kPixels>>(Grid{blocks_for(count, kBlock * kPixels)}, kBlock,
        0, empty ? In<uint8_t>() : in<uint8_t>(images), in<int32_t>(call.in[1]), in<int64_t>(index),
        out<T>(y), cursor, out<int32_t>(call.out[1]), images.size(0), index.numel(), pixels, count,
        fault_flag());
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
