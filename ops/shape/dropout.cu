// dropout: y = x * scale where the mask keeps, else 0. The mask is drawn from (seed, offset) in
// device memory, so a replay needs no update.
#include "ops/ops.h"
#include "ops/pointwise/pointwise_kernels.cuh"
#include "ops/shape/dropout_mask.h"

namespace sinter::SINTER_KERNEL_NS {

// A thread owns one or two blocks of Philox, 4 elements each, at least 16 bytes. Reads x once,
// writes y once. Element i of x is number `first` + i of the mask; the first block may begin before
// x, and then no thread's elements are aligned.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
dropout_philox(int64_t n, int64_t first, bool vec, int64_t op_id, uint32_t threshold,
    compute_t<T> scale, In<T> x, In<int64_t> rng, Out<T> y) {
  constexpr int kOwn = kVec<T> < 4 ? 4 : kVec<T>;
  const DropoutMask mask(rng[0], rng[1], rng[2] + op_id, threshold);
  const auto value = [&](T v, uint32_t word) {
    return mask.kept(word) ? T(compute_t<T>(v) * scale) : T(0);
  };
  for (int64_t i = first_item() * kOwn - first % 4; i < n; i += item_step() * kOwn) {
    Vec<uint32_t, kOwn> words;
    SINTER_UNROLL
    for (int b = 0; b < kOwn; b += 4) {
      const auto four =
          philox_words(mask.seed, mask.stream, static_cast<uint64_t>(first + i + b) / 4);
      words[b] = four[0];
      words[b + 1] = four[1];
      words[b + 2] = four[2];
      words[b + 3] = four[3];
    }
    if (vec && i + kOwn <= n) {
      SINTER_UNROLL
      for (int part = 0; part < kOwn; part += kVec<T>) {
        Vec<T, kVec<T>> v = x.template load_vec<kVec<T>>(i + part);
        SINTER_UNROLL
        for (int k = 0; k < kVec<T>; ++k) v[k] = value(v[k], words[part + k]);
        y.store_vec(i + part, v);
      }
    } else {
      SINTER_UNROLL
      for (int k = 0; k < kOwn; ++k) {
        if (0 <= i + k && i + k < n) y.put(i + k, value(x[i + k], words[k]));
      }
    }
  }
}

void dropout(const Call& call) {
  const auto& attrs = call.as<DropoutAttrs>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const int64_t n = x.numel(), first = first_element(x, attrs);
  if (n == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    constexpr int N = kVec<T>;
    launch<dropout_philox<T>>(item_grid(blocks_for(n + first % 4, std::max(4, N))), kItemBlock, 0,
        n, first, first % 4 == 0 && is_aligned<T, N>(x) && is_aligned<T, N>(y), attrs.op_id,
        DropoutMask::threshold_of(attrs.p),
        static_cast<compute_t<T>>(DropoutMask::scale_of(attrs.p)), in<T>(x),
        in<int64_t>(call.in[1]), out<T>(y));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
