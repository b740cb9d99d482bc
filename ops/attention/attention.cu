// attention and its backward (ops/attention/attention.cpp says what they compute): on tensor cores
// (fast/attention_mma.cuh), or as here. A block of kSide x kSide threads has a tile of 4 kSide rows
// of a head of q, or backward of keys, too, and passes over the tiles of the other side, which come
// to shared memory one after the other. Of each pair of tiles a thread makes 4 x 4 scores, by
// ordinary multiply-adds; a row's are those of kSide lanes. Weights go by shared memory to the
// product that follows, whose sums stay in registers: of 4 rows and every kSide-th few columns.
// Sums are f32 for bf16. Heads are read and written where they lie.
//
// Of a depth that is more than kDepth a block makes kDepth columns, and all scores for them: f32 of
// 128 columns backward would take more registers than a thread has, so those go by two parts.
#include "ops/attention/fast/attention_mma.cuh"

// rows of q, keys, depth
namespace sinter::SINTER_KERNEL_NS {

template <class V, int kSide, int kDepth> struct AttentionTile {
  static constexpr int kRows = 4 * kSide, kOfPart = kDepth, kThreads = kSide * kSide, kN = kVec<V>,
                       kGroups = kDepth / (kSide * kN), kColumns = kGroups * kN;
  using OfDepth = SharedTile<V, kRows, kDepth, kN>;
  using OfScores = SharedTile<V, kRows, kRows, kN>;
  static SINTER_DEVICE_FN int across() { return thread_x() % kSide; }
  // Of a thread's 4 rows, its 4 scores in a row, and its columns.
  static SINTER_DEVICE_FN int row(int i) { return thread_x() / kSide * 4 + i; }
  static SINTER_DEVICE_FN int score(int j) { return across() + kSide * j; }
  static SINTER_DEVICE_FN int column(int g) { return (across() + kSide * g) * kN; }

  // Rows from `first` on, of which `rows` exist, and columns from `from` on, of `depth`.
  template <class T>
  static SINTER_DEVICE_FN void bring(const HeadsIn<T>& x, int64_t b, int64_t h, int64_t first,
      int64_t rows, int from, int depth, V factor, OfDepth& to) {
    const int64_t at = x.at(b, h, first, from);
    SINTER_NO_UNROLL
    for (int e = thread_x(); e < kRows * kDepth; e += kThreads) {
      const int r = e / kDepth, d = e % kDepth;
      const bool there = first + r < rows && from + d < depth;
      to.put(r, d, there ? V(x.data[at + r * x.row + d * x.column]) * factor : V(0));
    }
  }
  // s += a b^T
  static SINTER_DEVICE_FN void scores(const OfDepth& a, const OfDepth& b, V (&s)[4][4]) {
    SINTER_NO_UNROLL
    for (int d = 0; d < kDepth; d += kN) {
      Vec<V, kN> x[4], y[4];
      SINTER_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[i] = a.template load_vec<kN>(row(i), d);
        y[i] = b.template load_vec<kN>(score(i), d);
      }
      SINTER_UNROLL
      for (int e = 0; e < kN; ++e) {
        SINTER_UNROLL
        for (int i = 0; i < 4; ++i) {
          SINTER_UNROLL
          for (int j = 0; j < 4; ++j) s[i][j] = math::mul_add(x[i][e], y[j][e], s[i][j]);
        }
      }
    }
  }
  // sums += w b
  static SINTER_DEVICE_FN void weigh(const OfScores& w, const OfDepth& b, V (&sums)[4][kColumns]) {
    SINTER_NO_UNROLL
    for (int t = 0; t < kRows; t += kN) {
      Vec<V, kN> x[4];
      SINTER_UNROLL
      for (int i = 0; i < 4; ++i) x[i] = w.template load_vec<kN>(row(i), t);
      SINTER_UNROLL
      for (int e = 0; e < kN; ++e) {
        SINTER_UNROLL
        for (int g = 0; g < kGroups; ++g) {
          const auto y = b.template load_vec<kN>(t + e, column(g));
          SINTER_UNROLL
          for (int i = 0; i < 4; ++i) {
            SINTER_UNROLL
            for (int f = 0; f < kN; ++f)
              sums[i][g * kN + f] = math::mul_add(x[i][e], y[f], sums[i][g * kN + f]);
          }
        }
      }
    }
  }
  static SINTER_DEVICE_FN void put(const V (&s)[4][4], OfScores& to) {
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      SINTER_UNROLL
      for (int j = 0; j < 4; ++j) to.put(row(i), score(j), s[i][j]);
    }
  }
  // To rows from `first` on, `factor(i)` times.
  template <class T, class F>
  static SINTER_DEVICE_FN void send(const V (&sums)[4][kColumns], const HeadsOut<T>& to, int64_t b,
      int64_t h, int64_t first, int64_t rows, int from, int depth, const F& factor) {
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t r = first + row(i);
      SINTER_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int d = from + column(c / kN) + c % kN;
        if (r < rows && d < depth) to.data.put(to.at(b, h, r, d), T(sums[i][c] * factor(i)));
      }
    }
  }
  // Over the lanes that share a row.
  template <class F> static SINTER_DEVICE_FN V of_row(V x, const F& f) {
    SINTER_UNROLL
    for (int mask = kSide / 2; mask > 0; mask /= 2) x = f(x, shfl_xor(x, mask));
    return x;
  }
};

template <class T, int kSide, int kDepth>
SINTER_KERNEL_BOUNDS(kSide* kSide, 1)
attention_ffma(AttentionForward<T> x) {
  using V = compute_t<T>;
  using Tile = AttentionTile<V, kSide, kDepth>;
  struct Tiles {
    typename Tile::OfDepth q, k, v;
    typename Tile::OfScores weights;
  };
  auto& s = shared<Tiles>();
  const int64_t head = block_x() / x.tiles, first = block_x() % x.tiles * Tile::kRows,
                b = head / x.heads, h = head % x.heads, g = h / x.heads_of_group,
                last = x.causal && first + Tile::kRows < x.keys ? first + Tile::kRows : x.keys;
  const int part = static_cast<int>(block_y()) * kDepth;
  const auto larger = [](V a, V b) { return a > b ? a : b; };  // of a NaN and a number the number
  V sums[4][Tile::kColumns] = {}, most[4], total[4] = {};
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) most[i] = -INFINITY;
  SINTER_NO_UNROLL
  for (int64_t t = 0; t < last; t += Tile::kRows) {
    V scores[4][4] = {};
    SINTER_NO_UNROLL
    for (int from = 0; from < x.depth; from += kDepth) {
      block_sync();  // nobody reads the tiles before
      if (t == 0 || kDepth < x.depth)
        Tile::bring(x.q, b, h, first, x.rows, from, x.depth, x.scale, s.q);
      Tile::bring(x.k, b, g, t, x.keys, from, x.depth, V(1), s.k);
      if (from == 0) Tile::bring(x.v, b, g, t, x.keys, part, x.depth, V(1), s.v);
      block_sync();
      Tile::scores(s.q, s.k, scores);
    }
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      V m = most[i];
      SINTER_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int64_t key = t + Tile::score(j);
        if (key >= x.keys || (x.causal && key > first + Tile::row(i))) scores[i][j] = -INFINITY;
        m = larger(scores[i][j], m);
      }
      m = Tile::of_row(m, larger);
      const V base = m == V(-INFINITY) ? V(0) : m, factor = math::exp(most[i] - base);
      most[i] = m;
      total[i] = total[i] * factor;
      SINTER_UNROLL
      for (int j = 0; j < 4; ++j) {
        scores[i][j] = math::exp(scores[i][j] - base);
        total[i] = total[i] + scores[i][j];
      }
      SINTER_UNROLL
      for (int c = 0; c < Tile::kColumns; ++c) sums[i][c] = sums[i][c] * factor;
    }
    Tile::put(scores, s.weights);
    block_sync();
    Tile::weigh(s.weights, s.v, sums);
  }
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) total[i] = Tile::of_row(total[i], [](V a, V b) { return a + b; });
  Tile::send(sums, x.o, b, h, first, x.rows, part, x.depth,
      [&](int i) { return last == 0 ? V(0) : V(1) / total[i]; });
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t r = first + Tile::row(i);
    if (Tile::across() == 0 && part == 0 && r < x.rows)
      x.lse.put(head * x.rows + r, most[i] + math::log(total[i]));
  }
}

template <class V, int kSide, int kDepth> struct AttentionGradientTiles {
  using Tile = AttentionTile<V, kSide, kDepth>;
  typename Tile::OfDepth q, k, v, d_o;
  typename Tile::OfScores weights, slopes;
  Shared<V, Tile::kRows> lse, delta;
};

// p and ds of a tile of rows and one of keys. kOfKeys: they are [key, row], else [row, key]. The
// columns of the part come last, so that their tiles are there for what follows.
template <bool kOfKeys, class Tile, class T, class Tiles, class V>
SINTER_DEVICE_FN void attention_slopes(const AttentionBackward<T>& x, Tiles& s, int64_t b,
    int64_t h, int64_t r, int64_t t, int part, V (&p)[4][4], V (&ds)[4][4]) {
  constexpr int kDepth = Tile::kOfPart;
  const int64_t g = h / x.heads_of_group;
  V delta[4] = {};
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) {
    SINTER_UNROLL
    for (int j = 0; j < 4; ++j) p[i][j] = ds[i][j] = V(0);
  }
  const int parts = (x.depth + kDepth - 1) / kDepth;
  SINTER_NO_UNROLL
  for (int n = 1; n <= parts; ++n) {
    const int from = (part + n) % parts * kDepth;
    block_sync();  // nobody reads the tiles before
    Tile::bring(x.q, b, h, r, x.rows, from, x.depth, x.scale, s.q);
    Tile::bring(x.d_o, b, h, r, x.rows, from, x.depth, V(1), s.d_o);
    Tile::bring(x.k, b, g, t, x.keys, from, x.depth, V(1), s.k);
    Tile::bring(x.v, b, g, t, x.keys, from, x.depth, V(1), s.v);
    block_sync();
    Tile::scores(kOfKeys ? s.k : s.q, kOfKeys ? s.q : s.k, p);
    Tile::scores(kOfKeys ? s.v : s.d_o, kOfKeys ? s.d_o : s.v, ds);
    SINTER_UNROLL
    for (int i = 0; i < 4; ++i) {  // or delta would be indexed, and not be in registers
      const int64_t row = r + Tile::row(i);
      SINTER_NO_UNROLL
      for (int d = Tile::across(); row < x.rows && d < kDepth && from + d < x.depth;
           d += Tile::kRows / 4) {
        const V o = V(x.o.data[x.o.at(b, h, row, from + d)]);
        delta[i] = math::mul_add(s.d_o(Tile::row(i), d), o, delta[i]);
      }
    }
  }
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t row = r + Tile::row(i);
    delta[i] = Tile::of_row(delta[i], [](V a, V b) { return a + b; });
    if (Tile::across() == 0) {
      s.delta.put(Tile::row(i), delta[i]);
      s.lse.put(Tile::row(i), row < x.rows ? x.lse[(b * x.heads + h) * x.rows + row] : V(INFINITY));
    }
  }
  block_sync();
  SINTER_UNROLL
  for (int i = 0; i < 4; ++i) {
    SINTER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int row = kOfKeys ? Tile::score(j) : Tile::row(i);
      const int64_t key = t + (kOfKeys ? Tile::row(i) : Tile::score(j));
      const bool read = r + row < x.rows && key < x.keys && (!x.causal || key <= r + row);
      const V weight = math::exp(p[i][j] - s.lse[row]);
      p[i][j] = read ? weight : V(0);
      ds[i][j] = read ? weight * (ds[i][j] - s.delta[row]) : V(0);
    }
  }
  if (kOfKeys) Tile::put(p, s.weights);
  Tile::put(ds, s.slopes);
  block_sync();
}

template <class T, int kSide, int kDepth>
SINTER_KERNEL_BOUNDS(kSide* kSide, 1)
attention_backward_ffma(AttentionBackward<T> x) {
  using V = compute_t<T>;
  using Tile = AttentionTile<V, kSide, kDepth>;
  auto& s = shared<AttentionGradientTiles<V, kSide, kDepth>>();
  const int part = static_cast<int>(block_y());
  V p[4][4], ds[4][4];
  const auto plain = [](int) { return V(1); };
  if (block_x() < x.key_blocks) {  // dk and dv of a tile of keys
    const int64_t head = block_x() / x.key_tiles, t = block_x() % x.key_tiles * Tile::kRows,
                  b = head / x.groups, g = head % x.groups;
    V dk[4][Tile::kColumns] = {}, dv[4][Tile::kColumns] = {};
    SINTER_NO_UNROLL
    for (int64_t n = 0; n < x.heads_of_group; ++n) {
      SINTER_NO_UNROLL
      for (int64_t r = x.causal ? t : 0; r < x.rows; r += Tile::kRows) {
        attention_slopes<true, Tile>(x, s, b, g * x.heads_of_group + n, r, t, part, p, ds);
        Tile::weigh(s.weights, s.d_o, dv);
        Tile::weigh(s.slopes, s.q, dk);
      }
    }
    Tile::send(dk, x.dk, b, g, t, x.keys, part * kDepth, x.depth, plain);
    Tile::send(dv, x.dv, b, g, t, x.keys, part * kDepth, x.depth, plain);
  } else {  // dq of a tile of rows
    const int64_t block = block_x() - x.key_blocks, head = block / x.row_tiles, b = head / x.heads,
                  h = head % x.heads, r = block % x.row_tiles * Tile::kRows,
                  last = x.causal && r + Tile::kRows < x.keys ? r + Tile::kRows : x.keys;
    V dq[4][Tile::kColumns] = {};
    SINTER_NO_UNROLL
    for (int64_t t = 0; t < last; t += Tile::kRows) {
      attention_slopes<false, Tile>(x, s, b, h, r, t, part, p, ds);
      Tile::weigh(s.slopes, s.k, dq);
    }
    Tile::send(dq, x.dq, b, h, r, x.rows, part * kDepth, x.depth, [&](int) { return x.scale; });
  }
}

// Do tensor cores take these heads? They do of bf16, and of f32 that may be cut to TF32, if a head
// has at most 128 columns, and its rows are whole pieces of 16 bytes wherever they lie. Then
// f<kDepth>(), for as many columns or more.
template <class T, class F>
bool by_tensor_cores(const AttentionSizes& n, Operands heads, const F& f) {
  if constexpr (std::is_same_v<T, double>) {
    return false;
  } else {
    constexpr int64_t kMost = 0x7fffff00;  // they count rows, and bytes between two, in 32 bits
    bool whole = on_tensor_cores<T>() && n.depth <= 128 && n.depth % kVec<T> == 0 && n.scale > 0 &&
                 std::max(n.rows, n.keys) < kMost;
    for (const Tensor& t : heads) {
      whole = whole && is_aligned(t) && t.strides()[3] == 1;
      for (int dim = 0; dim < 3; ++dim)
        whole = whole && (t.size(dim) == 1 || t.strides()[dim] % kVec<T> == 0);
      whole = whole && t.strides()[2] < kMost / 4;
    }
    if (!whole) return false;
    return n.depth <= 32   ? f.template operator()<32>()
           : n.depth <= 64 ? f.template operator()<64>()
                           : f.template operator()<128>();
  }
}

// f<kSide, kDepth>() for the depth, of which there may be more parts than one.
template <class T, bool kBackward, class F> void with_attention_depth(int64_t depth, const F& f) {
  if constexpr (std::is_same_v<T, double>) {
    f.template operator()<8, 32>();
  } else if (depth <= 32) {
    f.template operator()<8, 32>();
  } else if constexpr (kBackward) {
    f.template operator()<8, 64>();
  } else {
    if constexpr (!std::is_same_v<T, bf16>) {  // of which tensor cores take nearly all
      if (depth <= 64) return f.template operator()<16, 64>();
    }
    f.template operator()<8, 128>();
  }
}

void attention(const Call& call) {
  const AttentionSizes n(call.in[0], call.in[1], call.as<AttentionAttrs>());
  if (call.out[0].numel() == 0) return;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    AttentionForward<T> x{heads_in<T>(call.in[0]), heads_in<T>(call.in[1]), heads_in<T>(call.in[2]),
        heads_out<T>(call, n, 0), out<V>(call.out[1]), n.heads, n.heads_of_group(), n.rows, n.keys,
        blocks_for(n.rows, kAttentionRows), static_cast<int>(n.depth), n.causal, V(n.scale)};
    const bool done = by_tensor_cores<T>(n, call.in, [&]<int kDepth> {
      const size_t bytes = sizeof(AttentionStages<AttentionMmaForward<T, kDepth>>);
      if (bytes > shared_memory_limit(kDevice)) return false;
      launch<attention_mma_64<T, kDepth>>(
          Grid{n.batch * n.heads * x.tiles}, kAttentionThreads, bytes, x);
      return true;
    });
    if (done) return;
    with_attention_depth<T, false>(n.depth, [&]<int kSide, int kDepth> {
      using Tile = AttentionTile<V, kSide, kDepth>;
      x.tiles = blocks_for(n.rows, Tile::kRows);
      const size_t bytes = 3 * sizeof(typename Tile::OfDepth) + sizeof(typename Tile::OfScores);
      launch<attention_ffma<T, kSide, kDepth>>(
          Grid{n.batch * n.heads * x.tiles, blocks_for(n.depth, kDepth)}, Tile::kThreads, bytes, x);
    });
  });
}

void attention_backward(const Call& call) {
  const AttentionSizes n(call.in[1], call.in[2], call.as<AttentionAttrs>());
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    AttentionBackward<T> x{heads_in<T>(call.in[0]), heads_in<T>(call.in[1]),
        heads_in<T>(call.in[2]), heads_in<T>(call.in[3]), heads_in<T>(call.in[4]),
        in<V>(call.in[5]), heads_out<T>(call, n, 0), heads_out<T>(call, n, 1),
        heads_out<T>(call, n, 2), n.heads, n.groups, n.heads_of_group(), n.rows, n.keys, 0, 0, 0,
        static_cast<int>(n.depth), n.causal, V(n.scale)};
    // The blocks, of tiles of so many rows and keys.
    const auto blocks_of = [&](int rows) {
      x.row_tiles = blocks_for(n.rows, rows);
      x.key_tiles = blocks_for(n.keys, rows);
      x.key_blocks = n.batch * n.groups * x.key_tiles;
      return x.key_blocks + n.batch * n.heads * x.row_tiles;
    };
    if (blocks_of(1) == 0) return;
    const bool done = by_tensor_cores<T>(n, call.in.first(5), [&]<int kDepth> {
      const size_t bytes = sizeof(AttentionGradientStages<AttentionMmaBackward<T, kDepth>>);
      if (bytes > shared_memory_limit(kDevice)) return false;
      launch<attention_backward_mma_64<T, kDepth>>(
          Grid{blocks_of(kAttentionRows)}, kAttentionThreads, bytes, x);
      return true;
    });
    if (done) return;
    with_attention_depth<T, true>(n.depth, [&]<int kSide, int kDepth> {
      using Tile = AttentionTile<V, kSide, kDepth>;
      const int64_t blocks = blocks_of(Tile::kRows);
      launch<attention_backward_ffma<T, kSide, kDepth>>(Grid{blocks, blocks_for(n.depth, kDepth)},
          Tile::kThreads, sizeof(AttentionGradientTiles<V, kSide, kDepth>), x);
    });
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
