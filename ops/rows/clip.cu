// squared_norm (ops/rows/reduce.cuh) and clip_in_place.
#include "ops/ops.h"
#include "ops/rows/clip_kernel.cuh"
#include "ops/rows/reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// x *= limit / sqrt(total) where that is below 1 (a NaN total gives NaN). A block owns `chunk`
// elements. Reads and writes x once.
template <class T, class W>
SINTER_KERNEL clip_in_place_vec(
    InOut<T> x, In<W> total, compute_t<T> limit, int64_t n, int64_t chunk, bool vec) {
  using V = compute_t<T>;
  const V factor = clip_factor(V(total[0]), limit);
  if (factor == V(1)) return;
  const int64_t begin = block_x() * chunk;
  scale_elements(x, begin, begin + chunk < n ? begin + chunk : n, vec, factor);
}

void squared_norm(const Call& call) {
  const Tensor& x = call.in[0];
  visit_float(x.dtype(), [&]<class T>(T) {
    reduce_by_rows<SumOfSquares, T, compute_t<T>>(x, call.out[0], reduction_of(x.shape(), ~0u));
  });
}

void clip_in_place(const Call& call) {
  const Tensor& x = call.in[0];
  constexpr int64_t kChunk = 4096;
  if (x.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    visit_float(call.in[1].dtype(), [&]<class W>(W) {
      launch<clip_in_place_vec<T, W>>({blocks_for(x.numel(), kChunk)}, 256, 0, in_out<T>(x),
          in<W>(call.in[1]), static_cast<compute_t<T>>(call.as<ClipAttrs>().max_norm), x.numel(),
          kChunk, is_aligned(x));
    });
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
