// Kernels that scripts/check_kernels must report, for check_kernels_selftest.py; bad_kernels.json
// says with which words. Each does one thing wrong.
template <class T> struct In {
  const T* __restrict__ p;
};
template <class T> struct Out {
  T* __restrict__ p;
};
#define KERNEL __global__ void
#define INDEX static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x)

template <class T> __global__ void good(In<float4> x, Out<float4> y, T n) {
  for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) {
    const float4 v = x.p[i];
    y.p[i] = make_float4(v.x + 1, v.y * 2, v.z, v.w);
  }
}
template __global__ void good(In<float4>, Out<float4>, int);
template __global__ void good(In<float4>, Out<float4>, long);
template <class T> __global__ void good_double(In<T> x, Out<T> y) {
  y.p[INDEX] = x.p[INDEX] * T(2.5);
}
template __global__ void good_double(In<double>, Out<double>);
template __global__ void good_double(In<float>, Out<float>);

KERNEL no_entry(float* y) { y[INDEX] = 1; }
KERNEL too_many_registers(const float* x, float* y) {
  float v[16];
  for (int i = 0; i < 16; ++i) v[i] = x[i * 64 + INDEX];
  __syncthreads();
  for (int i = 0; i < 16; ++i) y[INDEX + i * 64] = v[i] * v[15 - i];
}
__global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y, int n) {
  float v[64];
  for (int i = 0; i < 64; ++i) v[i] = x[i * 64 + INDEX];
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 17) % 64] + x[k];
  }
  for (int i = 0; i < 64; ++i) y[INDEX + i * 64] = v[i];
}
KERNEL frame(const int* x, float* y, int n) {
  float v[64] = {};
  for (int i = 0; i < n; ++i) v[x[i] & 63] += 3;
  y[INDEX] = v[x[INDEX + 1] & 63];
}
KERNEL atomic_float(float* y) { atomicAdd(y, 1.0f); }
KERNEL atomic_double(double* y) { atomicAdd(y, 1.0); }
KERNEL atomic_shared(float* y) {
  __shared__ float s;
  if (threadIdx.x == 0) s = 0;
  __syncthreads();
  y[INDEX] = atomicAdd(&s, 1.0f);
}
KERNEL reduce_float(float* y) {
  asm volatile("{ .reg .pred p; L: red.global.add.f32 [%0], 0f3f800000; }" ::"l"(y) : "memory");
}
KERNEL swaps(unsigned* y) { atomicCAS(y, 1u, 2u); }
KERNEL ticket(unsigned* y) { y[1] = atomicAdd(y, 1u); }
KERNEL no_mma(float* y) { y[INDEX] = 1; }
KERNEL half_accumulator(unsigned* y) {
  unsigned a = y[0], b = y[1];
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%0, %1, %0, %1}, {%0, %1}, "
      "{%0, %1};"
      : "+r"(a), "+r"(b));
  y[INDEX] = a + b;
}
KERNEL float_accumulator(unsigned* y) {
  unsigned a = y[0], b = y[1];
  float d[4] = {};
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %4, %5}, "
      "{%4, %5}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a), "r"(b));
  y[INDEX] = __float_as_uint(d[0] + d[1] + d[2] + d[3]);
}
KERNEL scalar_pointwise(In<float> x, Out<float> y) { y.p[INDEX] = x.p[INDEX] + 1; }
KERNEL unrolled_tail(In<float> x, Out<float> y, int n) {
  reinterpret_cast<float4*>(y.p)[INDEX] = reinterpret_cast<const float4*>(x.p)[INDEX];
#pragma unroll 4
  for (int i = 0; i < n; ++i) y.p[i] = x.p[i];
}
struct Operands {
  const float* x;
  float* y;
};
KERNEL no_vectors(Operands o) { o.y[INDEX] = o.x[INDEX]; }
KERNEL fuses(const float* x, float* y) { y[INDEX] = fmaf(x[INDEX], x[0], 1); }
KERNEL fuses_with_reason(const float* x, float* y) { y[INDEX] = fmaf(x[INDEX], x[0], 1); }
KERNEL double_literal(const float* x, float* y) { y[INDEX] = static_cast<float>(x[INDEX] * 0.1); }
KERNEL approximates(const float* x, float* y) { y[INDEX] = rsqrtf(x[INDEX]); }
KERNEL flushes(const float* x, float* y) {
  float v;
  asm("{ .reg .pred p; setp.gt.f32 p, %1, %1;\n @!p mul.ftz.f32 %0, %1, %1; }"
      : "=f"(v)
      : "f"(x[INDEX]));
  y[INDEX] = v;
}
__noinline__ __device__ float hidden(float x) { return rsqrtf(x); }
KERNEL calls(const float* x, float* y) { y[INDEX] = hidden(x[INDEX]) + hidden(y[INDEX]); }

// Loops, for --sass. Of hot_lean 64 multiply-adds for four loads.
template <bool kWaste> __device__ void multiply_add_loop(const float* x, float* y, int n) {
  float sums[8][8] = {};
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    float v[16];
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const float4 part = reinterpret_cast<const float4*>(x)[k * 4 + i / 4];
      v[i] = part.x;
      v[i + 1] = part.y;
      v[i + 2] = part.z;
      v[i + 3] = part.w;
    }
    if (kWaste) v[threadIdx.x % 2] = x[n / (k + 1)] + x[n % (k + 1)];
#pragma unroll
    for (int i = 0; i < 64; ++i)
      sums[i / 8][i % 8] = fmaf(v[i / 8], v[8 + i % 8], sums[i / 8][i % 8]);
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) y[INDEX + i * 64] = sums[i / 8][i % 8];
}
KERNEL hot_lean(const float* x, float* y, int n) { multiply_add_loop<false>(x, y, n); }
KERNEL hot_long(const float* x, float* y, int n) { multiply_add_loop<false>(x, y, n); }
KERNEL hot_wasteful(const float* x, float* y, int n) { multiply_add_loop<true>(x, y, n); }
KERNEL hot_local(const int* x, float* y, int n) {
  float v[64] = {};
  for (int i = 0; i < n; ++i) v[x[i] & 63] = fmaf(v[x[i] & 63], 3, 1);
  y[INDEX] = v[x[INDEX + 1] & 63];
}
__device__ void mma_once(float (&d)[4], unsigned a) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
      "{%4, %4}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a));
}
KERNEL hot_rolled_copy(const float* x, float* y, int n) {
  __shared__ float4 s[1024];
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(s));
  float d[4] = {};
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 16 * i), "l"(x + 4 * i));
    mma_once(d, __float_as_uint(s[k].x));
  }
  y[INDEX] = d[0] + d[1] + d[2] + d[3];
}
KERNEL hot_mma_8x8(const unsigned* x, float* y, int n) {
  float d[4] = {};
#pragma unroll 1
  for (int k = 0; k < n; ++k) mma_once(d, x[k]);
  y[INDEX] = d[0] + d[1] + d[2] + d[3];
}
