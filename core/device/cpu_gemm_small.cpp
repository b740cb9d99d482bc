// f32 products of small batches and thin layers, with threads only where the work pays the fork;
// and all of bf16 where no library multiplies it, whose operands are widened piece by piece. Three
// kernels, each a register tile of C with the sum over k inside (sizes for AVX-512), beside outer
// products of up to four terms, which are stores:
//   packed: more rows than two tiles: B in packed panels of 64 columns, any layout; 6 x 64 of C, or
//   12 x 32, so that the sums are more than a multiplication's latency.
//   rows:  few rows, B not transposed: C += a column of A x a row of B where they lie, 6 x 64 of C.
//   dots:  few rows, B transposed, A not: C = rows of A . rows of B; 6 x 4 of C, 4 x 3 of the 16
//   registers of AVX2; one accumulator of many lanes each, added up at the end.
// The order of each sum depends on the shape alone, never on the number of threads: packed and rows
// add from the bias on in the order of k.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/device/cpu_gemm.h"
#include "core/device/lanes.h"
#include "core/parallel.h"
#include "core/thread_buffer.h"

namespace sinter::detail {
namespace {

#if defined(__AVX512F__)
constexpr int kTileVectors = 4, kDotRows = 6, kDotCols = 4;
constexpr int64_t kDotMost = 16;  // rows in all: more are packed
#else
constexpr int kTileVectors = 2, kDotRows = 4, kDotCols = 3;
constexpr int64_t kDotMost = 32;
#endif
constexpr int kLanes = kLanesOf<float>;
constexpr int kTileRows = 6, kTileCols = kTileVectors * kLanes;
constexpr int kFewDots = 4;  // columns at a time where there are fewer rows than kDotRows
using Vec = Lanes<float>;
using Vec4 = Lanes<float, 4>;

// kCount numbers in f32: a bf16 is the upper half of one.
template <int kCount = kLanes> inline auto load_f32(const float* p) { return load<kCount>(p); }
template <int kCount = kLanes> inline auto load_f32(const bf16* p) {
  const auto bits = __builtin_convertvector(
      load<kCount>(reinterpret_cast<const uint16_t*>(p)), Lanes<uint32_t, kCount>);
  return reinterpret_cast<Lanes<float, kCount>>(bits << 16);
}
// The first `count` lanes; the others are 0 and their memory is not touched.
inline Vec load_part(const float* p, int count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#elif defined(__AVX__)
  alignas(32) static constexpr int32_t kMask[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_maskload_ps(
      p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + kLanes - count)));
#else
  Vec v{};
  for (int l = 0; l < count; ++l) v[l] = p[l];
  return v;
#endif
}

template <class V> inline void store_part(float* p, V v, int count) {
  constexpr int kAll = sizeof v / sizeof(float), kHalf = kAll / 2;
  if (count >= kAll) return store(p, v);
  if constexpr (kAll > 4) {
    if (count < kHalf) return store_part(p, lower_half(v), count);
    store(p, lower_half(v));
    store_part(p + kHalf, upper_half(v), count - kHalf);
  } else {
    for (int l = 0; l < count; ++l) p[l] = v[l];
  }
}

// Folds the upper lanes onto the lower until four are left.
template <class V> Vec4 fold(V v) {
  if constexpr (sizeof v > sizeof(Vec4)) {
    return fold(lower_half(v) + upper_half(v));
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
  bool fetches_next;  // (rows) the cache line of each of B's rows that the next tile begins with
};

// R rows x V vectors. `count` < kLanes (with V == 1): so many columns are there.
template <int R, int V, bool FetchesNext = false, class Load>
void rows_tile(const Tile& t, Load load_b, int count) {
  float* const corner = t.c;
  const int64_t ldc = t.ldc;
  Vec sum[R][V];
  SINTER_UNROLLED for (int v = 0; v < V; ++v) {
    const Vec start = t.bias ? load_b(t.bias + v * kLanes) : Vec{};
    SINTER_UNROLLED for (int i = 0; i < R; ++i) sum[i][v] = start;
  }
  const float *a = t.a, *b = t.b;
  for (int64_t p = 0; p < t.k; ++p, a += t.a_step, b += t.ldb) {
    Vec row[V];
    SINTER_UNROLLED for (int v = 0; v < V; ++v) row[v] = held(load_b(b + v * kLanes));
    if constexpr (FetchesNext) __builtin_prefetch(b + kTileCols);
    SINTER_UNROLLED for (int i = 0; i < R; ++i) {
      const Vec factor = all(a[i * t.a_row]);
      SINTER_UNROLLED for (int v = 0; v < V; ++v) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
  }
  SINTER_UNROLLED for (int i = 0; i < R; ++i) {
    SINTER_UNROLLED for (int v = 0; v < V; ++v) {
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
  const auto whole_vector = [](const float* p) { return load(p); };
  if (cols >= 2 * kTileCols && whole.fetches_next)
    return rows_tile<R, kTileVectors, true>(whole, whole_vector, kLanes);
  if (cols >= kTileCols) return rows_tile<R, kTileVectors>(whole, whole_vector, kLanes);
  Tile t = whole;
  for (int64_t j = 0; j < cols;
       j += kLanes, t.b += kLanes, t.c += kLanes, t.bias += t.bias ? kLanes : 0) {
    const int count = int(std::min<int64_t>(kLanes, cols - j));
    rows_tile<R, 1>(
        t, [count](const float* p) { return load_part(p, count); }, count);
  }
}

template <int R, int C> void dots_tile(const Tile& t, int64_t cols) {
  Vec sum[R][C] = {};
  const float* b[C];  // a column that is not there reads the first one
  SINTER_UNROLLED for (int j = 0; j < C; ++j) b[j] = t.b + (j < cols ? j * t.ldb : 0);
  const auto step = [&](int64_t p, auto load_from) {
    Vec row[C];
    SINTER_UNROLLED for (int j = 0; j < C; ++j) row[j] = held(load_from(b[j] + p));
    SINTER_UNROLLED for (int i = 0; i < R; ++i) {
      const Vec left = held(load_from(t.a + i * t.a_row + p));
      SINTER_UNROLLED for (int j = 0; j < C; ++j) sum[i][j] = fma(left, row[j], sum[i][j]);
    }
  };
  const int64_t whole = t.k / kLanes * kLanes;
  for (int64_t p = 0; p < whole; p += kLanes) step(p, [](const float* p) { return load(p); });
  if (whole < t.k)
    step(whole, [count = int(t.k - whole)](const float* p) { return load_part(p, count); });
  SINTER_UNROLLED for (int i = 0; i < R; ++i) {
    const Vec4 out = lane_sums(sum[i][0], sum[i][1], sum[i][2], sum[i][C - 1]);
    float* c = t.c + i * t.ldc;
    if (C == 4 && cols >= C) {
      store(c, t.bias ? out + load<4>(t.bias) : out);
    } else {
      for (int j = 0; j < std::min<int64_t>(C, cols); ++j)
        c[j] = out[j] + (t.bias ? t.bias[j] : 0.0f);
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

// ---- packed
//
// Note [Small products in packed panels]
//   A panel is kTileCols columns of B and kDepth of its rows, dense; columns that are not there are
//   0. Its 16 KiB stay in the L1 cache while a block of rows of A, which stays in the L2 cache,
//   passes. A's numbers are broadcast from where they lie; of a transposed A, where neighbours in
//   depth are a row apart, each line of the cache would be fetched for six of its numbers, so the
//   tiles of a block are made dense first. A tile of 6 x kTileVectors sums reads kTileVectors + 6
//   registers for 6 kTileVectors multiplications: no more of either than the two that a core does
//   in a cycle. A panel of at most half the vectors takes 12 rows: 6 sums would wait for each
//   other, as a multiplication takes 4 cycles and two begin in each. Beyond kDepth a sum goes on
//   from what C holds.

constexpr int kTallRows = 2 * kTileRows, kBlockRows = 8 * kTallRows;
constexpr int64_t kDepth = 4096 / kTileCols, kPanels = 32 << 10;  // elements at once: 128 KiB of L2

// R rows x V vectors, of which the last has `count` columns, over k rows of a panel. The sums begin
// with start[i * start_row].
struct PackedTile {
  const float* a;
  int64_t a_row, a_step, a_tile, k;  // a_tile: between two times kTallRows rows
  const float* panel;
  const float* start;
  int64_t start_row;
  float* c;
  int64_t ldc;
};
// Step is a_step where the compiler is to know it, so that four rows of a panel have fixed
// addresses. Not inlined: of AVX-512's 6 x 3 vectors GCC 12 would keep two on the stack, in the
// loop.
template <int R, int V, int Step>
[[gnu::noinline]] void packed_tile(const PackedTile& t, int count) {
  float* const corner = t.c;
  const int64_t ldc = t.ldc, a_row = Step == kTallRows ? 1 : t.a_row,
                a_step = Step ? Step : t.a_step;
  Vec sum[R][V];
  SINTER_UNROLLED for (int i = 0; i < R; ++i) {
    const float* const from = t.start + i * t.start_row;
    SINTER_UNROLLED for (int v = 0; v < V - 1; ++v) sum[i][v] = load(from + v * kLanes);
    sum[i][V - 1] =
        count < kLanes ? load_part(from + (V - 1) * kLanes, count) : load(from + (V - 1) * kLanes);
  }
  if (t.k >= 64) {
    SINTER_UNROLLED for (int i = 0; i < R; ++i) __builtin_prefetch(corner + i * ldc, 1);
  }
  const float *a = t.a, *upper = a + R / 2 * a_row, *b = t.panel;
  const auto term = [&](int64_t p) {
    Vec row[V];
    SINTER_UNROLLED for (int v = 0; v < V; ++v) row[v] = held(load(b + p * kTileCols + v * kLanes));
    SINTER_UNROLLED for (int i = 0; i < R; ++i) {
      const Vec factor =
          all(i < R / 2 ? a[i * a_row + p * a_step] : upper[(i - R / 2) * a_row + p * a_step]);
      SINTER_UNROLLED for (int v = 0; v < V; ++v) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
  };
  const auto pass = [&](int64_t terms) {
    a += terms * a_step;
    upper += terms * a_step;
    b += terms * kTileCols;
  };
  int64_t left = t.k;
  if constexpr (Step > 0) {
    for (; left >= 4; left -= 4, pass(4)) {
      SINTER_UNROLLED for (int p = 0; p < 4; ++p) term(p);
    }
  }
  for (; left > 0; --left, pass(1)) term(0);
  SINTER_UNROLLED for (int i = 0; i < R; ++i) {
    SINTER_UNROLLED for (int v = 0; v < V - 1; ++v) store(corner + i * ldc + v * kLanes, sum[i][v]);
    store_part(corner + i * ldc + (V - 1) * kLanes, sum[i][V - 1], count);
  }
}

template <int V, int Step> void packed_rows(PackedTile t, int64_t rows, int count) {
  const auto pass = [&](int64_t n, int64_t of_a) {
    rows -= n;
    t.a += of_a;
    t.start += n * t.start_row;
    t.c += n * t.ldc;
  };
  for (; rows >= kTallRows; pass(kTileRows, t.a_tile - kTileRows * t.a_row)) {
    constexpr bool kTall = V <= kTileVectors / 2;
    packed_tile<kTall ? kTallRows : kTileRows, V, Step>(t, count);
    pass(kTileRows, kTileRows * t.a_row);
    if constexpr (!kTall) packed_tile<kTileRows, V, Step>(t, count);
  }
  for (; rows > 0; pass(kTileRows, kTileRows * t.a_row))
    with_rows<kTileRows>(rows, [&](auto r) { packed_tile<r(), V, Step>(t, count); });
}
template <int V> void packed_columns(const PackedTile& t, int64_t rows, int cols) {
  if constexpr (V > 1) {
    if (cols <= (V - 1) * kLanes) return packed_columns<V - 1>(t, rows, cols);
  }
  cols -= (V - 1) * kLanes;
  if (t.k >= 32 && t.a_step == 1) return packed_rows<V, 1>(t, rows, cols);
  if (t.k >= 32 && t.a_step == kTallRows && t.a_row == 1)
    return packed_rows<V, kTallRows>(t, rows, cols);
  packed_rows<V, 0>(t, rows, cols);
}

// panel[p][c] = b[c][p], by squares.
template <class E>
void pack_transposed(const E* b, int64_t ldb, int64_t cols, int64_t k, float* panel) {
  constexpr int kSide = std::min(kLanes, 8);
  int64_t c = 0;
  for (; c + kSide <= cols; c += kSide, b += kSide * ldb) {
    int64_t p = 0;
    for (; p + kSide <= k; p += kSide) {
      Lanes<float, kSide> x[kSide];
      SINTER_UNROLLED for (int i = 0; i < kSide; ++i) x[i] = load_f32<kSide>(b + i * ldb + p);
      turn(x);
      SINTER_UNROLLED for (int i = 0; i < kSide; ++i) store(panel + (p + i) * kTileCols + c, x[i]);
    }
    for (; p < k; ++p) {
      for (int i = 0; i < kSide; ++i) panel[p * kTileCols + c + i] = b[i * ldb + p];
    }
  }
  for (; c < cols; ++c, b += ldb) {
    for (int64_t p = 0; p < k; ++p) panel[p * kTileCols + c] = b[p];
  }
}

// n numbers of the row that lies six behind this one, by lines of the cache: so far ahead are rows
// fetched that are made dense.
template <class E> void fetch_ahead(const E* row, int64_t ld, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / sizeof(E)) __builtin_prefetch(row + 6 * ld + i);
}

// Rows p.. of B's columns j.. of `count` panels, `size` elements apart: where B is not transposed,
// along its rows, whole lines of the cache.
template <class E>
void pack_panels(const Gemm& desc, const E* b, int64_t p, int64_t k, int64_t j, int64_t count,
    int64_t size, float* panels) {
  const int64_t cols = std::min(count * kTileCols, desc.n - j), whole = cols / kTileCols;
  if (whole < count) std::fill_n(panels + whole * size, k * kTileCols, 0.0f);
  if (desc.trans_b) {
    for (int64_t q = 0; q < count; ++q)
      pack_transposed(b + (j + q * kTileCols) * desc.ldb + p, desc.ldb,
          std::min<int64_t>(kTileCols, cols - q * kTileCols), k, panels + q * size);
    return;
  }
  b += p * desc.ldb + j;
  for (; k > 0; --k, b += desc.ldb, panels += kTileCols) {
    fetch_ahead(b, desc.ldb, cols);
    for (int64_t q = 0; q < whole; ++q) {
      SINTER_UNROLLED for (int v = 0; v < kTileCols; v += kLanes)
          store(panels + q * size + v, load_f32(b + q * kTileCols + v));
    }
    std::copy_n(b + whole * kTileCols, cols - whole * kTileCols, panels + whole * size);
  }
}

// Is a transposed A worth being made dense? Where its rows are far apart, and where many panels
// pass over it: in steps that the compiler knows, four terms are unrolled.
bool is_dense(const Gemm& desc) {
  return desc.trans_a && (desc.lda >= 512 || (desc.lda >= 128 && desc.k >= 128) ||
                             (desc.m > 4 * kTileRows && desc.n >= 256 && desc.k >= 32));
}

// Between the dense tiles of k columns of A: k a multiple of 64 would have all of a block in one
// set of the L1 cache.
int64_t dense_tile(int64_t k) { return k * kTallRows + 16; }

// tiles[t][p][i] = A[p][kTallRows t + i] of `rows` rows of A, which is stored transposed: read
// along its rows, whole lines of the cache.
template <class E> void pack_rows(const E* a, int64_t lda, int64_t rows, int64_t k, float* tiles) {
  for (int64_t p = 0; p < k; ++p, a += lda, tiles += kTallRows) {
    float* to = tiles;
    fetch_ahead(a, lda, rows);
    int64_t i = 0;
    for (; i + kTallRows <= rows; i += kTallRows, to += dense_tile(k)) {
      SINTER_UNROLLED for (int j = 0; j < kTallRows; j += 4) store(to + j, load_f32<4>(a + i + j));
    }
    std::copy_n(a + i, rows - i, to);
  }
}

// to[i][j] = a[i][j]
template <class E>
void widen(const E* a, int64_t lda, int64_t rows, int64_t cols, float* to, int64_t ldto) {
  if (lda == cols && ldto == cols) cols *= std::exchange(rows, 1);
  for (; rows > 0; --rows, a += lda, to += ldto) std::copy_n(a, cols, to);
}

// ---- outer: few terms

// Of so few terms, as of a weight's gradient at batch 1, a product is stores: row after row.
constexpr int64_t kOuterTerms = 4, kOuterBlock = 4096;  // numbers: 16 KiB of the L1 cache
bool is_outer(const Gemm& desc) { return desc.k <= kOuterTerms && !desc.trans_b; }

// Rows of C, `cols` wide, of K terms. Not inlined, where its pointers would be on the stack.
template <int K, class E>
[[gnu::noinline]] void outer_rows(const Gemm& desc, const E* a, const float* b, int64_t ldb,
    const float* bias, float* c, int64_t ldc, int64_t rows, const int64_t cols) {
  const int64_t a_row = desc.trans_a ? 1 : desc.lda, a_step = desc.trans_a ? desc.lda : 1;
  const float* from[K];
  SINTER_UNROLLED for (int p = 0; p < K; ++p) from[p] = b + p * ldb;
  for (; rows > 0; --rows, a += a_row, c += ldc) {
    Vec factor[K];
    SINTER_UNROLLED for (int p = 0; p < K; ++p) factor[p] = all(float(a[p * a_step]));
    const auto sum_at = [&](int64_t j, Vec sum, auto load_from) {
      SINTER_UNROLLED for (int p = 0; p < K; ++p) sum = fma(factor[p], load_from(from[p] + j), sum);
      return sum;
    };
    int64_t j = 0;
    if (bias) {
      for (; j + kLanes <= cols; j += kLanes)
        store(c + j, sum_at(j, load(bias + j), load<0, float>));
    } else {
      for (; j + kLanes <= cols; j += kLanes) store(c + j, sum_at(j, Vec{}, load<0, float>));
    }
    const int count = int(cols - j);
    const auto part = [count](const float* p) { return load_part(p, count); };
    if (count > 0) store_part(c + j, sum_at(j, bias ? part(bias + j) : Vec{}, part), count);
  }
}

// Rows i.. and columns j.. of a product; where c is null, take(block) is given them.
template <class E>
void outer(const Gemm& desc, const E* a, const E* b, const float* bias, float* c, int64_t i,
    int64_t rows, int64_t j, int64_t cols, const TakeBlock* take) {
  const int64_t at_once = c ? rows : std::clamp<int64_t>(kOuterBlock / cols, 1, rows),
                ldc = c ? desc.ldc : cols;
  float* const block = c ? nullptr : thread_buffer<float, BufferFor::sums>(at_once * cols);
  const float* of_b = reinterpret_cast<const float*>(b + j);
  int64_t ldb = desc.ldb;
  if constexpr (std::is_same_v<E, bf16>) {
    float* const wide = thread_buffer<float, BufferFor::panel>(desc.k * cols);
    widen(b + j, desc.ldb, desc.k, cols, wide, cols);
    of_b = wide;
    ldb = cols;
  }
  for (const int64_t end = i + rows; i < end; i += at_once) {
    const int64_t n = std::min(at_once, end - i);
    with_rows<kOuterTerms>(desc.k, [&](auto k) {
      outer_rows<k()>(desc, a + i * (desc.trans_a ? 1 : desc.lda), of_b, ldb,
          bias ? bias + j : nullptr, c ? c + i * ldc + j : block, ldc, n, cols);
    });
    if (take) (*take)({i, j, n, cols, block, ldc});
  }
}

// Rows i.. and panels first.. of a product, which take(block) is given if it is not null: a block
// then is of long rows, and as many of them as let it stay in the L2 cache.
template <class E>
void packed(const Gemm& desc, const E* a, const E* b, const float* bias, float* c, int64_t i,
    int64_t rows, int64_t first, int64_t panels, const TakeBlock* take) {
  static constexpr float kNoBias[kTileCols] = {};
  if (is_outer(desc)) {
    const int64_t j = first * kTileCols;
    return outer(desc, a, b, bias, c, i, rows, j, std::min(panels * kTileCols, desc.n - j), take);
  }
  // Groups of panels are of one size: of each, all of A is read, or made dense.
  const int64_t deep = std::min(desc.k, kDepth), size = deep * kTileCols + 16,
                most = std::max<int64_t>(1, (c ? 1 : 2) * kPanels / (deep * kTileCols)),
                groups = (panels + most - 1) / most, at_once = (panels + groups - 1) / groups,
                block_rows = c ? kBlockRows
                               : std::clamp<int64_t>(kPanels / (at_once * kTileCols) / kTallRows, 1,
                                     kBlockRows / kTallRows) *
                                     kTallRows;
  constexpr bool kWidens = std::is_same_v<E, bf16>;
  const bool dense = is_dense(desc) || (kWidens && desc.trans_a);
  float* const block =
      c ? nullptr : thread_buffer<float, BufferFor::sums>(block_rows * at_once * kTileCols);
  float *const panel = thread_buffer<float, BufferFor::panel>(
                   at_once * size +
                   (kWidens || dense ? kBlockRows / kTallRows * dense_tile(deep) : 0)),
               *const of_a = panel + at_once * size;
  const int64_t end = first + panels, last = i + rows;
  for (; first < end; first += at_once) {
    const int64_t count = std::min(at_once, end - first);
    for (int64_t p = 0; p < desc.k; p += kDepth) {
      const int64_t k = std::min(kDepth, desc.k - p);
      pack_panels(desc, b, p, k, first * kTileCols, count, size, panel);
      for (int64_t r = i; r < last; r += block_rows) {
        const int64_t n = std::min(block_rows, last - r);
        PackedTile t;
        const E* const a_block = a + (desc.trans_a ? p * desc.lda + r : r * desc.lda + p);
        t.a = reinterpret_cast<const float*>(a_block);
        t.a_row = desc.trans_a ? 1 : desc.lda;
        t.a_step = desc.trans_a ? desc.lda : 1;
        t.a_tile = kTallRows * t.a_row;
        t.k = k;
        t.ldc = c ? desc.ldc : count * kTileCols;
        if (dense) {
          pack_rows(a_block, desc.lda, n, k, of_a);
          t.a = of_a;
          t.a_step = kTallRows;
          t.a_tile = dense_tile(k);
        } else if (kWidens) {
          widen(a_block, desc.lda, n, k, of_a, k);
          t.a = of_a;
          t.a_row = k;
          t.a_tile = kTallRows * k;
        }
        for (int64_t q = 0; q < count; ++q) {
          const int64_t j = (first + q) * kTileCols;
          t.panel = panel + q * size;
          t.c = c ? c + r * desc.ldc + j : block + q * kTileCols;
          t.start = p ? t.c : bias ? bias + j : kNoBias;
          t.start_row = p ? desc.ldc : 0;
          packed_columns<kTileVectors>(t, n, int(std::min<int64_t>(kTileCols, desc.n - j)));
        }
        const int64_t j = first * kTileCols;
        if (take) (*take)({r, j, n, std::min(t.ldc, desc.n - j), block, t.ldc});
      }
    }
  }
}

// Where the result is taken: one product.
template <class E>
void packed_products(const Gemm& desc, const E* of_a, const E* of_b, const float* bias, float* of_c,
    const GemmBatch& batch, const TakeBlock* take) {
  // The side of more tiles is shared out: of the other one's operand each thread packs its own
  // copy. Of a transposed A, as in a weight's gradient, rows where there are enough to share: a
  // thread then meets the same ones of a weight in each step.
  const bool by_rows =
      take || desc.m >= (desc.trans_a ? std::min<int64_t>(kBlockRows, desc.n) : desc.n);
  // In bytes or simple operations: four multiplications, a number stored, and where it is taken
  // what an optimizer reads and writes for it.
  const int64_t panels = (desc.n + kTileCols - 1) / kTileCols,
                tiles = by_rows ? (desc.m + kTallRows - 1) / kTallRows : panels,
                cost =
                    std::max<int64_t>(1, desc.m * desc.n * (desc.k / 4 + (take ? 28 : 3)) / tiles);
  parallel_for(batch.products() * tiles, grain_of(cost), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t product = begin / tiles, tile = begin % tiles,
                    n = std::min(end - begin, tiles - tile), i = by_rows ? tile * kTallRows : 0;
      packed(desc, of_a + batch.a_of(product), of_b + batch.b_of(product), bias,
          of_c ? of_c + product * desc.m * desc.n : nullptr, i,
          by_rows ? std::min(n * kTallRows, desc.m - i) : desc.m, by_rows ? 0 : tile,
          by_rows ? panels : n, take);
      begin += n;
    }
  });
}

constexpr int64_t kCachedOperands = 32 << 10,  // elements of both operands: 128 KiB
    kMostFetched = 512;                        // lines of a column of B, for the next tile

bool operands_are_cached(const Gemm& desc) { return (desc.m + desc.n) * desc.k <= kCachedOperands; }

// Where packing pays: B transposed costs a shuffle per number, the dots one per sum; else it makes
// near lines of long rows, which many rows of C pay, and few where so many of a column's lines meet
// in one set of the cache that they cannot be fetched ahead (24 x 1024 of 1024 terms: 0.65); and
// whole vectors of the last columns, by AVX-512, which has masks for them, only where many rows
// have no other columns (Sapphire Rapids: 10 x 784 of 16 to 128 terms without it in 0.5).
bool is_packed(const Gemm& desc) {
  constexpr bool kMasks = kTileCols == 64;
  const bool many = desc.m > 4 * kTileRows;
  if (desc.trans_b)
    return desc.trans_a || desc.m > kDotMost || (desc.m > 8 && desc.k <= 128 && desc.n >= 48);
  if (desc.m <= kTileRows) return false;
  return is_outer(desc) || is_dense(desc) || (many && desc.ldb >= 256) ||
         (desc.n % kTileCols != 0 && (!kMasks || (many && desc.n < kTileCols))) ||
         (desc.ldb % 512 == 0 && desc.k > kMostFetched) ||
         (desc.m >= 192 && desc.k >= 64 && !desc.trans_a);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// Where a side of a thread's part is short, oneDNN's sgemm for AVX2 copies no operand, and rows a
// multiple of 2 KiB apart meet in few sets of the cache. Of 36 such products drawn at random,
// on one and two threads of a Zen 3, these kernels are 1.53 times as fast (geometric mean; 1.03 to
// 2.1); 0.75 to 1 times where it does copy, and as fast where B has many such rows.
bool onednn_meets_in_few_sets(const Gemm& desc) {
  const bool few = desc.trans_a && desc.lda % 512 == 0;
  if (desc.trans_b || !(few || (desc.ldb % 512 == 0 && desc.k <= 2048))) return false;
  const auto [thin, wide] = std::minmax(desc.m, desc.n);
  return 1.0 / double(thin) + num_threads() / double(wide) >= 0.0038;
}
#endif

}  // namespace

// Where these kernels beat oneDNN on an Ice Lake and, packed, on a Zen with AVX2, or are as fast.
// The Zen's beat it by 0 to 20 % wherever B is not transposed for few rows. oneDNN's calls cost 1
// us and a fork; a transposed A takes it up to one and a half times our time where the rows of both
// operands meet in few sets of the cache.
bool gemm_small_fits(const Gemm& desc) {
  const auto& [m, n, k, trans_a, trans_b, lda, ldb, ldc, in, out, bias] = desc;
  if (in != DType::f32 || bias != DType::f32) return false;
  const int64_t products = m * n * k, thin = std::min(m, n);
#if defined(__AVX512F__)
  // Few rows do not pay for panels of long ones (64 x 784 of 128 terms: 1.16 of oneDNN's time).
  if (!trans_b && m > 4 * kTileRows && m <= 64 && n >= 512 && k > kBlockTerms) return false;
#endif
  if (k <= 128 && products <= 1 << 24) return true;
#if defined(__AVX2__) && !defined(__AVX512F__)
  if (products <= 1 << 26 && (!trans_b || m >= 192)) return true;
  if (onednn_meets_in_few_sets(desc)) return true;
#endif
#if defined(__AVX2__)  // by those of SSE2 a third as fast as by oneDNN
  if (trans_a && !trans_b && lda % 128 == 0 && ldb % 128 == 0 && products <= 1 << 27) return true;
#endif
  if (!trans_b) return products <= 2'500'000 || m <= 12;
  if (k <= 256 && products <= 2'500'000) return true;
  return !trans_a && (thin <= 16 || (thin <= 32 && k >= 256));
}

namespace {

// Few rows. A is in f32, of B a tile's columns are made so, for all tiles that they have in a row.
template <class E>
void few_rows(const Gemm& desc, const float* of_a, const E* of_b, const float* bias, float* of_c,
    const GemmBatch& batch) {
  const int64_t dots = desc.m < kDotRows ? kFewDots : kDotCols;
  const int64_t rows = desc.trans_b ? kDotRows : kTileRows, cols = desc.trans_b ? dots : kTileCols;
  const int64_t row_tiles = (desc.m + rows - 1) / rows, col_tiles = (desc.n + cols - 1) / cols;
  // In units of about 15 ps on Ice Lake: loads and stores by bytes, products by a quarter.
  const int64_t high = std::min(rows, desc.m), wide = std::min(cols, desc.n);
  const int64_t cost =
      2 * (high * desc.k + wide * desc.k + 2 * high * wide) + high * wide * desc.k / 4;
  // The inner loop passes over the smaller operand, while the tile of the larger one stays in the
  // cache. Where both stay there, each thread makes rows of its own, as the update of a weight and
  // the next product take them. Of a larger B no prefetcher sees which lines come next, as each is
  // a row further: the first tile of a column fetches those of the next one, where both columns
  // stay in the L1 cache or nearly (operands in L2: 0.97 of the time, in L3 or memory 0.4 to 0.9).
  const bool fits = operands_are_cached(desc), down = desc.m <= desc.n && !fits;
  const int64_t inner_tiles = down ? row_tiles : col_tiles, tiles = row_tiles * col_tiles;
  parallel_for(batch.products() * tiles, grain_of(cost), [&](int64_t begin, int64_t end) {
    constexpr bool kWidens = std::is_same_v<E, bf16>;
    float* const of_tile =
        kWidens ? thread_buffer<float, BufferFor::panel>(cols * desc.k) : nullptr;
    int64_t product = begin / tiles, tile = begin % tiles;
    int64_t outer = tile / inner_tiles, inner = tile % inner_tiles;
    while (begin < end) {
      const float* const a = of_a + batch.a_of(product);
      const E* const b = of_b + batch.b_of(product);
      float* const c = of_c + product * desc.m * desc.n;
      const int64_t last = std::min(end - begin, tiles - tile);
      for (int64_t left = last; left > 0; --left) {
        const int64_t i = (down ? inner : outer) * rows, j = (down ? outer : inner) * cols;
        const E* const b_tile = b + (desc.trans_b ? j * desc.ldb : j);
        Tile t{a + (desc.trans_a ? i : i * desc.lda), reinterpret_cast<const float*>(b_tile),
            bias ? bias + j : nullptr, c + i * desc.ldc + j, desc.k, desc.trans_a ? 1 : desc.lda,
            desc.trans_a ? desc.lda : 1, desc.ldb, desc.ldc,
            !kWidens && down && inner == 0 && desc.k <= kMostFetched};
        if (kWidens) {
          const int64_t there = std::min(cols, desc.n - j);
          t.b = of_tile;
          t.ldb = desc.trans_b ? desc.k : cols;
          if (!down || inner == 0 || left == last)
            widen(b_tile, desc.ldb, desc.trans_b ? there : desc.k, desc.trans_b ? desc.k : there,
                of_tile, t.ldb);
        }
        if (desc.trans_b) {
          with_rows<kDotRows>(desc.m - i, [&](auto r) {
            if (cols == kFewDots) {
              dots_tile<r(), r() < kDotRows ? kFewDots : kDotCols>(t, desc.n - j);
            } else {
              dots_tile<r(), kDotCols>(t, desc.n - j);
            }
          });
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

// f(A, B) of their type.
template <class F> void with_operands(const Gemm& desc, const void* a, const void* b, F&& f) {
  if (desc.in == DType::bf16) return f(static_cast<const bf16*>(a), static_cast<const bf16*>(b));
  f(static_cast<const float*>(a), static_cast<const float*>(b));
}

}  // namespace

void gemm_small(const Gemm& desc, const void* a, const void* b, const float* bias, float* c,
    const GemmBatch& batch) {
  with_operands(desc, a, b, [&]<class E>(const E* of_a, const E* of_b) {
    if (is_packed(desc)) return packed_products(desc, of_a, of_b, bias, c, batch, nullptr);
    if constexpr (std::is_same_v<E, float>) {
      few_rows(desc, of_a, of_b, bias, c, batch);
    } else {
      Gemm wide = desc;
      const auto dense = [](const E* from, bool trans, int64_t rows, int64_t cols, int64_t& ld,
                             float* to) {
        if (trans) std::swap(rows, cols);
        widen(from, std::exchange(ld, cols), rows, cols, to, cols);
        return to;
      };
      const float* const left = dense(of_a, desc.trans_a, desc.m, desc.k, wide.lda,
          thread_buffer<float, BufferFor::left>(desc.m * desc.k));
      if (!operands_are_cached(desc)) return few_rows(wide, left, of_b, bias, c, batch);
      const float* const right = dense(of_b, desc.trans_b, desc.k, desc.n, wide.ldb,
          thread_buffer<float, BufferFor::right>(desc.k * desc.n));
      few_rows(wide, left, right, bias, c, batch);
    }
  });
}

// Note [Blocks of a gradient]
//   Of Adam's update a vector of 8 waits 3.3 ns for its root and its division, in which a Zen 3
//   could multiply 20 terms. But its registers hold some 120 results on their way, which is three
//   vectors of both together, and an update takes 55 cycles from its first operation to its last:
//   in one loop the two took 24 cycles a vector at 16 terms, one after the other 20; cut into two
//   stages, so that a vector's division begins behind the next one's root, 22, in tiles of 4 x 2, 5
//   x 2, 6 x 2, 3 x 3 and 2 x 4 alike. So a block is made, then taken, in rows that are long enough
//   for the core to fetch p, m and v ahead by itself: told to do so, it gained a tenth where the
//   weights leave the L3 cache (1024 x 784, 64 terms), and lost 2 to 5 % elsewhere; in rows of 256
//   columns, which stay in the L1 cache, it lost a tenth.
static_assert(kBlockTerms <= kDepth, "a block is whole after one pass");

bool gemm_small_blocks(const Gemm& desc, const void* a, const void* b, const TakeBlock& take) {
  if (!is_packed(desc) || desc.k > kBlockTerms) return false;
  with_operands(desc, a, b, [&](auto* of_a, auto* of_b) {
    packed_products(desc, of_a, of_b, nullptr, nullptr, {}, &take);
  });
  return true;
}

}  // namespace sinter::detail
