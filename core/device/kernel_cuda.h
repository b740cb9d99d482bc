// The device half of kernel.h: what nvcc compiles. Every construct is one or a few instructions;
// operands are bare pointers.
#pragma once

#include <cuda_runtime.h>

#define SINTER_KERNEL __global__ void
#define SINTER_KERNEL_BOUNDS(...) __global__ void __launch_bounds__(__VA_ARGS__)
#define SINTER_DEVICE_FN __device__ __forceinline__
#define SINTER_UNROLL _Pragma("unroll")
#define SINTER_NO_UNROLL _Pragma("unroll 1")

namespace sinter::on_cuda {

SINTER_DEVICE_FN int thread_x() { return static_cast<int>(threadIdx.x); }
SINTER_DEVICE_FN int threads_per_block() { return static_cast<int>(blockDim.x); }
SINTER_DEVICE_FN int lane() { return static_cast<int>(threadIdx.x & 31); }
SINTER_DEVICE_FN int warp() { return static_cast<int>(threadIdx.x >> 5); }
SINTER_DEVICE_FN int warps_per_block() { return static_cast<int>((blockDim.x + 31) >> 5); }
SINTER_DEVICE_FN int64_t block_x() { return blockIdx.x; }
SINTER_DEVICE_FN int64_t block_y() { return blockIdx.y; }
SINTER_DEVICE_FN int64_t block_z() { return blockIdx.z; }
SINTER_DEVICE_FN int64_t grid_x() { return gridDim.x; }
SINTER_DEVICE_FN int64_t grid_y() { return gridDim.y; }
SINTER_DEVICE_FN int64_t grid_z() { return gridDim.z; }

namespace detail {
template <int N, class T> SINTER_DEVICE_FN Vec<T, N> load(const T* p) {
  Vec<T, N> v;
  if constexpr (sizeof(v) == 16) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    memcpy(&v, &raw, 16);
  } else {
    v = *reinterpret_cast<const Vec<T, N>*>(p);
  }
  return v;
}
template <int N, class T> SINTER_DEVICE_FN void store(T* p, const Vec<T, N>& v) {
  if constexpr (sizeof(v) == 16) {
    uint4 raw;
    memcpy(&raw, &v, 16);
    *reinterpret_cast<uint4*>(p) = raw;
  } else {
    *reinterpret_cast<Vec<T, N>*>(p) = v;
  }
}
// Written out: what the compiler knows to be a copy from shared memory it would store in quarters.
template <int N, class T> SINTER_DEVICE_FN void store_global(T* p, const Vec<T, N>& v) {
  if constexpr (sizeof(v) == 16) {
    uint4 raw;
    memcpy(&raw, &v, 16);
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
                 "r"(raw.x), "r"(raw.y), "r"(raw.z), "r"(raw.w)
                 : "memory");
  } else {
    store(p, v);
  }
}
// What was not an argument of the kernel, but lies in shared memory, could point anywhere.
template <class T> SINTER_DEVICE_FN T* global(T* p) {
  __builtin_assume(__isGlobal(p));
  return p;
}
SINTER_DEVICE_FN uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
}  // namespace detail

template <class T> class In {
 public:
  In() = default;
  __host__ In(const T* data, int64_t) : data_(data) {}
  SINTER_DEVICE_FN T operator[](int64_t i) const { return *detail::global(data_ + i); }
  template <int N> SINTER_DEVICE_FN Vec<T, N> load_vec(int64_t i) const {
    return detail::load<N>(detail::global(data_ + i));
  }
  SINTER_FN explicit operator bool() const { return data_ != nullptr; }
  SINTER_DEVICE_FN const T* data() const { return data_; }

 private:
  const T* __restrict__ data_ = nullptr;
};

template <class T> class Out {
 public:
  Out() = default;
  __host__ Out(T* data, int64_t) : data_(data) {}
  SINTER_DEVICE_FN void put(int64_t i, T v) const { *detail::global(data_ + i) = v; }
  template <int N> SINTER_DEVICE_FN void store_vec(int64_t i, const Vec<T, N>& v) const {
    detail::store_global<N>(data_ + i, v);
  }
  SINTER_FN explicit operator bool() const { return data_ != nullptr; }

 private:
  T* __restrict__ data_ = nullptr;
};

// Read and written by the same thread.
template <class T> class InOut {
 public:
  InOut() = default;
  __host__ InOut(T* data, int64_t) : data_(data) {}
  SINTER_DEVICE_FN T operator[](int64_t i) const { return *detail::global(data_ + i); }
  SINTER_DEVICE_FN void put(int64_t i, T v) const { *detail::global(data_ + i) = v; }
  template <int N> SINTER_DEVICE_FN Vec<T, N> load_vec(int64_t i) const {
    return detail::load<N>(detail::global(data_ + i));
  }
  template <int N> SINTER_DEVICE_FN void store_vec(int64_t i, const Vec<T, N>& v) const {
    detail::store_global<N>(data_ + i, v);
  }
  SINTER_FN explicit operator bool() const { return data_ != nullptr; }
  SINTER_DEVICE_FN T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

template <class T, int N> class Shared {
 public:
  SINTER_DEVICE_FN T operator[](int i) const { return values_[i]; }
  SINTER_DEVICE_FN void put(int i, T v) { values_[i] = v; }

 private:
  alignas(16) T values_[N];
};

template <class I> SINTER_DEVICE_FN I keep(I i) {
  asm volatile("" : "+r"(i));
  return i;
}
SINTER_DEVICE_FN float keep(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
SINTER_DEVICE_FN double keep(double x) {
  asm volatile("" : "+d"(x));
  return x;
}
// r is 0, c all of it.
struct SharedPlace {
  int r, c;
};
template <class T, int kRows, int kCols, int kPad = 0> class SharedTile {
 public:
  static constexpr int kStride = kCols + kPad;
  SINTER_DEVICE_FN T operator()(int r, int c) const { return values_[r * kStride + c]; }
  SINTER_DEVICE_FN void put(int r, int c, T v) { values_[r * kStride + c] = v; }
  template <int N> SINTER_DEVICE_FN Vec<T, N> load_vec(int r, int c) const {
    return detail::load<N>(values_ + r * kStride + c);
  }
  template <int N> SINTER_DEVICE_FN void store_vec(int r, int c, const Vec<T, N>& v) {
    detail::store<N>(values_ + r * kStride + c, v);
  }
  SINTER_DEVICE_FN const T* at(int r, int c) const { return values_ + r * kStride + c; }
  // By way of a lane, its own: ptxas, which does not see keep(), could work it out anew in a loop.
  SINTER_DEVICE_FN static SharedPlace keep_place(int r, int c) {
    return {0, __shfl_sync(0xffffffffu, r * kStride + c, lane())};
  }

 private:
  alignas(16) T values_[kRows * kStride];
};

template <class S> SINTER_DEVICE_FN S& shared() {
  extern __shared__ __align__(128) unsigned char arena[];
  return *reinterpret_cast<S*>(arena);
}

template <class S> SINTER_DEVICE_FN void share(S& to, const S& from) {
  using Word = uint64_t;
  static_assert(sizeof(S) % sizeof(Word) == 0 && alignof(S) == alignof(Word));
  for (int w = thread_x(); w < static_cast<int>(sizeof(S) / sizeof(Word)); w += threads_per_block())
    reinterpret_cast<Word*>(&to)[w] = reinterpret_cast<const Word*>(&from)[w];
}

SINTER_DEVICE_FN void block_sync() { __syncthreads(); }
SINTER_DEVICE_FN void warp_sync() { __syncwarp(); }
template <class T> SINTER_DEVICE_FN T shfl(T v, int source) {
  return __shfl_sync(0xffffffffu, v, source);
}
template <class T> SINTER_DEVICE_FN T shfl_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}

SINTER_DEVICE_FN uint32_t ballot(bool yes) { return __ballot_sync(0xffffffffu, yes); }
SINTER_DEVICE_FN int first_bit(uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }

// Elsewhere no launch begins early (cuda::launch).
SINTER_DEVICE_FN void wait_for_upstream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
SINTER_DEVICE_FN void begin_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

SINTER_DEVICE_FN bool ticket(InOut<uint32_t> counter, uint32_t n, int64_t i = 0) {
  __syncthreads();  // what the block's other threads wrote, or still had to read, precedes its
                    // arrival; one thread's fence is enough for all, and far cheaper
  bool last = false;
  if (threadIdx.x == 0) {
    // Acquires and releases: __threadfence() orders more, and costs more.
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter.data() + i))
                 : "memory");
    last = before == n - 1;
    if (last) counter.put(i, 0);
  }
  return __syncthreads_or(last);
}

template <class T, int R, int C, int P>
SINTER_DEVICE_FN void cp_async16(
    SharedTile<T, R, C, P>& tile, int r, int c, const In<T>& in, int64_t i, bool valid) {
  // Not valid: 0 of the 16 bytes are read, wherever the address points.
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(detail::shared_address(tile.at(r, c))),
      "l"(in.data() + i), "r"(valid ? 16 : 0)
      : "memory");
}
template <class T> class Cursor {
 public:
  Cursor() = default;
  SINTER_DEVICE_FN Cursor(const In<T>& in, int64_t i)
      : at_(reinterpret_cast<const char*>(in.data() + i)) {
    asm volatile("" : "+l"(at_));  // as keep()
  }
  SINTER_DEVICE_FN Cursor behind(uint64_t bytes) const {
    Cursor c;
    c.at_ = at_ + bytes;
    return c;
  }
  SINTER_DEVICE_FN T operator[](int i) const {
    return *detail::global(reinterpret_cast<const T*>(at_) + i);
  }
  SINTER_DEVICE_FN const char* data() const { return at_; }

 private:
  const char* at_ = nullptr;
};
template <class T, int R, int C, int P>
SINTER_DEVICE_FN void cp_async16(
    SharedTile<T, R, C, P>& tile, int r, int c, const Cursor<T>& from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(detail::shared_address(tile.at(r, c))),
      "l"(from.data())
      : "memory");
}
template <class T, int R, int C, int P>
SINTER_DEVICE_FN void cp_async16(
    SharedTile<T, R, C, P>& tile, int r, int c, const Cursor<T>& from, bool valid) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(detail::shared_address(tile.at(r, c))),
      "l"(from.data()), "r"(valid ? 16 : 0)
      : "memory");
}
template <class S> SINTER_DEVICE_FN int keep_shared(S& s) {
  return keep(static_cast<int>(detail::shared_address(&s)));
}
template <class S> SINTER_DEVICE_FN S& shared_at(S&, int at) {
  return *static_cast<S*>(__cvta_shared_to_generic(static_cast<unsigned>(at)));
}
SINTER_DEVICE_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft> SINTER_DEVICE_FN void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

template <class T, int R, int C, int P>
SINTER_DEVICE_FN Vec<uint32_t, 4> ldmatrix_x4(const SharedTile<T, R, C, P>& tile, int r, int c) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  Vec<uint32_t, 4> d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d.v[0]), "=r"(d.v[1]), "=r"(d.v[2]), "=r"(d.v[3])
               : "r"(detail::shared_address(tile.at(r, c)))
               : "memory");
  return d;
}
template <class T, int R, int C, int P>
SINTER_DEVICE_FN Vec<uint32_t, 4> ldmatrix_x4_trans(
    const SharedTile<T, R, C, P>& tile, int r, int c) {
  static_assert(sizeof(T) == 2);
  Vec<uint32_t, 4> d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d.v[0]), "=r"(d.v[1]), "=r"(d.v[2]), "=r"(d.v[3])
               : "r"(detail::shared_address(tile.at(r, c)))
               : "memory");
  return d;
}

// The sums before are operands of their own: of sums that begin no register is set to 0.
SINTER_DEVICE_FN void mma_bf16_m16n8k16(
    Vec<float, 4>& d, const Vec<uint32_t, 4>& a, const Vec<uint32_t, 2>& b) {
  const Vec<float, 4> c = d;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d.v[0]), "=f"(d.v[1]), "=f"(d.v[2]), "=f"(d.v[3])
      : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b.v[0]), "r"(b.v[1]), "f"(c.v[0]),
      "f"(c.v[1]), "f"(c.v[2]), "f"(c.v[3]));
}
SINTER_DEVICE_FN uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
// cvt.rna, which is a test and an addition, with one test for two: the addition makes zeros of some
// NaNs. An infinity survives it, as the unit reads 19 bits. (isunordered would be the host's here,
// of which nvcc makes nothing.)
SINTER_DEVICE_FN void to_tf32(uint32_t& a, uint32_t& b) {
  const float x = __uint_as_float(a), y = __uint_as_float(b);
  if (x != x || y != y) return;
  a += 0x1000u;
  b += 0x1000u;
}
SINTER_DEVICE_FN void mma_tf32_m16n8k8(
    Vec<float, 4>& d, const Vec<uint32_t, 4>& a, const Vec<uint32_t, 2>& b) {
  const Vec<float, 4> c = d;
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%10, %11, %12, %13};"
      : "=f"(d.v[0]), "=f"(d.v[1]), "=f"(d.v[2]), "=f"(d.v[3])
      : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b.v[0]), "r"(b.v[1]), "f"(c.v[0]),
      "f"(c.v[1]), "f"(c.v[2]), "f"(c.v[3]));
}
SINTER_DEVICE_FN uint32_t to_bf16_pair(float a, float b) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}
SINTER_DEVICE_FN float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// The first fault stays until the host has read it (cuda::synchronize).
SINTER_DEVICE_FN void fault(uint32_t* flag, Fault fault, int64_t, int64_t, int64_t) {
  *flag = static_cast<uint32_t>(fault);
}

}  // namespace sinter::on_cuda
