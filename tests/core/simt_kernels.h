// Kernels for the tests of the emulator, each right or with one mistake that a GPU would let pass
// now and then.
#pragma once

#include "core/device/launch.h"

namespace sinter::SINTER_KERNEL_NS {

enum class Mistake { none, no_sync_after_store, no_sync_after_use, read_past_tile, no_wait };

inline constexpr int kTile = 16;
template <int kPad> struct GemmTiles {
  SharedTile<float, kTile, kTile, kPad> a, b;
};
inline constexpr int kStoreLine = __LINE__ + 14,
                     kUseLine = kStoreLine + 4;  // for the tsan build, whose reports name both
// c = a b with m, n, k multiples of 16. Block: 16 x 16 of c, a thread each; transposed a, so that
// pads show in the bank conflicts.
template <Mistake kMistake, int kPad>
SINTER_KERNEL tiled_gemm(In<float> a, In<float> b, Out<float> c, int n, int k) {
  GemmTiles<kPad>& s = shared<GemmTiles<kPad>>();
  const int x = thread_x() % kTile, y = thread_x() / kTile;
  const int64_t row = block_y() * kTile + y, column = block_x() * kTile + x;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += kTile) {
    const float from_a = a[row * k + k0 + x], from_b = b[(k0 + y) * n + column];
    // Both stores stand on the line kStoreLine.
    // clang-format off
    s.a.put(x, y, from_a); s.b.put(y, x, from_b);
    // clang-format on
    if (kMistake != Mistake::no_sync_after_store) block_sync();
    for (int i = 0; i < kTile + (kMistake == Mistake::read_past_tile); ++i) {
      sum = math::mul_add(s.a(i, y), s.b(i, x), sum);
    }
    if (kMistake != Mistake::no_sync_after_use) block_sync();
  }
  c.put(row * n + column, sum);
}

// y[i] = the sum over rows r of x[r, n - 1 - i], a row ahead being copied while one is added. One
// block of n / 4 threads.
template <Mistake kMistake> SINTER_KERNEL staged_sum(In<float> x, Out<float> y, int rows) {
  constexpr int kN = 256;
  auto& stages = shared<SharedTile<float, 2, kN>>();
  const int first = thread_x() * 4;
  const auto fetch = [&](int r) {
    cp_async16(stages, r % 2, first, x, r < rows ? int64_t{r} * kN + first : 0, r < rows);
    cp_async_commit();
  };
  Vec<float, 4> sum = {};
  fetch(0);
  for (int r = 0; r < rows; ++r) {
    fetch(r + 1);
    if (kMistake != Mistake::no_wait) cp_async_wait<1>();
    block_sync();
    const auto v = stages.template load_vec<4>(r % 2, kN - 4 - first);
    for (int i = 0; i < 4; ++i) sum[i] = sum[i] + v[3 - i];
    if (kMistake != Mistake::no_sync_after_use) block_sync();
  }
  y.store_vec(first, sum);
}

// Over a block, warps in order; the result in every thread.
SINTER_DEVICE_FN float block_sum(float v, Shared<float, 32>& scratch) {
  SINTER_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) v = v + shfl_xor(v, mask);
  if (lane() == 0) scratch.put(warp(), v);
  block_sync();
  float sum = scratch[0];
  for (int w = 1; w < warps_per_block(); ++w) sum = sum + scratch[w];
  block_sync();
  return sum;
}
// y[0] = the sum of x, by one ticket: block b adds its part, the last block all parts in order.
SINTER_KERNEL sum_by_ticket(
    In<float> x, InOut<float> parts, InOut<uint32_t> counter, Out<float> y) {
  auto& scratch = shared<Shared<float, 32>>();
  const float part = block_sum(x[block_x() * threads_per_block() + thread_x()], scratch);
  if (thread_x() == 0) parts.put(block_x(), part);
  if (!ticket(counter, uint32_t(grid_x()))) return;
  float sum = 0;
  for (int64_t i = thread_x(); i < grid_x(); i += threads_per_block()) sum += parts[i];
  sum = block_sum(sum, scratch);
  if (thread_x() == 0) y.put(0, sum);
}

struct MmaTiles {
  SharedTile<bf16, 16, 16, 8> a, b;
};
// c = a b, all 16 x 16. One warp.
SINTER_KERNEL mma_product(In<bf16> a, In<bf16> b, Out<float> c) {
  MmaTiles& s = shared<MmaTiles>();
  const int r = lane() / 2, half = lane() % 2 * 8;
  s.a.store_vec(r, half, a.load_vec<8>(r * 16 + half));
  s.b.store_vec(r, half, b.load_vec<8>(r * 16 + half));
  warp_sync();
  const auto fa = ldmatrix_x4(s.a, lane() % 16, lane() / 16 * 8),
             fb = ldmatrix_x4_trans(s.b, lane() % 16, lane() / 16 * 8);
  for (int j = 0; j < 2; ++j) {
    Vec<float, 4> d = {};
    mma_bf16_m16n8k16(d, fa, {fb[2 * j], fb[2 * j + 1]});
    for (int i = 0; i < 4; ++i)
      c.put((lane() / 4 + i / 2 * 8) * 16 + j * 8 + lane() % 4 * 2 + i % 2, d[i]);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
