// argmax (formula: ops/rows/row_formulas.h). Rows whose values lie side by side are a warp's,
// others a thread's, whose neighbours read beside it. Reads x once.
#include "ops/ops.h"
#include "ops/pointwise/pointwise_kernels.cuh"
#include "ops/rows/row_formulas.h"

namespace sinter::SINTER_KERNEL_NS {

struct WarpLanes {
  static constexpr int64_t count = 32;
  static SINTER_DEVICE_FN int64_t lane() { return SINTER_KERNEL_NS::lane(); }
  template <class F> static SINTER_DEVICE_FN void meet(const F& f) {
    SINTER_UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) f([mask](auto v) { return shfl_xor(v, mask); });
  }
};

template <class T, class Lanes> SINTER_KERNEL_BOUNDS(kItemBlock) argmax_lanes(Argmax<T> argmax) {
  const int64_t row = first_item() / Lanes::count;
  if (row < argmax.rows) argmax.template run<Lanes>(row);  // whole warps, if lanes meet
}

void argmax(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    const Argmax<T> argmax(call);
    const auto run = [&]<class Lanes>(Lanes) {
      launch<argmax_lanes<T, Lanes>>(
          {blocks_for(argmax.rows * Lanes::count, kItemBlock)}, kItemBlock, 0, argmax);
    };
    if (argmax.rows == 0) return;
    if (argmax.step == 1) return run(WarpLanes());
    run(OneLane());
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
