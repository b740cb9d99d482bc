// f32 products of small batches and thin layers: no packing, and threads only where the work pays
// the fork. Two kernels, each a register tile of C with the sum over k inside (sizes for AVX-512):
//   rows:  C += a column of A x a row of B (B not transposed): 6 x 64 of C; a[i, p] is broadcast,
//   B's row is loaded. dots:  C = rows of A . rows of B (B transposed, A not):    6 x 4 of C; one
//   accumulator of many lanes each, added up at the end.
// The order of each sum depends on the shape alone, never on the number of threads.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/device/cpu_gemm.h"
#include "core/parallel.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define UNROLLED _Pragma("GCC unroll 8")

namespace sinter::detail {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kTileVectors = 4, kDotRows = 6;
#elif defined(__AVX__)
constexpr int kLanes = 8, kTileVectors = 2, kDotRows = 2;
#else
constexpr int kLanes = 4, kTileVectors = 2, kDotRows = 2;
#endif
constexpr int kTileRows = 6, kTileCols = kTileVectors * kLanes, kDotCols = 4;
typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef float Vec4 __attribute__((vector_size(16)));

template <class V = Vec> inline V load(const float* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V> inline void store(float* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// The first `count` lanes; the others are 0 and their memory is not touched.
inline Vec load_part(const float* p, int count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#else
  Vec v{};
  for (int l = 0; l < count; ++l) v[l] = p[l];
  return v;
#endif
}
inline void store_part(float* p, Vec v, int count) {
  for (int l = 0; l < count; ++l) p[l] = v[l];
}

// Folds the upper lanes onto the lower until four are left.
template <class V> Vec4 fold(V v) {
  if constexpr (sizeof v == 64) {
    return fold(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  } else if constexpr (sizeof v == 32) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
  } else {
    return v;
  }
}

// In each group of four lanes: the lower two of a and b (From 0) or the upper two (From 2),
// alternating (By 1) or pairwise (By 2).
template <int By, int From, int... L>
inline Vec mix(Vec a, Vec b, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, b,
      (L / 4 * 4 + From + (By == 1 ? L % 4 / 2 : L % 2) +
          (By == 1 ? L % 2 : L % 4 / 2) * kLanes)...);
}

// The four sums over the lanes of a, b, c and d.
inline Vec4 lane_sums(Vec a, Vec b, Vec c, Vec d) {
  constexpr auto lanes = std::make_integer_sequence<int, kLanes>();
  const Vec ab = mix<1, 0>(a, b, lanes) + mix<1, 2>(a, b, lanes),
            cd = mix<1, 0>(c, d, lanes) + mix<1, 2>(c, d, lanes);
  return fold(mix<2, 0>(ab, cd, lanes) + mix<2, 2>(ab, cd, lanes));
}

// A tile's operands: a[i * a_row + p * a_step], b at the tile's first column (rows) or first row
// (dots), c at its corner.
struct Tile {
  const float *a, *b, *bias;
  float* c;
  int64_t k, a_row, a_step, ldb, ldc;
};

// R rows x V vectors. `count` < kLanes (with V == 1): so many columns are there.
template <int R, int V, class Load> void rows_tile(const Tile& t, Load load_b, int count) {
  float* const corner = t.c;
  const int64_t ldc = t.ldc;
  Vec sum[R][V];
  UNROLLED for (int v = 0; v < V; ++v) {
    const Vec start = t.bias ? load_b(t.bias + v * kLanes) : Vec{};
    UNROLLED for (int i = 0; i < R; ++i) sum[i][v] = start;
  }
  const float *a = t.a, *b = t.b;
  for (int64_t p = 0; p < t.k; ++p, a += t.a_step, b += t.ldb) {
    Vec row[V];
    UNROLLED for (int v = 0; v < V; ++v) row[v] = load_b(b + v * kLanes);
    UNROLLED for (int i = 0; i < R; ++i) {
      const Vec factor = a[i * t.a_row] - Vec{};  // a broadcast: x - 0 is x, even for -0
      UNROLLED for (int v = 0; v < V; ++v) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
  }
  UNROLLED for (int i = 0; i < R; ++i) {
    UNROLLED for (int v = 0; v < V; ++v) {
      float* c = corner + i * ldc + v * kLanes;
      if (V == 1 && count < kLanes) {
        store_part(c, sum[i][v], count);
      } else {
        store(c, sum[i][v]);
      }
    }
  }
}

template <int R> void rows_tiles(const Tile& whole, int64_t cols) {
  if (cols >= kTileCols)
    return rows_tile<R, kTileVectors>(
        whole, [](const float* p) { return load(p); }, kLanes);
  Tile t = whole;
  for (int64_t j = 0; j < cols;
       j += kLanes, t.b += kLanes, t.c += kLanes, t.bias += t.bias ? kLanes : 0) {
    const int count = int(std::min<int64_t>(kLanes, cols - j));
    rows_tile<R, 1>(
        t, [count](const float* p) { return load_part(p, count); }, count);
  }
}

template <int R> void dots_tile(const Tile& t, int64_t cols) {
  Vec sum[R][kDotCols] = {};
  const float* b[kDotCols];  // a column that is not there reads the first one
  UNROLLED for (int j = 0; j < kDotCols; ++j) b[j] = t.b + (j < cols ? j * t.ldb : 0);
  const auto step = [&](int64_t p, auto load_from) {
    Vec row[kDotCols];
    UNROLLED for (int j = 0; j < kDotCols; ++j) row[j] = load_from(b[j] + p);
    UNROLLED for (int i = 0; i < R; ++i) {
      const Vec left = load_from(t.a + i * t.a_row + p);
      UNROLLED for (int j = 0; j < kDotCols; ++j) sum[i][j] = fma(left, row[j], sum[i][j]);
    }
  };
  const int64_t whole = t.k / kLanes * kLanes;
  for (int64_t p = 0; p < whole; p += kLanes) step(p, [](const float* p) { return load(p); });
  if (whole < t.k)
    step(whole, [count = int(t.k - whole)](const float* p) { return load_part(p, count); });
  UNROLLED for (int i = 0; i < R; ++i) {
    Vec4 out = lane_sums(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    float* c = t.c + i * t.ldc;
    if (cols >= kDotCols) {
      if (t.bias) out += load<Vec4>(t.bias);
      store(c, out);
    } else {
      for (int j = 0; j < cols; ++j) c[j] = out[j] + (t.bias ? t.bias[j] : 0.0f);
    }
  }
}

// Calls the kernel of as many rows as there are, at most R.
template <int R, class Kernel> void with_rows(int64_t rows, const Kernel& kernel) {
  if constexpr (R > 1) {
    if (rows < R) return with_rows<R - 1>(rows, kernel);
  }
  kernel(std::integral_constant<int, R>{});
}

}  // namespace

constexpr int64_t kCachedOperands = 32 << 10;  // elements of both operands: 128 KiB

// Where these kernels beat oneDNN on an Ice Lake, whose calls cost 1 us, a fork, and the packing of
// a transposed B.
bool gemm_small_fits(const Gemm& desc) {
  const auto& [m, n, k, trans_a, trans_b, lda, ldb, ldc, in, out, bias] = desc;
  if (in != DType::f32 || bias != DType::f32 || (trans_a && trans_b)) return false;
  const int64_t products = m * n * k, thin = std::min(m, n);
  return trans_b ? products <= 100'000 || thin <= 16 || (thin <= 32 && k >= 256)
                 : products <= 2'500'000 || m <= 12;
}

void gemm_small(const Gemm& desc, const float* of_a, const float* of_b, const float* bias,
    float* of_c, const GemmBatch& batch) {
  const int64_t rows = desc.trans_b ? kDotRows : kTileRows,
                cols = desc.trans_b ? kDotCols : kTileCols;
  const int64_t row_tiles = (desc.m + rows - 1) / rows, col_tiles = (desc.n + cols - 1) / cols;
  // In units of about 15 ps on Ice Lake: loads and stores by bytes, products by a quarter.
  const int64_t high = std::min(rows, desc.m), wide = std::min(cols, desc.n);
  const int64_t cost =
      2 * (high * desc.k + wide * desc.k + 2 * high * wide) + high * wide * desc.k / 4;
  // The inner loop passes over the smaller operand, while the tile of the larger one stays in the
  // cache. Where both stay there, each thread makes rows of its own, as the update of a weight and
  // the next product take them.
  const bool fits = (desc.m + desc.n) * desc.k <= kCachedOperands;
  const bool down = desc.m <= desc.n && !fits;
  const int64_t inner_tiles = down ? row_tiles : col_tiles, tiles = row_tiles * col_tiles;
  parallel_for(batch.products() * tiles, grain_of(cost), [&](int64_t begin, int64_t end) {
    int64_t product = begin / tiles, tile = begin % tiles;
    int64_t outer = tile / inner_tiles, inner = tile % inner_tiles;
    while (begin < end) {
      const float *const a = of_a + batch.a_of(product), *const b = of_b + batch.b_of(product);
      float* const c = of_c + product * desc.m * desc.n;
      const int64_t last = std::min(end - begin, tiles - tile);
      for (int64_t left = last; left > 0; --left) {
        const int64_t i = (down ? inner : outer) * rows, j = (down ? outer : inner) * cols;
        const Tile t{a + (desc.trans_a ? i : i * desc.lda), b + (desc.trans_b ? j * desc.ldb : j),
            bias ? bias + j : nullptr, c + i * desc.ldc + j, desc.k, desc.trans_a ? 1 : desc.lda,
            desc.trans_a ? desc.lda : 1, desc.ldb, desc.ldc};
        if (desc.trans_b) {
          with_rows<kDotRows>(desc.m - i, [&](auto r) { dots_tile<r()>(t, desc.n - j); });
        } else {
          with_rows<kTileRows>(desc.m - i, [&](auto r) { rows_tiles<r()>(t, desc.n - j); });
        }
        if (++inner == inner_tiles) {
          inner = 0;
          ++outer;
        }
      }
      begin += last;
      ++product;
      tile = outer = inner = 0;
    }
  });
}

}  // namespace sinter::detail
