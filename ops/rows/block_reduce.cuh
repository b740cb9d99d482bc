// For kernels that reduce: a join over a block, and the memory in which the blocks of one launch
// leave partial results for the block that arrives last (ticket()). Joins are fixed trees, so
// results have the same bits from run to run and on every device.
#pragma once

#include "core/device/memory.h"
#include "ops/kernel_args.h"

namespace sinter::SINTER_KERNEL_NS {

// What R::join makes of the block's values, in every thread. `scratch` may be used again after the
// call.
template <class R, class V> SINTER_DEVICE_FN V block_join(V v, Shared<V, 32>& scratch) {
  SINTER_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) v = R::join(v, shfl_xor(v, mask));
  if (lane() == 0) scratch.put(warp(), v);
  block_sync();
  V all = scratch[0];
  SINTER_NO_UNROLL
  for (int w = 1; w < warps_per_block(); ++w) all = R::join(all, scratch[w]);
  block_sync();
  return all;
}

struct SumOf {
  template <class V> static SINTER_DEVICE_FN V start() { return V(0); }
  template <class V> static SINTER_DEVICE_FN V join(V a, V b) { return a + b; }
};
struct MaxOf {
  template <class V> static SINTER_DEVICE_FN V start() { return V(-INFINITY); }
  template <class V> static SINTER_DEVICE_FN V join(V a, V b) { return math::max_or_nan(a, b); }
};

inline constexpr int64_t kPartials = 2048;

template <class V> struct Partials {
  InOut<V> values, total;  // total: one value that lasts from launch to launch
  InOut<uint32_t> ticket;
};
template <class V> Partials<V> partials(Device device) {
  const Scratch own = scratch(device, (kPartials + 1) * sizeof(V));
  V* values = static_cast<V*>(own.memory);
  return {{values, kPartials}, {values + kPartials, 1}, {own.ticket, 1}};
}

// Threads for a block that has work for n of them: whole warps, at most `most`.
inline int block_for(int64_t n, int most) {
  return static_cast<int>(std::clamp<int64_t>((n + 31) / 32 * 32, 32, most));
}

// f<kPerLane>() for a warp that holds a row of `cols` <= 1024 columns in registers.
template <class F> void with_columns_per_lane(int64_t cols, const F& f) {
  if (cols <= 32) return f.template operator()<1>();
  if (cols <= 128) return f.template operator()<4>();
  f.template operator()<32>();
}

}  // namespace sinter::SINTER_KERNEL_NS
