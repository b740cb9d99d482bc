// attention on the CPU (ops/attention/attention.cpp says what it computes). A task has 64 rows of a
// head, which lie side by side in the lanes of vectors: scores are [key, row], so that a row's
// maximum and sum, and the scaling of what it has, are plain operations on vectors, and keys are
// broadcast from where they lie, whatever their strides. Keys come in tiles of 64. Of a causal tile
// on the diagonal, 16 or 32 rows at a time see the keys up to their last one.
//
// Backward, with B G >= threads, a task has a head of k and v, all its rows and 5 products. Else
// there are more of them, with 7 products: some tiles of keys give dk and dv, then 64 rows dq. Sums
// have the same order either way, so it does not depend on the number of threads.
#include "ops/attention/fast/attention_cpu.h"
#include "core/parallel.h"

// rows of q, keys, depth
namespace sinter::on_cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif
// Of a product's tile in registers; of rows that are one task; of keys that are one tile.
constexpr int kTileRows = 6, kBlock = 64, kKeys = 64;
// Apart lie rows of [.., kBlock]: no multiple of many lines, or few sets of the cache would have
// all.
constexpr int kPitch = kBlock + 16;
constexpr int64_t kTilesOfTask = 4;  // backward: of keys
template <class V> constexpr int kPart = std::max(16, 2 * kLanesOf<V>);
// A matrix whose elements are read one at a time.
template <class V> struct Broadcast {
  const V* data;
  int64_t row, column;
  Broadcast transposed() const { return {data, column, row}; }
};

template <int R, int N, bool kAdd, class V>
void product_tile(const Broadcast<V>& a, const V* b, int64_t ld, int64_t k, V* c) {
  Lanes<V> sum[R][N];
  SINTER_UNROLLED for (int i = 0; i < R; ++i) {
    SINTER_UNROLLED for (int v = 0; v < N; ++v) sum[i][v] =
        kAdd ? load(c + i * ld + v * kLanesOf<V>) : Lanes<V>{};
  }
  const V* from = a.data;
  const int64_t row_of_a = a.row, step = a.column;
  for (int64_t p = 0; p < k; ++p, from += step, b += ld) {
    Lanes<V> row[N];
    SINTER_UNROLLED for (int v = 0; v < N; ++v) row[v] = load(b + v * kLanesOf<V>);
    SINTER_UNROLLED for (int i = 0; i < R; ++i) {
      const Lanes<V> factor = all(from[i * row_of_a]);
      SINTER_UNROLLED for (int v = 0; v < N; ++v) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
  }
  SINTER_UNROLLED for (int i = 0; i < R; ++i) {
    SINTER_UNROLLED for (int v = 0; v < N; ++v) store(c + i * ld + v * kLanesOf<V>, sum[i][v]);
  }
}
template <int R, bool kAdd, class V>
void product_rows(
    const Broadcast<V>& a, const V* b, int64_t ld, int64_t rows, int64_t cols, int64_t k, V* c) {
  if constexpr (R > 1) {
    if (rows < R) return product_rows<R - 1, kAdd>(a, b, ld, rows, cols, k, c);
  }
  constexpr int kAll = kTileVectors * kLanesOf<V>, kHalf = kAll / 2;
  for (; cols >= kAll; cols -= kAll, b += kAll, c += kAll)
    product_tile<R, kTileVectors, kAdd>(a, b, ld, k, c);
  for (; cols >= kHalf; cols -= kHalf, b += kHalf, c += kHalf)
    product_tile<R, kTileVectors / 2, kAdd>(a, b, ld, k, c);
  for (; cols > 0; cols -= kLanesOf<V>, b += kLanesOf<V>, c += kLanesOf<V>)
    product_tile<R, 1, kAdd>(a, b, ld, k, c);
}
// c[rows, cols] = a[rows, k] b[k, cols], or += it: rows of b and c are ld apart, cols whole
// vectors.
template <bool kAdd, class V>
void product(Broadcast<V> a, const V* b, int64_t ld, int64_t rows, int64_t cols, int64_t k, V* c) {
  for (; rows > 0; rows -= kTileRows, a.data += kTileRows * a.row, c += kTileRows * ld)
    product_rows<kTileRows, kAdd>(a, b, ld, rows, cols, k, c);
}

// Some of the rows of a head as [depth, row], `factor` times; 0 where there are none.
template <class T, class V>
void load_columns(const Heads<const T>& x, const T* from, int64_t rows, int64_t cols, int64_t depth,
    V factor, V* to) {
  const int64_t row = x.strides[2], column = x.strides[3];
  for (int64_t r = 0; r < cols; r += kSquare<V>) {
    for (int64_t d = 0; d < depth; d += kSquare<V>) {
      Quad<V> square[kSquare<V>];
      SINTER_UNROLLED for (int i = 0; i < kSquare<V>; ++i) square[i] =
          part_of<V>(from + (r + i) * row + d * column, column, r + i < rows ? depth - d : 0);
      turn(square);
      SINTER_UNROLLED for (int i = 0; i < kSquare<V>; ++i) {
        if (d + i < depth) store(to + (d + i) * kPitch + r, square[i] * factor);
      }
    }
  }
}
// And as [row, width], whose columns behind the depth are 0. REQUIRES: width is a multiple of
// kSquare.
template <class T, class V>
void load_rows(const Heads<const T>& x, const T* from, int64_t rows, int64_t depth, int64_t width,
    V factor, V* to) {
  const int64_t row = x.strides[2], column = x.strides[3];
  for (int64_t r = 0; r < rows; ++r, from += row, to += width) {
    for (int64_t d = 0; d < width; d += kSquare<V>)
      store(to + d, part_of<V>(from + d * column, column, depth - d) * factor);
  }
}
// Keys from t on, of which a product reads numbers of V: where they lie, or converted.
template <class T, class V>
Broadcast<V> keys_of(
    const Heads<const T>& x, int64_t b, int64_t g, int64_t t, int64_t n, int64_t depth, V* buffer) {
  if constexpr (std::is_same_v<T, V>) return {x.at(b, g, t), x.strides[2], x.strides[3]};
  const int64_t width = round_up(depth, kSquare<V>);
  load_rows(x, x.at(b, g, t), n, depth, width, V(1), buffer);
  return {buffer, width, 1};
}

// Of a block of rows and a tile of keys: f(first row of the block, how many, how many keys of the
// tile they read, is any of these behind a row?) until all rows that read any have had their turn.
struct Cell {
  int64_t row, cols, key, keys;
  bool causal;
  template <class V, class F> void for_parts(V, const F& f) const {
    if (!causal || key + keys - 1 <= row) return f(int64_t{0}, cols, keys, false);
    for (int64_t c = 0; c < cols; c += kPart<V>) {
      const int64_t n = std::min(keys, row + c + kPart<V> - key);
      if (n > 0) f(c, int64_t{kPart<V>}, n, true);
    }
  }
};
// `value` where key t is behind the row of a lane, the first of which is that of lane 0.
template <class V> Lanes<V> masked(Lanes<V> x, int64_t t, int64_t first_row, V value) {
  if (t <= first_row) return x;
  using Whole = std::conditional_t<sizeof(V) == 8, int64_t, int32_t>;
  Lanes<Whole> lane;
  for (int l = 0; l < kLanesOf<V>; ++l) lane[l] = l;
  return lane < all(Whole(t - first_row)) ? all(value) : x;
}

// f(b, h, block) on all threads. Early and late blocks of a head, which are short and long, take
// turns, so that equal numbers of them are equal work.
template <class F>
void for_blocks(int64_t batch, int64_t heads, int64_t blocks, int64_t cost, const F& f) {
  parallel_for(batch * heads * blocks, grain_of(cost), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t head = task / blocks, i = task % blocks;
      f(head / heads, head % heads, i % 2 ? blocks - 1 - i / 2 : i / 2);
    }
  });
}
// About how long a block of rows takes with all keys, in the units of grain_of().
int64_t block_cost(const AttentionSizes& n) { return kBlock * n.keys * n.depth / 4; }

// The scores of some keys, [key, row], of kPart rows become weights, e^(score - maximum), and are
// added to the rows' sums; what the rows have, [depth, row], is scaled where the maximum moves.
template <class V> void weigh(V* scores, int64_t keys, V* most, V* sum, V* o, int64_t depth) {
  constexpr int kVectors = kPart<V> / kLanesOf<V>;
  constexpr V kInf = std::numeric_limits<V>::infinity();
  Lanes<V> m[kVectors], s[kVectors];
  SINTER_UNROLLED for (int v = 0; v < kVectors; ++v) {
    m[v] = load(most + v * kLanesOf<V>);
    s[v] = load(sum + v * kLanesOf<V>);
  }
  for (int64_t t = 0; t < keys; ++t) {
    SINTER_UNROLLED for (int v = 0; v < kVectors; ++v) {
      const Lanes<V> x = load(scores + t * kPitch + v * kLanesOf<V>);
      m[v] = x > m[v] ? x : m[v];  // not a NaN, which the sum will have
    }
  }
  SINTER_UNROLLED for (int v = 0; v < kVectors; ++v) {
    const Lanes<V> before = load(most + v * kLanesOf<V>);
    store(most + v * kLanesOf<V>, m[v]);
    m[v] = m[v] == -kInf ? Lanes<V>{} : m[v];
    bool moves = false;
    for (int l = 0; l < kLanesOf<V>; ++l) moves |= before[l] < m[v][l];
    if (!moves) continue;
    const Lanes<V> factor = exp_of(before - m[v]);
    s[v] *= factor;
    for (int64_t d = 0; d < depth; ++d) {
      V* const at = o + d * kPitch + v * kLanesOf<V>;
      store(at, load(at) * factor);
    }
  }
  for (int64_t t = 0; t < keys; ++t) {
    SINTER_UNROLLED for (int v = 0; v < kVectors; ++v) {
      V* const at = scores + t * kPitch + v * kLanesOf<V>;
      const Lanes<V> e = exp_of(load(at) - m[v]);
      store(at, e);
      s[v] += e;
    }
  }
  SINTER_UNROLLED for (int v = 0; v < kVectors; ++v) store(sum + v * kLanesOf<V>, s[v]);
}

template <class T> void forward(const Call& call) {
  using V = compute_t<T>;
  constexpr V kInf = std::numeric_limits<V>::infinity();
  const AttentionSizes n(call.in[0], call.in[1], call.as<AttentionAttrs>());
  const Heads<const T> q(call.in[0]), k(call.in[1]), v(call.in[2]);
  const Heads<T> o(HeadsOfResult(call, n, 0));
  V* const lse = call.out[1].data<V>();
  const int64_t blocks = (n.rows + kBlock - 1) / kBlock;
  for_blocks(n.batch, n.heads, blocks, block_cost(n), [&](int64_t b, int64_t h, int64_t block) {
    const int64_t columns_size = n.depth * kPitch,
                  keys_size = kKeys * round_up(n.depth, kSquare<V>);
    const auto [columns, sums, weights, most, total, key_buffer, value_buffer] = pieces_of<V>(
        {columns_size, columns_size, kKeys * kPitch, kBlock, kBlock, keys_size, keys_size});
    const int64_t first = block * kBlock, rows = std::min<int64_t>(kBlock, n.rows - first),
                  cols = round_up(rows, kPart<V>), g = h / n.heads_of_group();
    load_columns(q, q.at(b, h, first), rows, cols, n.depth, V(n.scale), columns);
    std::fill_n(sums, columns_size, V(0));
    std::fill_n(most, kBlock, -kInf);
    std::fill_n(total, kBlock, V(0));
    const int64_t keys = n.causal ? std::min(n.keys, first + rows) : n.keys;
    for (int64_t t = 0; t < keys; t += kKeys) {
      const Cell cell{first, cols, t, std::min<int64_t>(kKeys, keys - t), n.causal};
      const auto key = keys_of(k, b, g, t, cell.keys, n.depth, key_buffer);
      const auto value = keys_of(v, b, g, t, cell.keys, n.depth, value_buffer);
      cell.for_parts(V{}, [&](int64_t c, int64_t width, int64_t read, bool diagonal) {
        product<false>(key, columns + c, kPitch, read, width, n.depth, weights + c);
        for (int64_t i = 0; diagonal && i < read; ++i) {
          for (int64_t l = 0; l < width; l += kLanesOf<V>) {
            V* const at = weights + i * kPitch + c + l;
            store(at, masked(load(at), t + i, first + c + l, -kInf));
          }
        }
        for (int64_t p = c; p < c + width; p += kPart<V>)
          weigh(weights + p, read, most + p, total + p, sums + p, n.depth);
        product<true>(value.transposed(), weights + c, kPitch, n.depth, width, read, sums + c);
      });
    }
    for (int64_t r = 0; r < rows; ++r) {
      const V share = keys == 0 ? V(0) : 1 / total[r];
      T* const to = o.at(b, h, first + r);
      for (int64_t d = 0; d < n.depth; ++d) to[d] = T(sums[d * kPitch + r] * share);
      lse[(b * n.heads + h) * n.rows + first + r] = most[r] + math::log(total[r]);
    }
  });
}

template <class T> class Backward {
  using V = compute_t<T>;

 public:
  explicit Backward(const Call& call)
      : n_(call.in[1], call.in[2], call.as<AttentionAttrs>()),
        d_o_(call.in[0]),
        q_(call.in[1]),
        k_(call.in[2]),
        v_(call.in[3]),
        o_(call.in[4]),
        lse_(call.in[5].data<V>()),
        dq_(HeadsOfResult(call, n_, 0)),
        dk_(HeadsOfResult(call, n_, 1)),
        dv_(HeadsOfResult(call, n_, 2)),
        width_(round_up(n_.depth, kLanesOf<V>)),
        blocks_((n_.rows + kBlock - 1) / kBlock) {}

  void run() const {
    if (n_.batch * n_.groups >= num_threads()) {
      const int64_t cost = n_.heads_of_group() * blocks_ * block_cost(n_);
      return for_blocks(n_.batch, n_.groups, 1, cost,
          [&](int64_t b, int64_t g, int64_t) { keys<true>(b, g, 0, n_.keys); });
    }
    const int64_t of_task = kTilesOfTask * kKeys, tasks = (n_.keys + of_task - 1) / of_task;
    for_blocks(n_.batch, n_.groups, tasks, kTilesOfTask * block_cost(n_),
        [&](int64_t b, int64_t g, int64_t task) {
          keys<false>(b, g, task * of_task, std::min(n_.keys, (task + 1) * of_task));
        });
    for_blocks(n_.batch, n_.heads, blocks_, block_cost(n_), [&](int64_t b, int64_t h, int64_t i) {
      Block block(*this, pieces(0));
      block.template begin<false>(b, h, i);
      for (int64_t t = 0; t < last_key(i); t += kKeys)
        block.template tile<true, false>(t, last_key(i), nullptr, nullptr);
      block.end();
    });
  }

 private:
  int64_t last_key(int64_t block) const {
    return n_.causal ? std::min(n_.keys, (block + 1) * kBlock) : n_.keys;
  }
  // Those of a Block, then dk and dv of some keys.
  std::array<V*, 13> pieces(int64_t keys) const {
    const int64_t columns = n_.depth * kPitch, rows = kBlock * width_, weights = kKeys * kPitch,
                  of_keys = kKeys * round_up(n_.depth, kSquare<V>), grads = keys * width_;
    return pieces_of<V>({columns, columns, columns, rows, rows, weights, weights, kBlock, kBlock,
        of_keys, of_keys, grads, grads});
  }

  // A block of rows: as both products want them, and its dq.
  class Block {
   public:
    Block(const Backward& all, const std::array<V*, 13>& pieces)
        : all_(all),
          n_(all.n_),
          q_columns_(pieces[0]),
          do_columns_(pieces[1]),
          dq_(pieces[2]),
          q_rows_(pieces[3]),
          do_rows_(pieces[4]),
          p_(pieces[5]),
          ds_(pieces[6]),
          lse_(pieces[7]),
          delta_(pieces[8]),
          key_buffer_(pieces[9]),
          value_buffer_(pieces[10]) {}

    template <bool kKeysToo> void begin(int64_t b, int64_t h, int64_t block) {
      b_ = b;
      h_ = h;
      first_ = block * kBlock;
      rows_ = std::min<int64_t>(kBlock, n_.rows - first_);
      cols_ = round_up(rows_, kPart<V>);
      const int64_t depth = n_.depth;
      const T *const q = all_.q_.at(b, h, first_), *const d_o = all_.d_o_.at(b, h, first_);
      load_columns(all_.q_, q, rows_, cols_, depth, V(n_.scale), q_columns_);
      load_columns(all_.d_o_, d_o, rows_, cols_, depth, V(1), do_columns_);
      if constexpr (kKeysToo) {
        load_rows(all_.q_, q, rows_, depth, all_.width_, V(n_.scale), q_rows_);
        load_rows(all_.d_o_, d_o, rows_, depth, all_.width_, V(1), do_rows_);
      }
      std::fill_n(dq_, depth * kPitch, V(0));
      std::fill_n(lse_, kBlock, std::numeric_limits<V>::infinity());  // no row has weights 0
      std::fill_n(delta_, kBlock, V(0));
      std::copy_n(all_.lse_ + (b * n_.heads + h) * n_.rows + first_, rows_, lse_);
      for (int64_t r = 0; r < rows_; ++r) {
        const T* const o = all_.o_.at(b, h, first_ + r);
        const int64_t column = all_.o_.strides[3];
        for (int64_t d = 0; d < depth; ++d)
          delta_[r] += do_columns_[d * kPitch + r] * V(o[d * column]);
      }
    }
    // Of the keys from t on, at most a tile and below `end`. dk and dv are of the first of them.
    template <bool kRowsToo, bool kKeysToo> void tile(int64_t t, int64_t end, V* dk, V* dv) {
      const int64_t depth = n_.depth, width = all_.width_, g = h_ / n_.heads_of_group();
      const Cell cell{first_, cols_, t, std::min<int64_t>(kKeys, end - t), n_.causal};
      const auto key = keys_of(all_.k_, b_, g, t, cell.keys, depth, key_buffer_);
      const auto value = keys_of(all_.v_, b_, g, t, cell.keys, depth, value_buffer_);
      cell.for_parts(V{}, [&](int64_t c, int64_t part, int64_t read, bool diagonal) {
        product<false>(key, q_columns_ + c, kPitch, read, part, depth, p_ + c);
        product<false>(value, do_columns_ + c, kPitch, read, part, depth, ds_ + c);
        for (int64_t l = c; l < c + part; l += kLanesOf<V>) {
          const Lanes<V> lse = load(lse_ + l), delta = load(delta_ + l);
          for (int64_t i = 0; i < read; ++i) {
            V *const p = p_ + i * kPitch + l, *const ds = ds_ + i * kPitch + l;
            Lanes<V> weight = exp_of(load(p) - lse), slope = weight * (load(ds) - delta);
            if (diagonal) {
              weight = masked(weight, t + i, first_ + l, V(0));
              slope = masked(slope, t + i, first_ + l, V(0));
            }
            store(p, weight);
            store(ds, slope);
          }
        }
        if constexpr (kRowsToo)
          product<true>(key.transposed(), ds_ + c, kPitch, depth, part, read, dq_ + c);
        if constexpr (kKeysToo) {
          const int64_t rows = std::min(part, rows_ - c);
          product<true>({p_ + c, kPitch, 1}, do_rows_ + c * width, width, read, width, rows, dv);
          product<true>({ds_ + c, kPitch, 1}, q_rows_ + c * width, width, read, width, rows, dk);
        }
      });
    }
    void end() const {
      for (int64_t r = 0; r < rows_; ++r) {
        T* const to = all_.dq_.at(b_, h_, first_ + r);
        for (int64_t d = 0; d < n_.depth; ++d) to[d] = T(dq_[d * kPitch + r] * V(n_.scale));
      }
    }

   private:
    const Backward& all_;
    const AttentionSizes& n_;
    V *const q_columns_,
        *const do_columns_,
            *const dq_, *const q_rows_, *const do_rows_,
                                            *const p_, *const ds_, *const lse_,
                                                                       *const delta_,
                                                                           *const key_buffer_,
                                                                               *const value_buffer_;
    int64_t b_ = 0, h_ = 0, first_ = 0, rows_ = 0, cols_ = 0;
  };

  // dk and dv of keys begin .. end - 1 of a head of theirs, and dq of all its rows.
  template <bool kRowsToo> void keys(int64_t b, int64_t g, int64_t begin, int64_t end) const {
    const auto memory = pieces(end - begin);
    V *const dk = memory[11], *const dv = memory[12];
    std::fill_n(dk, (end - begin) * width_, V(0));
    std::fill_n(dv, (end - begin) * width_, V(0));
    Block block(*this, memory);
    const int64_t heads = n_.heads_of_group();
    for (int64_t h = g * heads; h < (g + 1) * heads; ++h) {
      for (int64_t i = 0; i < blocks_; ++i) {
        const int64_t last = std::min(end, last_key(i));
        if (!kRowsToo && last <= begin) continue;
        block.template begin<true>(b, h, i);
        for (int64_t t = begin; t < last; t += kKeys) {
          const int64_t at = (t - begin) * width_;
          block.template tile<kRowsToo, true>(t, last, dk + at, dv + at);
        }
        if constexpr (kRowsToo) block.end();
      }
    }
    for (int64_t t = begin; t < end; ++t) {
      const int64_t from = (t - begin) * width_;
      std::copy_n(dk + from, n_.depth, dk_.at(b, g, t));
      std::copy_n(dv + from, n_.depth, dv_.at(b, g, t));
    }
  }

  const AttentionSizes n_;
  const Heads<const T> d_o_, q_, k_, v_, o_;
  const V* const lse_;
  const Heads<T> dq_, dk_, dv_;
  const int64_t width_, blocks_;
};

}  // namespace

void attention(const Call& call) {
  if (attention_is_short({call.in[0], call.in[1], call.as<AttentionAttrs>()}))
    return attention_short(call);
  visit_float(call.in[0].dtype(), [&]<class T>(T) { forward<T>(call); });
}
void attention_backward(const Call& call) {
  if (attention_is_short({call.in[1], call.in[2], call.as<AttentionAttrs>()}))
    return attention_short_backward(call);
  visit_float(call.in[0].dtype(), [&]<class T>(T) { Backward<T>(call).run(); });
}

}  // namespace sinter::on_cpu
