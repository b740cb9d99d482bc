// What a kernel may use, and nothing else: a .cu file includes this, puts its kernels in namespace
// sinter::SINTER_KERNEL_NS, and is compiled by nvcc (on_cuda), by the host compiler for the
// emulator (on_simt) and, in tests, once more with counters (on_simt_counted). The device half is
// kernel_cuda.h, the host half kernel_simt.h; both offer, with the same meaning:
//
//   thread_x() lane() warp() warps_per_block() threads_per_block()
//       Blocks are one-dimensional; a multiple of 32 threads is customary.
//   block_x() block_y() block_z() grid_x() grid_y() grid_z()
//       int64_t.
//   In<T> Out<T> InOut<T>
//       Operands in device memory: x[i], x.load_vec<N>(i); y.put(i, v), y.store_vec(i, vec);
//       bool(x): is it there? The host half checks every access against the operand's extent, and
//       reads against memory that was never written.
//   shared<S>()
//       The block's shared memory as the struct S, of Shared<T, n> and SharedTile<T, rows, columns,
//       pad> members: s[i] s.put(i, v); t(r, c) t.put(r, c, v), t.load_vec<N>(r, c),
//       t.store_vec(r, c, vec). It begins as NaN.
//   share(s, x)
//       A copy of x, an argument of the kernel or a part of one, in shared memory, by all threads;
//       it is there after a block_sync().
//   block_sync() warp_sync() shfl(v, lane) shfl_xor(v, mask)
//       By all threads that have not left, and from the same place in the source.
//   ticket(counter, n, i = 0)
//       True in all threads of the last of n blocks to arrive at counter[i], which is 0 before and
//       after. Never waits.
//   wait_for_upstream() begin_dependents()
//       In a kernel that launch_waiting starts, which may begin before the one before it has ended:
//       waits for that one, and for all it wrote. Before, nothing in device memory is read or
//       written, by whatever thread; the host half says so where it counts. Then: the launch behind
//       this one may begin. In this order, so that whoever has waited has what all before it wrote.
//   cp_async16(tile, r, c, in, i, valid) cp_async_commit() cp_async_wait<N>()
//       16 bytes to shared memory; zeros if not valid.
//   Cursor<T>(in, i); cp_async16(tile, r, c, cursor.behind(bytes)[, valid]); cursor[j]
//       The 16 bytes from in[i] on, or those `bytes` further; in[i + j].
//   keep(i) tile.keep_place(r, c) keep_shared(s); shared_at(s, at)
//       A number, a place (its r and c may be added to; by all lanes of a warp) and where s is in
//       shared memory, in a register: the compiler does not see what it is made of, so it is not
//       worked out again wherever it is used, nor taken apart. And the S that is at such an
//       address, or a multiple of sizeof(S) from it.
//   ldmatrix_x4(tile, r, c) ldmatrix_x4_trans(tile, r, c)
//       Four matrices of 8 rows of 16 bytes; this lane's begins at (r, c). _trans: 16-bit values.
//   mma_bf16_m16n8k16(d, a, b) mma_tf32_m16n8k8(d, a, b)
//       d += a b on fragments in the PTX layout; f32 accumulators.
//   to_tf32(x)
//       The bits of the f32 x for such a fragment, rounded to 10 bits behind the point, halves away
//       from zero: the unit itself would cut them off.
//   to_tf32(a, b)
//       The same of two, in place, whose products go to the same sums: what is beside a NaN may
//       stay as it is.
//   to_bf16_pair(a, b)
//       Both rounded to bf16, a below, in a register of such a fragment.
//   larger(a, b)
//       The larger of two f32; NaN if one of them is.
//   fault(flag, Fault, i, value, n)
//       Reports bad data: item i holds `value`, allowed 0..n-1. The host half throws, the device
//       half sets the flag.
//
// Kernels are written SINTER_KERNEL name(args); helpers SINTER_DEVICE_FN. mul_add and the functions
// are those of core/math.h. No float atomics.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "core/math.h"

namespace sinter {

// 16 bytes or less that move as one: N values of T.
template <class T, int N> struct alignas(sizeof(T) * N) Vec {
  T v[N];
  SINTER_FN T& operator[](int i) { return v[i]; }
  SINTER_FN const T& operator[](int i) const { return v[i]; }
};
// As many as 16 bytes hold.
template <class T> inline constexpr int kVec = 16 / int(sizeof(T));

// Bad data that only a kernel can see.
enum class Fault : uint32_t { none, label_out_of_range, index_out_of_range };

}  // namespace sinter

#if defined(__CUDACC__)
#define SINTER_KERNEL_NS on_cuda
#include "core/device/kernel_cuda.h"
#else
#if defined(SINTER_COUNT_ACCESSES)
#define SINTER_KERNEL_NS on_simt_counted
#else
#define SINTER_KERNEL_NS on_simt
#endif
#include "core/device/kernel_simt.h"
#endif
