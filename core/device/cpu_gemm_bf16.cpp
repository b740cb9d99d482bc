// Products of bf16 where the processor multiplies it: by AMX, 16 rows x 16 columns of 16 pairs an
// instruction, else by AVX512-BF16. Sums are in f32.
//
// Note [Pairs]
//   Both instructions want one operand in rows, pairs of neighbours in k side by side, and of the
//   other one the pairs of 16 columns side by side:
//       rows  [16][pairs]: an operand that is stored along k (x and W of x W^T, dy of dy W) lies so
//             in memory, and is read from there
//       panel [pairs][16]: of an operand that is stored across k two rows are woven
//   Of the other of the two, squares of 16 x 16 pairs are turned. So of x W^T one is turned: the
//   one of fewer numbers, and where that is x, the tiles of the result are turned too, as they are
//   then columns of it. An operand across k that must be rows (dy^T of dy^T x) is woven and turned.
//   What is packed is filled up with zeros, the last rows are a tile that begins earlier: nothing
//   else than the operands is read, and infinities meet no zero that is not there.
//
//   How a sum is cut into instructions depends on k alone: a row is the same to the bit beside any
//   others, on any number of threads, whichever operand is in rows.
#include <algorithm>
#include <cstring>
#include <optional>

#include "core/device/amx_tiles.h"
#include "core/device/cpu_gemm.h"
#include "core/parallel.h"
#include "core/thread_buffer.h"

namespace sinter::detail {

#if defined(__AVX512BF16__)
namespace {

using Pairs = Lanes<uint32_t>;
using Sums = Lanes<float>;
constexpr int64_t kSide = 16, kSquare = kSide * kSide;  // of pairs, or of sums
// Pairs in panels at once: 1.5 MiB of the L2 cache. Terms that are summed up at once, where sums
// are f32; at most, of a gradient in blocks; at most, of what is rounded.
constexpr int64_t kPanelPairs = 384 << 10, kDepth = 1024, kBlockDepth = 512, kMostTerms = 4096;

__mmask16 first(int64_t n) { return static_cast<__mmask16>(n >= kSide ? 0xffff : (1 << n) - 1); }

// The m rows of A, or the n columns of B.
struct Operand {
  const bf16* at;
  int64_t ld, count, k;
  bool along_k;

  // Shuffles for a pair of numbers: woven one, turned two.
  int64_t cost_of_rows() const { return along_k ? 0 : 3 * count; }
  int64_t cost_of_panels() const { return (along_k ? 2 : 1) * count; }
  // 16 rows of 16 pairs, from row or column `from` and pair q on.
  void pack_rows(int64_t from, int64_t q, uint32_t* to) const { square(from, q, true, kSide, to); }
  // Panels, each of `pairs` rows of 16, from column `from` on; of an operand across k along its
  // rows, whole lines of the cache.
  void pack_panels(int64_t from, int64_t panels, int64_t pairs, uint32_t* to) const {
    if (along_k) {
      for (int64_t p = 0; p < panels; ++p, from += kSide, to += pairs * kSide) {
        for (int64_t q = 0; q < pairs; q += kSide)
          square(from, q, false, std::min(kSide, pairs - q), to + q * kSide);
      }
      return;
    }
    for (int64_t q = 0; q < pairs; ++q, to += kSide) {
      for (int64_t p = 0; p < panels; ++p)
        store(to + p * pairs * kSide, woven(2 * q, from + p * kSide));
    }
  }

 private:
  void square(int64_t from, int64_t q, bool as_rows, int64_t rows, uint32_t* to) const {
    Pairs v[kSide];
    if (!along_k) {
      for (int64_t i = 0; i < kSide; ++i) v[i] = woven(2 * (q + i), from);
    } else if (from + kSide <= count && 2 * (q + kSide) <= k) {
      for (int64_t i = 0; i < kSide; ++i)
        v[i] = load(reinterpret_cast<const uint32_t*>(at + (from + i) * ld + 2 * q));
    } else {
      for (int64_t i = 0; i < kSide; ++i) v[i] = row(from + i, 2 * q);
    }
    if (as_rows != along_k) turn(v);
    for (int64_t i = 0; i < rows; ++i) store(to + i * kSide, v[i]);
  }
  Pairs row(int64_t i, int64_t p) const {
    if (i >= count) return Pairs{};
    const int64_t there = std::clamp<int64_t>(k - p, 0, 2 * kSide);
    return Pairs(_mm512_maskz_loadu_epi16(
        static_cast<__mmask32>((uint64_t{1} << there) - 1), at + i * ld + p));
  }
  // Terms p and p + 1 of columns `from` on.
  Pairs woven(int64_t p, int64_t from) const {
    const bf16* const x = at + p * ld + from;
    const auto numbers = [there = first(count - from)](const bf16* x) {
      return Pairs(_mm512_maskz_cvtepu16_epi32(there, _mm256_maskz_loadu_epi16(there, x)));
    };
    if (p + 1 < k) return numbers(x) | numbers(x + ld) << 16;
    return p < k ? numbers(x) : Pairs{};
  }
};

// A product's two operands in their parts, and how its sum is cut: `chunks` of `pairs`, of which
// the last one may be filled up.
struct Parts {
  Operand rows, columns;
  bool turned = false;  // rows are the columns of C
  int64_t chunks, pairs;
};

// In the order that costs fewer shuffles, of which a sum that is turned takes eight.
Parts parts_of(const Gemm& d, const void* a, const void* b, bool in_blocks) {
  const int64_t all = divide_up(d.k, 2), chunks = divide_up(all, kSide);
  Parts parts{{static_cast<const bf16*>(a), d.lda, d.m, d.k, !d.trans_a},
      {static_cast<const bf16*>(b), d.ldb, d.n, d.k, d.trans_b}, false, chunks,
      divide_up(all, chunks)};
  const auto cost = [&](const Operand& rows, const Operand& columns) {
    return d.k * (rows.cost_of_rows() + columns.cost_of_panels());
  };
  parts.turned = !in_blocks &&
                 cost(parts.columns, parts.rows) + 8 * d.m * d.n < cost(parts.rows, parts.columns);
  if (parts.turned) std::swap(parts.rows, parts.columns);
  return parts;
}

// Up to 2 x 2 tiles of sums, each of `rows` x 16, over all chunks.
struct Block {
  const bf16* rows_at[2] = {};
  const uint32_t* panel[2];
  float* sums[2][2];
  int64_t row, chunk, sum_row;  // elements from one row, or chunk, to the next
  int64_t rows, chunks, pairs;
  const bf16* last[2] = {};  // the last chunk, if it is packed where the others are not
  // f(rows of the first tile, of the second, elements from row to row, panels' offset)
  template <class F> void for_chunks(const F& f) const {
    const int64_t of_panel = pairs * kSide, alike = chunks - (last[0] ? 1 : 0);
    for (int64_t i = 0; i < alike; ++i)
      f(rows_at[0] + i * chunk, rows_at[1] + i * chunk, row, i * of_panel);
    if (last[0]) f(last[0], last[1], 2 * kSide, alike * of_panel);
  }
};

// Rows `from`.. of one tile: R x C vectors of sums.
template <int R, int C> void by_vectors(const Block& block, int tile, int64_t from) {
  Sums sum[R][C] = {};
  block.for_chunks([&](const bf16* first, const bf16* second, int64_t row, int64_t panel) {
    const bf16* const a = (tile ? second : first) + from * row;
    for (int64_t q = 0; q < block.pairs; ++q) {
      Pairs column[C];
      SINTER_UNROLLED for (int c = 0; c < C; ++c) column[c] =
          load(block.panel[c] + panel + q * kSide);
      SINTER_UNROLLED for (int i = 0; i < R; ++i) {
        uint32_t pair;
        std::memcpy(&pair, a + i * row + 2 * q, sizeof pair);
        const __m512bh factor = __m512bh(all(pair));
        SINTER_UNROLLED for (int c = 0; c < C; ++c) sum[i][c] =
            _mm512_dpbf16_ps(sum[i][c], factor, __m512bh(column[c]));
      }
    }
  });
  for (int i = 0; i < R; ++i)
    for (int c = 0; c < C; ++c) store(block.sums[tile][c] + (from + i) * block.sum_row, sum[i][c]);
}
template <int R, int C> void by_vectors(const Block& block) {
  constexpr int64_t kRows = 8;
  for (int r = 0; r < R; ++r) {
    int64_t i = 0;
    for (; i + kRows <= block.rows; i += kRows) by_vectors<kRows, C>(block, r, i);
    for (; i < block.rows; ++i) by_vectors<1, C>(block, r, i);
  }
}

#ifdef SINTER_AMX
template <int R, int C> void by_tiles(const Block& block) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  block.for_chunks([&](const bf16* first, const bf16* second, int64_t row, int64_t panel) {
    _tile_loadd(6, block.panel[0] + panel, 64);
    _tile_loadd(4, first, row * 2);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (C > 1) {
      _tile_loadd(7, block.panel[1] + panel, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (R > 1) {
      _tile_loadd(5, second, row * 2);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (R > 1 && C > 1) _tile_dpbf16ps(3, 5, 7);
  });
  _tile_stored(0, block.sums[0][0], block.sum_row * 4);
  if (C > 1) _tile_stored(1, block.sums[0][1], block.sum_row * 4);
  if (R > 1) _tile_stored(2, block.sums[1][0], block.sum_row * 4);
  if (R > 1 && C > 1) _tile_stored(3, block.sums[1][1], block.sum_row * 4);
}
#endif

template <int R, int C> void multiply(const Block& block) {
#ifdef SINTER_AMX
  if (amx::available()) return by_tiles<R, C>(block);
#endif
  by_vectors<R, C>(block);
}
void multiply(const Block& block, bool two_rows, bool two_panels) {
  if (two_rows) return two_panels ? multiply<2, 2>(block) : multiply<2, 1>(block);
  return two_panels ? multiply<1, 2>(block) : multiply<1, 1>(block);
}

// Where results go: C, or a block of it that is taken, from row i0 and column j0 on.
struct Result {
  void* c;
  int64_t ld;
  DType type;
  const float* bias = nullptr;  // one for each column, and 15 more numbers
  bool adds = false;            // to f32 that is there
  int64_t i0 = 0, j0 = 0;
  int64_t place(int64_t i, int64_t j) const { return (i - i0) * ld + j - j0; }
  float* at(int64_t i, int64_t j) const { return static_cast<float*>(c) + place(i, j); }
  // A tile of sums, whose rows are C's from row i and column j on, or turned its columns; the first
  // `skip` of them are there already.
  void put(const float* from, int64_t i, int64_t j, int64_t rows, int64_t columns, bool turned,
      int64_t skip) const {
    if (type == DType::f32) return put<float>(from, i, j, rows, columns, turned, skip);
    put<bf16>(from, i, j, rows, columns, turned, skip);
  }

 private:
  template <class T>
  void put(const float* from, int64_t i, int64_t j, int64_t rows, int64_t columns, bool turned,
      int64_t skip) const {
    Sums x[kSide];
    SINTER_UNROLLED for (int l = 0; l < kSide; ++l) x[l] = load(from + l * kSide);
    if (turned) turn(x);
    const __mmask16 there = static_cast<__mmask16>(first(columns) & ~first(turned ? skip : 0));
    const Sums shift = bias ? load(bias + j) : Sums{};
    T* to = static_cast<T*>(c) + place(i, j);
    SINTER_UNROLLED for (int l = 0; l < kSide; ++l, to += ld) {
      if (l == rows) return;
      if (!turned && l < skip) continue;
      Sums v = bias ? x[l] + shift : x[l];
      if constexpr (std::is_same_v<T, float>) {
        if (adds) v += Sums(_mm512_maskz_loadu_ps(there, to));
        _mm512_mask_storeu_ps(to, there, v);
      } else {
        _mm256_mask_storeu_epi16(to, there, __m256i(_mm512_cvtneps_pbh(v)));
      }
    }
  }
};

// Panels that are packed before they are multiplied: of few rows, which pass over each once, so few
// that they stay in the L1 cache; else in the L2 cache, where rows that come from behind it each
// time leave more room to them than rows that stay there too.
int64_t most_panels(int64_t tiles, int64_t k, int64_t of_panel, bool in_blocks) {
  if (tiles <= 2 && !in_blocks) return 4;
  const bool rows_stay = !in_blocks && tiles * kSide * k <= 1 << 20;
  return std::max<int64_t>(2, kPanelPairs / (rows_stay ? 3 : 1) / of_panel / 2 * 2);
}

// Rows `from`.. and panels `panel`.. of the parts' products. With `take`, blocks of C are given to
// it.
void run(const Parts& parts, const Result& result, int64_t from, int64_t count, int64_t panel,
    int64_t panels, const TakeBlock* take) {
  const auto& [rows, columns, turned, chunks, pairs] = parts;
  // Of rows along k only a last chunk that is not whole is packed.
  const bool has_rest = rows.k < 2 * chunks * pairs;
  const int64_t first_packed = !rows.along_k ? 0 : chunks - has_rest;
  const int64_t tiles = divide_up(count, kSide), tile_rows = divide_up(count, tiles),
                all_pairs = chunks * pairs, of_panel = all_pairs * kSide,
                of_tile = (chunks - first_packed) * kSquare,
                most = std::min(panels, most_panels(tiles, rows.k, of_panel, take)),
                wide = most * kSide;
  // Rows are packed once if they find room, else for each group of panels.
  const bool keeps_rows = tiles * of_tile <= 3 * kPanelPairs;
  uint32_t* const packed = thread_buffer<uint32_t, BufferFor::panel>(
      most * of_panel + (keeps_rows ? tiles : 2) * of_tile);
  uint32_t* const packed_rows = packed + most * of_panel;
  float* const sums =
      thread_buffer<float, BufferFor::result>(8 * kSquare + (take ? 2 * kSide * wide : 0));
  const auto start_of = [&](int64_t t) {
    return from + std::min(t * tile_rows, count - tile_rows);
  };
  const auto packed_at = [&](int64_t t) {
    return packed_rows + (keeps_rows ? t : t % 2) * of_tile;
  };
  // Tiles of sums that are not in C yet: they are rounded while the next ones are multiplied.
  struct Piece {
    const float* sums = nullptr;
    int64_t tile = 0, column = 0;
    int r = 0, c = 0;
  } last;
  const auto finish = [&](const Result& to, const Piece& piece) {
    for (int r = 0; r < piece.r; ++r) {
      for (int c = 0; c < piece.c; ++c) {
        const int64_t i = start_of(piece.tile + r), j = piece.column + c * kSide,
                      there = std::min(kSide, columns.count - j);
        const float* const sums = piece.sums + (2 * r + c) * kSquare;
        const int64_t skip = from + (piece.tile + r) * tile_rows - i;
        if (turned) {
          to.put(sums, j, i, there, tile_rows, true, skip);
        } else {
          to.put(sums, i, j, tile_rows, there, false, skip);
        }
      }
    }
  };
#ifdef SINTER_AMX
  std::optional<amx::Tiles> configured;
  if (amx::available()) configured.emplace(tile_rows, pairs, 2);
#endif
  const int64_t first_panel = panel;
  for (const int64_t end = panel + panels; panel < end; panel += most) {
    const int64_t here = std::min(most, end - panel), first_column = panel * kSide;
    columns.pack_panels(first_column, here, all_pairs, packed);
    for (int64_t t = 0; t < tiles; t += 2) {
      const int r = t + 1 < tiles ? 2 : 1;
      Block block{.row = rows.along_k ? rows.ld : 2 * kSide,
          .chunk = rows.along_k ? 2 * pairs : 2 * kSquare,
          .rows = tile_rows,
          .chunks = chunks,
          .pairs = pairs};
      for (int l = 0; l < r; ++l) {
        if (rows.along_k) block.rows_at[l] = rows.at + start_of(t + l) * rows.ld;
        if (of_tile > 0)
          (rows.along_k ? block.last : block.rows_at)[l] =
              reinterpret_cast<const bf16*>(packed_at(t + l));
      }
      // Of both tiles chunk by chunk, which lie in the same lines of an operand across k.
      for (int64_t i = first_packed; i < chunks && (!keeps_rows || panel == first_panel); ++i) {
        for (int l = 0; l < r; ++l)
          rows.pack_rows(
              start_of(t + l), i * pairs, packed_at(t + l) + (i - first_packed) * kSquare);
      }
      const Result to = take ? Result{sums + 8 * kSquare, wide, DType::f32, result.bias, false,
                                   start_of(t), first_column}
                             : result;
      for (int64_t p = 0; p < here; p += 2) {
        const int c = p + 1 < here ? 2 : 1;
        const int64_t column = (panel + p) * kSide;
        // Whole tiles of C are stored where they belong.
        const bool direct = !to.bias && (take || (to.type == DType::f32 && !to.adds && !turned &&
                                                     column + c * kSide <= columns.count));
        float* const near = sums + p / 2 % 2 * 4 * kSquare;
        block.sum_row = direct ? to.ld : kSide;
        for (int l = 0; l < r * c; ++l) {
          block.panel[l % c] = packed + (p + l % c) * of_panel;
          block.sums[l / c][l % c] = direct ? to.at(start_of(t + l / c), column + l % c * kSide)
                                            : near + (l / c * 2 + l % c) * kSquare;
        }
        multiply(block, r > 1, c > 1);
        finish(to, std::exchange(last, direct ? Piece{} : Piece{near, t, column, r, c}));
      }
      // The next ones lie where these do, or these are taken.
      if (take || (here + 1) / 2 % 2 != 0) finish(to, std::exchange(last, {}));
      if (!take) continue;
      const int64_t i = from + t * tile_rows, n = std::min(r * tile_rows, from + count - i);
      (*take)({i, first_column, n, std::min(here * kSide, columns.count - first_column),
          to.at(i, first_column), wide});
    }
  }
  finish(result, last);
}

// One product on all threads: each makes rows of C, or, where its part of a row is long enough for
// two threads not to meet in many lines of the cache, columns, if what each of them packs then is
// less: all of the other operand.
void share(const Parts& parts, const Result& result, const TakeBlock* take) {
  constexpr int64_t kLong = 1024;  // bytes
  const auto& [rows, columns, turned, chunks, pairs] = parts;
  const int64_t tiles = divide_up(rows.count, kSide), panels = divide_up(columns.count, kSide),
                of_rows = rows.cost_of_rows(), of_columns = columns.cost_of_panels();
  const auto long_parts = [&](int64_t n) {
    return n * int64_t(size_of(result.type)) >= kLong * num_threads();
  };
  bool by_rows = take || tiles >= num_threads();
  if (by_rows && panels >= num_threads() && !take)
    by_rows = turned ? long_parts(rows.count) && of_columns < of_rows
                     : !long_parts(columns.count) || of_columns <= of_rows;
  // In simple operations, or bytes of rows that are read where they lie: of a weight each thread
  // then meets those that it has updated.
  const int64_t all = by_rows ? tiles : panels,
                reads = by_rows && rows.along_k ? 2 * rows.k * rows.count : 0,
                cost = std::max<int64_t>(
                    1, (reads + rows.count * columns.count * (rows.k / 64 + 3)) / all);
  parallel_for(all, grain_of(cost), [&](int64_t begin, int64_t end) {
    const int64_t from = begin * kSide, count = std::min(end * kSide, rows.count) - from;
    if (by_rows) return run(parts, result, from, count, 0, panels, take);
    run(parts, result, 0, rows.count, begin, end - begin, take);
  });
}

}  // namespace

// Measured on a Sapphire Rapids beside oneDNN 2.6. By tiles all shapes of this project's nets, one
// and two threads, take 0.2 to 1.1 of the time, small ones the least; blocks of a gradient that is
// not stored pay up to 512 terms (a step at batch 128, 256, 512, 1024: 0.88, 0.92, 0.97, 1.03; two
// threads 1.17). By vectors, where both are bound by the instruction, a product takes 1.0 to 1.1,
// and blocks pay up to 32 terms (a step at batch 16: 0.90 and 0.92, at 64 0.95 and 1.02).
bool gemm_bf16_fits(const Gemm& desc, bool in_blocks) {
  if (desc.in != DType::bf16 || (in_blocks && desc.trans_b)) return false;
#ifdef SINTER_AMX
  if (amx::available())
    return desc.k <= (in_blocks ? kBlockDepth : kMostTerms) ||
           (desc.out == DType::f32 && !in_blocks);
#endif
  constexpr int64_t kFewTerms = 32;
  return in_blocks && desc.k <= kFewTerms;
}

bool gemm_bf16_blocks_are_rows(const Gemm& desc) {
  constexpr int64_t kManyRows = 256;  // W is packed once for all of them
  return gemm_bf16_fits(desc) && desc.k <= kMostTerms && desc.m >= kManyRows &&
         divide_up(desc.n, kSide) * divide_up(desc.k, 2) * kSide <= kPanelPairs - 8 * kSquare;
}

void gemm_bf16(const Gemm& desc, const void* a, const void* b, const void* bias, void* c,
    const GemmBatch& batch, const TakeBlock* take) {
  float* wide_bias = nullptr;
  if (bias) {
    wide_bias = thread_buffer<float, BufferFor::bias>(desc.n + kSide);
    visit_float(desc.bias,
        [&]<class T>(T) { std::copy_n(static_cast<const T*>(bias), desc.n, wide_bias); });
  }
  // f32 is summed up in steps, so that a tile's operands stay in the L2 cache.
  const int64_t deep = desc.out == DType::f32 && !take ? kDepth : desc.k;
  const auto product = [&](int64_t p) {
    for (int64_t q = 0; q < desc.k; q += deep) {
      Gemm part = desc;
      part.k = std::min(deep, desc.k - q);
      share(parts_of(part, at(a, DType::bf16, batch.a_of(p) + q * (desc.trans_a ? desc.lda : 1)),
                at(b, DType::bf16, batch.b_of(p) + q * (desc.trans_b ? 1 : desc.ldb)), take),
          {at(c, desc.out, p * desc.m * desc.n), desc.ldc, desc.out, q ? nullptr : wide_bias,
              q > 0},
          take);
    }
  };
  const int64_t products = batch.products();
  if (products < num_threads()) {
    for (int64_t p = 0; p < products; ++p) product(p);
    return;
  }
  parallel_for(
      products, grain_of(desc.m * desc.n * (desc.k / 64 + 3)), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) product(p);
      });
}

#else
bool gemm_bf16_fits(const Gemm&, bool) { return false; }
bool gemm_bf16_blocks_are_rows(const Gemm&) { return false; }
void gemm_bf16(const Gemm&, const void*, const void*, const void*, void*, const GemmBatch&,
    const TakeBlock*) {}
#endif

}  // namespace sinter::detail
