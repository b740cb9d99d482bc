// The kernels of tutorial 09: c = a b five times, each step a little further from the formula and a
// lot closer to the machine. a [m, k], b [k, n], c [m, n], row by row; m and n multiples of 128, k
// of 16.
#include "core/device/launch.h"

namespace sinter::SINTER_KERNEL_NS {

// Step 1: a thread per element of c. Neighbouring threads own neighbouring rows, so what a warp
// reads at once lies k elements apart.
SINTER_KERNEL gemm_naive(In<float> a, In<float> b, Out<float> c, int n, int k) {
  const int64_t row = block_x() * threads_per_block() + thread_x(), column = block_y();
  float sum = 0;
  for (int i = 0; i < k; ++i) sum = math::mul_add(a[row * k + i], b[int64_t{i} * n + column], sum);
  c.put(row * n + column, sum);
}

// Step 2: the same, but neighbouring threads own neighbouring columns.
SINTER_KERNEL gemm_coalesced(In<float> a, In<float> b, Out<float> c, int n, int k) {
  const int64_t row = block_y(), column = block_x() * threads_per_block() + thread_x();
  float sum = 0;
  for (int i = 0; i < k; ++i) sum = math::mul_add(a[row * k + i], b[int64_t{i} * n + column], sum);
  c.put(row * n + column, sum);
}

// Step 3: a block of 16 x 16 threads fetches 16 x 16 of a and of b into shared memory, where all of
// the block use them 16 times.
inline constexpr int kSmall = 16;
struct SharedTiles {
  SharedTile<float, kSmall, kSmall> a, b;
};
SINTER_KERNEL_BOUNDS(kSmall* kSmall)
gemm_shared_tiles(In<float> a, In<float> b, Out<float> c, int n, int k) {
  SharedTiles& s = shared<SharedTiles>();
  const int x = thread_x() % kSmall, y = thread_x() / kSmall;
  const int64_t row = block_y() * kSmall + y, column = block_x() * kSmall + x;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += kSmall) {
    s.a.put(y, x, a[row * k + k0 + x]);
    s.b.put(y, x, b[int64_t{k0 + y} * n + column]);
    block_sync();  // nobody reads before all have written
    SINTER_UNROLL
    for (int i = 0; i < kSmall; ++i) sum = math::mul_add(s.a(y, i), s.b(i, x), sum);
    block_sync();  // nobody overwrites before all have read
  }
  c.put(row * n + column, sum);
}

// Step 4: a thread owns 8 x 8 elements, in registers: 16 values out of shared memory feed 64
// multiply-adds. Block: 64 threads, 64 x 64 of c. a lies transposed, so that a thread's 8 rows are
// two 16-byte reads; writing it that way is where the banks collide, and pads help.
inline constexpr int kLarge = 64, kStep = 16;
template <int kPad> struct RegisterTiles {
  SharedTile<float, kStep, kLarge, kPad> a;
  SharedTile<float, kStep, kLarge> b;
};
template <int kPad>
SINTER_KERNEL_BOUNDS(64)
gemm_register_tiles(In<float> a, In<float> b, Out<float> c, int n, int k) {
  RegisterTiles<kPad>& s = shared<RegisterTiles<kPad>>();
  const int x = thread_x() % 8 * 4, y = thread_x() / 8 * 8;  // columns x.. and 32 + x.., rows y..
  const int64_t row = block_y() * kLarge, column = block_x() * kLarge;
  float sum[8][8] = {};
  for (int k0 = 0; k0 < k; k0 += kStep) {
    SINTER_UNROLL
    for (int part = 0; part < 4; ++part) {
      const int i = part * 64 + thread_x();
      const Vec<float, 4> from_a = a.load_vec<4>((row + i / 4) * k + k0 + i % 4 * 4);
      SINTER_UNROLL
      for (int j = 0; j < 4; ++j) s.a.put(i % 4 * 4 + j, i / 4, from_a[j]);
      s.b.store_vec(
          i / 16, i % 16 * 4, b.load_vec<4>((k0 + i / 16) * int64_t{n} + column + i % 16 * 4));
    }
    block_sync();
    SINTER_UNROLL
    for (int i = 0; i < kStep; ++i) {
      const Vec<float, 4> a0 = s.a.template load_vec<4>(i, y),
                          a1 = s.a.template load_vec<4>(i, y + 4);
      const Vec<float, 4> b0 = s.b.template load_vec<4>(i, x),
                          b1 = s.b.template load_vec<4>(i, 32 + x);
      SINTER_UNROLL
      for (int r = 0; r < 8; ++r) {
        SINTER_UNROLL
        for (int j = 0; j < 8; ++j)
          sum[r][j] = math::mul_add(
              r < 4 ? a0[r % 4] : a1[r % 4], j < 4 ? b0[j % 4] : b1[j % 4], sum[r][j]);
      }
    }
    block_sync();
  }
  SINTER_UNROLL
  for (int r = 0; r < 8; ++r) {
    const int64_t at = (row + y + r) * n + column + x;
    c.store_vec(at, Vec<float, 4>{sum[r][0], sum[r][1], sum[r][2], sum[r][3]});
    c.store_vec(at + 32, Vec<float, 4>{sum[r][4], sum[r][5], sum[r][6], sum[r][7]});
  }
}

// Step 5: tensor cores. A warp multiplies 16 x 16 by 16 x 8 of bf16 in one instruction, sums in
// f32. Block: 4 warps, each 32 x 32 of c. While one stage is used, cp_async fetches the next past
// the registers. Rows of 8 more values keep the banks apart.
struct MmaTiles {
  SharedTile<bf16, kLarge, kStep, 8> a[2];
  SharedTile<bf16, kStep, kLarge, 8> b[2];
};
SINTER_KERNEL_BOUNDS(128) gemm_mma(In<bf16> a, In<bf16> b, Out<float> c, int n, int k) {
  MmaTiles& s = shared<MmaTiles>();
  const int t = thread_x();
  const int64_t row = block_y() * kLarge, column = block_x() * kLarge;
  const auto fetch = [&](int k0) {
    cp_async16(
        s.a[k0 / kStep % 2], t / 2, t % 2 * 8, a, (row + t / 2) * k + k0 + t % 2 * 8, k0 < k);
    cp_async16(s.b[k0 / kStep % 2], t / 8, t % 8 * 8, b,
        (k0 + t / 8) * int64_t{n} + column + t % 8 * 8, k0 < k);
    cp_async_commit();
  };
  const int warp_row = warp() / 2 * 32, warp_column = warp() % 2 * 32, r = lane() % 16,
            half = lane() / 16 * 8;
  Vec<float, 4> sum[2][4] = {};
  fetch(0);
  for (int k0 = 0; k0 < k; k0 += kStep) {
    fetch(k0 + kStep);
    cp_async_wait<1>();  // all but the newest group have landed: this thread's part of this stage
    block_sync();        // and everybody's
    const int stage = k0 / kStep % 2;
    Vec<uint32_t, 4> fa[2], fb[2];
    SINTER_UNROLL
    for (int i = 0; i < 2; ++i) {
      fa[i] = ldmatrix_x4(s.a[stage], warp_row + i * 16 + r, half);
      fb[i] = ldmatrix_x4_trans(s.b[stage], r, warp_column + i * 16 + half);
    }
    SINTER_UNROLL
    for (int i = 0; i < 2; ++i) {
      SINTER_UNROLL
      for (int j = 0; j < 4; ++j)
        mma_bf16_m16n8k16(
            sum[i][j], fa[i], Vec<uint32_t, 2>{fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]});
    }
    block_sync();
  }
  SINTER_UNROLL
  for (int i = 0; i < 2; ++i) {
    SINTER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int64_t at = (row + warp_row + i * 16 + lane() / 4) * n + column + warp_column + j * 8 +
                         lane() % 4 * 2;
      c.store_vec(at, Vec<float, 2>{sum[i][j][0], sum[i][j][1]});
      c.store_vec(at + 8 * n, Vec<float, 2>{sum[i][j][2], sum[i][j][3]});
    }
  }
}

void run_naive(In<float> a, In<float> b, Out<float> c, int m, int n, int k) {
  launch<gemm_naive>(Grid{m / 128, n}, 128, 0, a, b, c, n, k);
}
void run_coalesced(In<float> a, In<float> b, Out<float> c, int m, int n, int k) {
  launch<gemm_coalesced>(Grid{n / 128, m}, 128, 0, a, b, c, n, k);
}
void run_shared_tiles(In<float> a, In<float> b, Out<float> c, int m, int n, int k) {
  launch<gemm_shared_tiles>(
      Grid{n / kSmall, m / kSmall}, kSmall * kSmall, sizeof(SharedTiles), a, b, c, n, k);
}
void run_register_tiles(In<float> a, In<float> b, Out<float> c, int m, int n, int k) {
  launch<gemm_register_tiles<0>>(
      Grid{n / kLarge, m / kLarge}, 64, sizeof(RegisterTiles<0>), a, b, c, n, k);
}
void run_padded_tiles(In<float> a, In<float> b, Out<float> c, int m, int n, int k) {
  launch<gemm_register_tiles<4>>(
      Grid{n / kLarge, m / kLarge}, 64, sizeof(RegisterTiles<4>), a, b, c, n, k);
}
void run_mma(In<bf16> a, In<bf16> b, Out<float> c, int m, int n, int k) {
  launch<gemm_mma>(Grid{n / kLarge, m / kLarge}, 128, sizeof(MmaTiles), a, b, c, n, k);
}

}  // namespace sinter::SINTER_KERNEL_NS
