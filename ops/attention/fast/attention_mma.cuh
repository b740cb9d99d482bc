// attention and its backward on tensor cores, with f32 sums and an online softmax in f32: bf16, or
// f32 that may be cut to TF32. Four warps have 16 rows each of a tile of 64 of one side, the
// block's own: rows of q, or backward of keys, too. Tiles of the other side come by cp_async, one
// on its way while the one before is worked on. Scores stay in the fragments that mma made them
// in, and as weights are the first operand of the next product as they lie (TF32: with the keys of
// eight in another order). Which heads go this way: by_tensor_cores().
//
// Note [Attention on tensor cores, by numbers]
//   Forward is 4 B H S T D FLOP, half if it is causal. A block reads k and v once for its 64 rows:
//   in bf16 64 FLOP a byte of L2. For a tile of 64 x 64 scores of 64 columns a warp takes 64 HMMA;
//   beside them stand 32 ldmatrix, 8 copies of 16 bytes, and of 32 scores a lane the maximum, e^x
//   and the sum: e^x as 2^x, as log2(e) is in the scale, in nine instructions, none approximate. In
//   all 7.6 for each HMMA, which with 128 columns are 4.3. Sums are scaled where a row's maximum
//   has grown by 8 binary digits, not whenever it grows.
//   Backward is 14 B H S T D FLOP: scores and do v^T are made once for dk and dv and once for dq,
//   so that each sum has one owner and one order, whichever blocks come first.
//
//                            forward                 backward
//   columns                  32      64      128     32      64      128
//   bf16: KB of a block      20      36      68      32      56      70
//   TF32: KB of a block      18      34      66      56      70      134
//   blocks at a time on 9.0  4       4       2       3       2, 3    2, 1     bf16, TF32
//   .. on 8.0                4       4       2       3, 2    2       2, 1
//
//   Not yet measured on a card.
#pragma once

#include "ops/attention/heads.cuh"
#include "ops/product/gemm_launch.cuh"

// rows of q, keys, depth
namespace sinter::SINTER_KERNEL_NS {

// 2^x for x <= 127, of a weight that mma is to read as a T: with a relative error of 2^-18, or for
// bf16 2^-13; 0 for x <= -127. Of a NaN what is not finite. A sum's low bits are the nearest
// integer, which the exponent takes.
template <class T> SINTER_DEVICE_FN float power_of_2(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  x = larger(x, -127.0f);
  const float shifted = x + kRound, r = x - (shifted - kRound);
  float power;
  if constexpr (std::is_same_v<T, bf16>) {
    power = math::mul_add(0.055009045f, r, 0.24221095f);
    power = math::mul_add(power, r, 0.6932829f);
  } else {
    power = math::mul_add(0.009583089f, r, 0.055906504f);
    power = math::mul_add(power, r, 0.24024093f);
    power = math::mul_add(power, r, 0.6931242f);
  }
  power = math::mul_add(power, r, 1.0f);
  return math::from_bits(math::to_bits(power) + (math::to_bits(shifted) << 23));
}

inline constexpr int kAttentionRows = 64, kAttentionThreads = 128;

template <class T, int kDepth, int kAcross_> struct AttentionMma {
  // Of the tiles of the other side; terms of one mma.
  static constexpr int kAcross = kAcross_, kTerms = 32 / int(sizeof(T));
  using Own = SharedTile<T, kAttentionRows, kDepth, kVec<T>>;
  using Across = SharedTile<T, kAcross, kDepth, kVec<T>>;
  using Fragment = Vec<float, 4>[2];  // of 16 rows and 16 columns
  using Sums = Fragment[kDepth / 16];

  // A lane has columns 2t, 2t + 1 of rows g and g + 8 of a fragment: g = lane / 4, t = lane % 4.
  static SINTER_DEVICE_FN int row(int half) { return warp() * 16 + half * 8 + lane() / 4; }
  static SINTER_DEVICE_FN int column() { return lane() % 4 * 2; }

  // Rows of a head, or of those behind it, on their way to tiles; zeros where there are none.
  class Rows {
    static constexpr int kOfRow = kDepth / kVec<T>, kAtOnce = kAttentionThreads / kOfRow;

   public:
    SINTER_DEVICE_FN Rows(const HeadsIn<T>& x, int64_t b, int64_t h, int rows, int depth)
        : from_(x.data, x.at(b, h, 0, column())),
          heads_apart_(static_cast<uint64_t>(x.head) * sizeof(T)),
          apart_(static_cast<uint32_t>(x.row) * uint32_t{sizeof(T)}),
          rows_(column() < depth ? rows : 0) {}
    template <int kRows>
    SINTER_DEVICE_FN void bring(
        unsigned head, int first, SharedTile<T, kRows, kDepth, kVec<T>>& to) const {
      const int r = thread_x() / kOfRow;
      SINTER_UNROLL
      for (int i = r; i < kRows + r; i += kAtOnce) {
        const uint64_t behind = head * heads_apart_ + uint64_t{unsigned(first + i)} * apart_;
        cp_async16(to, i, column(), from_.behind(behind), first + i < rows_);
      }
    }

   private:
    static SINTER_DEVICE_FN int column() { return thread_x() % kOfRow * kVec<T>; }
    Cursor<T> from_;
    uint64_t heads_apart_;
    uint32_t apart_;
    int rows_;
  };
  // s += x y^T, for rows of y from `from` on; x(d): 16 rows of it at columns from d on.
  template <int N, class X>
  static SINTER_DEVICE_FN void scores(const X& x, const Across& y, int from, Fragment (&s)[N]) {
    SINTER_UNROLL
    for (int d = 0; d < kDepth; d += kTerms) {
      const Vec<uint32_t, 4> a = x(d);
      SINTER_UNROLL
      for (int j = 0; j < N; ++j)
        mma_twice<T>(s[j], a, fragments_of_rows<false, T>(y, from + j * 16, d));
    }
  }
  // sums += w y, for rows of y from `from` on.
  template <int N>
  static SINTER_DEVICE_FN void weigh(
      const Fragment (&w)[N], const Across& y, int from, Sums& sums) {
    SINTER_UNROLL
    for (int k = 0; k < N * 16; k += kTerms) {
      Vec<uint32_t, 4> a;
      SINTER_UNROLL
      for (int q = 0; q < 4; ++q) {
        const int e = q % 2 * 2;
        if constexpr (std::is_same_v<T, bf16>) {
          a.v[q] = to_bf16_pair(w[k / 16][q / 2].v[e], w[k / 16][q / 2].v[e + 1]);
        } else {
          a.v[q] = math::to_bits(w[k / 16][k / 8 % 2].v[e + q / 2]);
        }
      }
      round_for_mma<true, T>(a);
      SINTER_UNROLL
      for (int n = 0; n < kDepth / 16; ++n)
        mma_twice<T>(sums[n], a, terms_in_pairs(y, from + k, n * 16));
    }
  }
  // Rows from k on of 16 columns of y as the second operand. TF32: terms t and t + 4 are rows 2t
  // and 2t + 1, which a lane has of the first.
  static SINTER_DEVICE_FN Vec<uint32_t, 4> terms_in_pairs(const Across& y, int k, int c) {
    if constexpr (std::is_same_v<T, bf16>) {
      return fragments_of_columns<T>(y, k, c);
    } else {
      Vec<uint32_t, 4> f;
      SINTER_UNROLL
      for (int q = 0; q < 4; ++q)
        f.v[q] = math::to_bits(y(k + column() + q % 2, c + outer_of<false>(q) + lane() / 4));
      round_for_mma<false, T>(f);
      return f;
    }
  }
  // f(x) for what a lane has of a row.
  template <int N, class F>
  static SINTER_DEVICE_FN void each(Fragment (&s)[N], int half, const F& f) {
    SINTER_UNROLL
    for (int e = 0; e < N * 4; ++e) f(s[e / 4][e / 2 % 2].v[half * 2 + e % 2]);
  }
  // -inf for the keys that a row does not read. kOfKeys: `first` is of keys, `from` of rows.
  template <bool kOfKeys, int N>
  static SINTER_DEVICE_FN void mask(Fragment (&s)[N], int first, int from, int keys, bool causal) {
    SINTER_UNROLL
    for (int e = 0; e < N * 8; ++e) {
      const int mine = first + row(e / 2 % 2), theirs = from + e / 4 * 8 + column() + e % 2,
                end = causal ? std::min(keys, mine + 1) : keys;
      if (kOfKeys ? theirs < mine : theirs >= end) s[e / 8][e / 4 % 2].v[e % 4] = -INFINITY;
    }
  }
  template <class F>
  static SINTER_DEVICE_FN void send(const Sums& sums, const HeadsOut<T>& to, int64_t b, int64_t h,
      int first, int64_t rows, int depth, const F& factor) {
    SINTER_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (first + row(half) >= rows) continue;
      const int64_t at = to.at(b, h, first + row(half), column());
      SINTER_UNROLL
      for (int n = 0; n < kDepth / 8; ++n) {
        const Vec<float, 4>& sum = sums[n / 2][n % 2];
        const Vec<T, 2> pair{
            {T(sum[half * 2] * factor(half)), T(sum[half * 2 + 1] * factor(half))}};
        if (n * 8 + column() < depth) to.data.store_vec(at + n * 8, pair);
      }
    }
  }
  // Over the lanes that share a row.
  template <class F> static SINTER_DEVICE_FN float of_row(float x, const F& f) {
    x = f(x, shfl_xor(x, 1));
    return f(x, shfl_xor(x, 2));
  }
};

template <class T, int kDepth>
using AttentionMmaForward = AttentionMma<T, kDepth, 64 * 2 / int(sizeof(T))>;
template <class Mma> struct AttentionStages {
  union {
    typename Mma::Across tiles[2];  // k, v
    typename Mma::Own q;            // at first, in the second
  } stages[2];
};

template <class T, int kDepth>
SINTER_KERNEL_BOUNDS(kAttentionThreads, kDepth <= 64 ? 4 : 2)
attention_mma_64(AttentionForward<T> x) {
  using Mma = AttentionMmaForward<T, kDepth>;
  auto& s = shared<AttentionStages<Mma>>();
  // Of causal rows the last, which have most to do, begin.
  const auto block = static_cast<unsigned>(block_x()), tiles = static_cast<unsigned>(x.tiles),
             all_heads = static_cast<unsigned>(grid_x()) / tiles, head = block % all_heads,
             b = head / static_cast<unsigned>(x.heads), h = head % static_cast<unsigned>(x.heads),
             g = h / static_cast<unsigned>(x.heads_of_group);
  const int first = static_cast<int>(tiles - 1 - block / all_heads) * kAttentionRows,
            rows = static_cast<int>(x.rows), keys = static_cast<int>(x.keys),
            last = x.causal ? std::min(first + kAttentionRows, keys) : keys;
  const typename Mma::Rows k(x.k, b, g, keys, x.depth), v(x.v, b, g, keys, x.depth);
  const auto begin = [&](int t) {
    auto& stage = s.stages[t / Mma::kAcross % 2];
    k.bring(0, t, stage.tiles[0]);
    v.bring(0, t, stage.tiles[1]);
  };
  typename Mma::Rows(x.q, b, h, rows, x.depth).bring(0, first, s.stages[1].q);
  cp_async_commit();
  if (last > 0) begin(0);
  cp_async_commit();
  cp_async_wait<1>();
  block_sync();
  Vec<uint32_t, 4> q[kDepth / Mma::kTerms];
  SINTER_UNROLL
  for (int d = 0; d < kDepth; d += Mma::kTerms)
    q[d / Mma::kTerms] = fragments_of_rows<true, T>(s.stages[1].q, warp() * 16, d);

  const float scale = x.scale * math::kLog2e;
  typename Mma::Sums sums = {};
  float base[2] = {-INFINITY, -INFINITY}, total[2] = {};  // weights are 2^(scores - base)
  SINTER_NO_UNROLL
  for (int t = 0; t < last; t += Mma::kAcross) {
    cp_async_wait<0>();
    block_sync();  // all of this tile is here, and nobody still reads the one before
    if (t + Mma::kAcross < last) begin(t + Mma::kAcross);
    cp_async_commit();
    const auto& stage = s.stages[t / Mma::kAcross % 2];
    typename Mma::Fragment scores[Mma::kAcross / 16] = {};
    Mma::scores([&](int d) { return q[d / Mma::kTerms]; }, stage.tiles[0], 0, scores);
    if (t + Mma::kAcross > (x.causal ? std::min(first, keys) : keys))
      Mma::template mask<false>(scores, first, t, keys, x.causal);
    float m[2];
    SINTER_UNROLL
    for (int half = 0; half < 2; ++half) {
      m[half] = -INFINITY;
      Mma::each(scores, half, [&](float& score) { m[half] = larger(m[half], score); });
      m[half] = Mma::of_row(m[half], larger) * scale;
    }
    // Sums are scaled only where a weight would be beyond 2^8, or a row begins.
    if (ballot(!(m[0] <= base[0] + 8 && m[1] <= base[1] + 8))) {
      SINTER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float before = base[half];
        if (!(m[half] <= before + 8)) base[half] = larger(before, m[half]);
        const float factor = before == -INFINITY ? 0.0f : power_of_2<T>(before - base[half]);
        total[half] = total[half] * factor;
        Mma::each(sums, half, [&](float& sum) { sum = sum * factor; });
      }
    }
    SINTER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float less = base[half] == -INFINITY ? 0.0f : base[half];
      Mma::each(scores, half, [&](float& score) {
        score = power_of_2<T>(math::mul_add(score, scale, -less));
        total[half] = total[half] + score;
      });
    }
    Mma::weigh(scores, stage.tiles[1], 0, sums);
  }
  SINTER_UNROLL
  for (int half = 0; half < 2; ++half) {
    total[half] = Mma::of_row(total[half], [](float a, float b) { return a + b; });
    // Of a row with a NaN or an infinite score: its weights above are no numbers.
    if (last > 0 && !(math::abs(base[half]) < INFINITY)) total[half] = NAN;
    if (lane() % 4 == 0 && first + Mma::row(half) < rows)
      x.lse.put((int64_t{b} * x.heads + h) * x.rows + first + Mma::row(half),
          last > 0 ? base[half] * 0.693147181f + math::log(total[half]) : -INFINITY);
  }
  Mma::send(sums, x.o, b, h, first, rows, x.depth,
      [&](int half) { return last > 0 ? 1.0f / total[half] : 0.0f; });
}

template <class T, int kDepth>
using AttentionMmaBackward = AttentionMma<T, kDepth, (kDepth * int(sizeof(T)) > 128 ? 32 : 64)>;

// Of a row lse in base 2 and the sum of do o.
using AttentionNumbers = SharedTile<float, kAttentionRows, 2>;
template <class Mma> struct AttentionGradientStages {
  typename Mma::Own own[2];
  AttentionNumbers numbers;
  struct Stage {
    typename Mma::Across tiles[2];
    AttentionNumbers numbers;
  } stages[2];
};
template <int kRows, class T>
SINTER_DEVICE_FN void bring_numbers(
    const AttentionBackward<T>& x, int64_t b, int64_t h, int first, AttentionNumbers& to) {
  constexpr int kLanes = kAttentionThreads / kRows;
  const int r = thread_x() / kLanes;
  const bool there = first + r < x.rows;
  const int64_t d_o = x.d_o.at(b, h, first + r, 0), o = x.o.at(b, h, first + r, 0);
  float sum = 0;
  SINTER_NO_UNROLL
  for (int c = thread_x() % kLanes * kVec<T>; there && c < x.depth; c += kLanes * kVec<T>) {
    const auto left = x.d_o.data.template load_vec<kVec<T>>(d_o + c);
    const auto right = x.o.data.template load_vec<kVec<T>>(o + c);
    SINTER_UNROLL
    for (int e = 0; e < kVec<T>; ++e) sum = math::mul_add(float(left[e]), float(right[e]), sum);
  }
  SINTER_UNROLL
  for (int mask = 1; mask < kLanes; mask *= 2) sum = sum + shfl_xor(sum, mask);
  if (thread_x() % kLanes != 0) return;
  const float lse = there ? x.lse[(b * x.heads + h) * x.rows + first + r] * math::kLog2e : INFINITY;
  to.store_vec(r, 0, Vec<float, 2>{{lse, sum}});
}

// dk and dv of a tile of keys, own are k and v, or dq of a tile of rows, own are q and do; across
// come the other two.
template <bool kOfKeys, class T, int kDepth>
SINTER_DEVICE_FN void attention_gradients(const AttentionBackward<T>& x, unsigned block) {
  using Mma = AttentionMmaBackward<T, kDepth>;
  constexpr int kChunk = 32;  // of the columns, whose scores are in registers at a time
  auto& s = shared<AttentionGradientStages<Mma>>();
  const unsigned tiles = static_cast<unsigned>(kOfKeys ? x.key_tiles : x.row_tiles),
                 of_batch = static_cast<unsigned>(kOfKeys ? x.groups : x.heads),
                 blocks = static_cast<unsigned>(kOfKeys ? x.key_blocks : grid_x() - x.key_blocks),
                 all_heads = blocks / tiles, head = block % all_heads, b = head / of_batch,
                 mine = head % of_batch;
  // What has most to do begins, if it is causal.
  const auto tile = static_cast<int>(block / all_heads);
  const int rows = static_cast<int>(x.rows), keys = static_cast<int>(x.keys),
            of_group = static_cast<int>(x.heads_of_group), size = kOfKeys ? keys : rows,
            other = kOfKeys ? rows : keys,
            first = (kOfKeys ? tile : static_cast<int>(tiles) - 1 - tile) * kAttentionRows,
            from = kOfKeys && x.causal ? first : 0,
            to = !kOfKeys && x.causal ? std::min(first + kAttentionRows, other) : other;
  const unsigned theirs = kOfKeys ? mine * of_group : mine / of_group;
  const typename Mma::Rows left(kOfKeys ? x.q : x.k, b, theirs, other, x.depth),
      right(kOfKeys ? x.d_o : x.v, b, theirs, other, x.depth);
  // The next tile, and of which head of theirs it is.
  int next = from, h = 0, begun = 0;
  const auto begin = [&] {
    auto& stage = s.stages[begun++ % 2];
    left.bring(h, next, stage.tiles[0]);
    right.bring(h, next, stage.tiles[1]);
    if (kOfKeys) bring_numbers<Mma::kAcross>(x, b, theirs + h, next, stage.numbers);
    next += Mma::kAcross;
    if (next < to) return;
    next = from;
    ++h;
  };
  typename Mma::Rows(kOfKeys ? x.k : x.q, b, mine, size, x.depth).bring(0, first, s.own[0]);
  typename Mma::Rows(kOfKeys ? x.v : x.d_o, b, mine, size, x.depth).bring(0, first, s.own[1]);
  if (!kOfKeys) bring_numbers<kAttentionRows>(x, b, mine, first, s.numbers);
  const int heads = from < to ? (kOfKeys ? of_group : 1) : 0;
  if (heads > 0) begin();
  cp_async_commit();

  const float scale = x.scale * math::kLog2e;
  const auto own = [&](int i) {
    return [&, i](int d) { return fragments_of_rows<true, T>(s.own[i], warp() * 16, d); };
  };
  typename Mma::Sums sums = {}, sums_of_v = {};
  const int turns = heads * ((to - from + Mma::kAcross - 1) / Mma::kAcross);
  SINTER_NO_UNROLL
  for (int turn = 0, at = from; turn < turns; ++turn) {
    cp_async_wait<0>();
    block_sync();  // all of this tile is here, and nobody still reads the one before
    const auto& stage = s.stages[turn % 2];
    const int at_next = next;
    if (turn + 1 < turns) begin();
    cp_async_commit();
    const bool masked = kOfKeys ? x.causal && at < first + kAttentionRows
                                : at + Mma::kAcross > (x.causal ? std::min(first, keys) : keys);
    SINTER_UNROLL
    for (int c = 0; c < Mma::kAcross; c += kChunk) {
      typename Mma::Fragment p[kChunk / 16] = {}, ds[kChunk / 16] = {};
      Mma::scores(own(0), stage.tiles[0], c, p);
      Mma::scores(own(1), stage.tiles[1], c, ds);
      if (masked) Mma::template mask<kOfKeys>(p, first, at + c, keys, x.causal);
      SINTER_UNROLL
      for (int f = 0; f < kChunk / 8; ++f) {
        Vec<float, 2> numbers[2];  // of two columns, or of the lane's two rows
        SINTER_UNROLL
        for (int i = 0; i < 2; ++i)
          numbers[i] = kOfKeys
                           ? stage.numbers.template load_vec<2>(c + f * 8 + Mma::column() + i, 0)
                           : s.numbers.template load_vec<2>(Mma::row(i), 0);
        SINTER_UNROLL
        for (int e = 0; e < 4; ++e) {
          const auto& of = numbers[kOfKeys ? e % 2 : e / 2];
          float &weight = p[f / 2][f % 2].v[e], &slope = ds[f / 2][f % 2].v[e];
          weight = power_of_2<T>(math::mul_add(weight, scale, -of[0]));
          slope = weight * (slope - of[1]);
        }
      }
      Mma::weigh(ds, stage.tiles[0], c, sums);
      if (kOfKeys) Mma::weigh(p, stage.tiles[1], c, sums_of_v);
    }
    at = at_next;
  }
  const auto scaled = [&](int) { return x.scale; };
  Mma::send(sums, kOfKeys ? x.dk : x.dq, b, mine, first, size, x.depth, scaled);
  if (kOfKeys) Mma::send(sums_of_v, x.dv, b, mine, first, size, x.depth, [](int) { return 1.0f; });
}

template <class T, int kDepth>
SINTER_KERNEL_BOUNDS(kAttentionThreads, 2)
attention_backward_mma_64(AttentionBackward<T> x) {
  const auto block = static_cast<unsigned>(block_x());
  const auto key_blocks = static_cast<unsigned>(x.key_blocks);
  if (block < key_blocks) {
    attention_gradients<true, T, kDepth>(x, block);
  } else {
    attention_gradients<false, T, kDepth>(x, block - key_blocks);
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
