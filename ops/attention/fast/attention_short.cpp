// attention on the CPU where a sequence is short (ops/attention/attention.cpp says what it
// computes): heads lie side by side in the lanes of vectors. A score, a weight or a sum is then one
// operation for all of them, no number is broadcast and no vector is summed up, and a causal row
// meets the keys that it reads and no other. A task is as many heads as a vector has lanes.
#include "core/parallel.h"
#include "ops/attention/fast/attention_cpu.h"

namespace sinter::on_cpu {
namespace {

constexpr int64_t kAtOnce = 4;  // columns

// out[j] = a[0] b[0][j] + a[1] b[1][j] + .. of n terms, for kAtOnce columns or multiples: vectors
// of heads, whose distances are in elements.
template <class V> struct Rows {
  const V* data;
  int64_t row, column;
};
template <class V>
void sums(const V* a, int64_t step, Rows<V> b, int64_t n, int64_t columns, V* out) {
  for (int64_t j = 0; j < columns; j += kAtOnce, out += kAtOnce * kLanesOf<V>) {
    Lanes<V> sum[kAtOnce] = {};
    const V *left = a, *right = b.data + j * b.column;
#pragma GCC unroll 2
    for (int64_t i = 0; i < n; ++i, left += step, right += b.row) {
      const Lanes<V> factor = load(left);
      SINTER_UNROLLED for (int c = 0; c < kAtOnce; ++c) sum[c] =
          fma(factor, load(right + c * b.column), sum[c]);
    }
    SINTER_UNROLLED for (int c = 0; c < kAtOnce; ++c) store(out + c * kLanesOf<V>, sum[c]);
  }
}

// The heads of one task, and between them in memory and [row, width, lane], where width is the
// depth as multiple of kAtOnce.
template <class T> class Pack {
  using V = compute_t<T>;
  static constexpr int64_t kLanes = kLanesOf<V>;
  static constexpr int kSquare = on_cpu::kSquare<V>;

 public:
  Pack(const AttentionSizes& n, int64_t task)
      : n_(n),
        first_(task * kLanes),
        heads_(std::min(kLanes, n.batch * n.heads - first_)),
        width_(round_up(n.depth, kAtOnce)) {}
  int64_t width() const { return width_; }
  int64_t row() const { return width_ * kLanes; }

  // `factor` times; 0 behind the depth and the last row, whose number is made a multiple of
  // kAtOnce. A lane without a head has the first one.
  void load_heads(const Heads<const T>& x, int64_t rows, V factor, V* to) const {
    each_squares(x, rows,
        [=]<bool kWhole>(std::bool_constant<kWhole>, const T* const* heads, int64_t at,
            int64_t column, int64_t there, int64_t place) {
          const auto quad = [=](int64_t l) {
            return part_of<V>(heads[l] + at, kWhole ? 1 : column, kWhole ? kSquare : there);
          };
          Lanes<V> squares[kSquare];
          SINTER_UNROLLED for (int i = 0; i < kSquare; ++i) squares[i] =
              joined_quads<kLanes>(quad, i);
          turn(squares);
          SINTER_UNROLLED for (int i = 0; i < kSquare; ++i)
              store(to + place + i * kLanes, squares[i] * factor);
        });
    std::fill_n(to + rows * row(), (round_up(rows, kAtOnce) - rows) * row(), V(0));
  }
  void store_heads(const V* from, int64_t rows, V factor, const Heads<T>& x) const {
    each_squares(x, rows,
        [=, this]<bool kWhole>(std::bool_constant<kWhole>, T* const* heads, int64_t at, int64_t,
            int64_t there, int64_t place) {
          const auto put = [=, this](int64_t l, Quad<V> quad) {
            if constexpr (kWhole) {
              store(heads[l] + at, quad);
            } else {
              for (int64_t d = 0; l < heads_ && d < std::min<int64_t>(kSquare, there); ++d)
                heads[l][at + d] = T(quad[d]);
            }
          };
          Lanes<V> squares[kSquare];
          SINTER_UNROLLED for (int i = 0; i < kSquare; ++i) squares[i] =
              load(from + place + i * kLanes) * factor;
          turn(squares);
          SINTER_UNROLLED for (int i = 0; i < kSquare; ++i) each_quad(squares[i], i, put);
        });
  }
  // f(number of [B, H, S], its place in [row, lane])
  template <class F> void each_row(const F& f) const {
    for (int64_t l = 0; l < heads_; ++l)
      for (int64_t r = 0; r < n_.rows; ++r) f((first_ + l) * n_.rows + r, r * kLanes + l);
  }

 private:
  template <class E> E* at(const Heads<E>& x, int64_t lane) const {
    return x.at((first_ + lane) / n_.heads, (first_ + lane) % n_.heads, 0);
  }
  // quad(i), quad(i + kSquare), .. in a vector of kCount numbers, and f(i, quad) of each of them.
  template <int kCount, class F>
  [[gnu::always_inline]] static auto joined_quads(const F& quad, int64_t i) {
    if constexpr (kCount == kSquare) {
      return quad(i);
    } else {
      return joined(
          joined_quads<kCount / 2>(quad, i), joined_quads<kCount / 2>(quad, i + kCount / 2));
    }
  }
  template <class Vec, class F>
  [[gnu::always_inline]] static void each_quad(Vec v, int64_t i, const F& f) {
    if constexpr (sizeof v == sizeof(Quad<V>)) {
      f(i, v);
    } else {
      each_quad(lower_half(v), i, f);
      each_quad(upper_half(v), i + sizeof v / sizeof(V) / 2, f);
    }
  }
  // f(whole, heads, from where on in them, .., how many numbers are there, place in [row, width,
  // lane]) of kSquare numbers of all heads, all of which are there where `whole`.
  template <class E, class F> void each_squares(const Heads<E>& x, int64_t rows, const F& f) const {
    const int64_t next = x.strides[2], column = x.strides[3];
    E* heads[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) heads[l] = at(x, l < heads_ ? l : 0);
    const auto all = [&](auto whole) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t d = 0; d < width_; d += kSquare)
          f(whole, heads, r * next + d * column, column, n_.depth - d, (r * width_ + d) * kLanes);
    };
    if constexpr (std::is_same_v<T, V>) {
      if (column == 1 && n_.depth % kSquare == 0 && heads_ == kLanes) return all(std::true_type());
    }
    all(std::false_type());
  }

  const AttentionSizes& n_;
  const int64_t first_, heads_, width_;
};

int64_t keys_of_row(const AttentionSizes& n, int64_t r) {
  return n.causal ? std::min(n.keys, r + 1) : n.keys;
}
// f(task) on all threads.
template <class V, class F> void for_packs(const AttentionSizes& n, const F& f) {
  const int64_t packs = (n.batch * n.heads + kLanesOf<V> - 1) / kLanesOf<V>;
  parallel_for(packs, grain_of(kLanesOf<V> * n.pairs() * n.depth), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) f(task);
  });
}

template <class T> void forward(const Call& call) {
  using V = compute_t<T>;
  constexpr int64_t kLanes = kLanesOf<V>;
  constexpr V kInf = std::numeric_limits<V>::infinity();
  const AttentionSizes n(call.in[0], call.in[1], call.as<AttentionAttrs>());
  const Heads<const T> q(call.in[0]), k(call.in[1]), v(call.in[2]);
  const Heads<T> o(HeadsOfResult(call, n, 0));
  V* const lse = call.out[1].data<V>();
  for_packs<V>(n, [&](int64_t task) {
    const Pack<T> pack(n, task);
    const int64_t width = pack.width(), row = pack.row(), keys = round_up(n.keys, kAtOnce),
                  rows_size = round_up(n.rows, kAtOnce) * row;
    const auto [qs, ks, vs, os, weights, most, total] = pieces_of<V>({rows_size, keys * row,
        keys * row, rows_size, keys * kLanes, n.rows * kLanes, n.rows * kLanes});
    pack.load_heads(q, n.rows, V(n.scale), qs);
    pack.load_heads(k, n.keys, V(1), ks);
    pack.load_heads(v, n.keys, V(1), vs);
    for (int64_t r = 0; r < n.rows; ++r) {
      const int64_t read = keys_of_row(n, r);
      sums(qs + r * row, kLanes, {ks, kLanes, row}, n.depth, read, weights);
      Lanes<V> m = all(-kInf), l{};
      for (int64_t t = 0; t < read; ++t) {
        const Lanes<V> score = load(weights + t * kLanes);
        m = score > m ? score : m;  // not a NaN, which the sum will have
      }
      store(most + r * kLanes, m);
      m = m == -kInf ? Lanes<V>{} : m;
      for (int64_t t = 0; t < read; ++t) {
        const Lanes<V> e = exp_of(load(weights + t * kLanes) - m);
        store(weights + t * kLanes, e);
        l += e;
      }
      store(total + r * kLanes, l);
      sums(weights, kLanes, {vs, row, kLanes}, read, width, os + r * row);
      const Lanes<V> share = read == 0 ? Lanes<V>{} : V(1) / l;
      for (int64_t d = 0; d < width; ++d) {
        V* const at = os + r * row + d * kLanes;
        store(at, load(at) * share);
      }
    }
    pack.store_heads(os, n.rows, V(1), o);
    for (int64_t i = 0; i < n.rows * kLanes; ++i) most[i] += math::log(total[i]);
    pack.each_row([&](int64_t to, int64_t from) { lse[to] = most[from]; });
  });
}

template <class T> void backward(const Call& call) {
  using V = compute_t<T>;
  constexpr int64_t kLanes = kLanesOf<V>;
  const AttentionSizes n(call.in[1], call.in[2], call.as<AttentionAttrs>());
  const Heads<const T> d_o(call.in[0]), q(call.in[1]), k(call.in[2]), v(call.in[3]), o(call.in[4]);
  const V* const lse = call.in[5].data<V>();
  const Heads<T> dq(HeadsOfResult(call, n, 0)), dk(HeadsOfResult(call, n, 1)),
      dv(HeadsOfResult(call, n, 2));
  for_packs<V>(n, [&](int64_t task) {
    const Pack<T> pack(n, task);
    const int64_t width = pack.width(), row = pack.row(), keys = round_up(n.keys, kAtOnce),
                  rows_size = round_up(n.rows, kAtOnce) * row, keys_size = keys * row,
                  of_keys = keys * kLanes, pairs = n.rows * of_keys;
    const auto [qs, dos, os, ks, vs, dks, dvs, p, ds, lses] = pieces_of<V>({rows_size, rows_size,
        rows_size, keys_size, keys_size, keys_size, keys_size, pairs, pairs, n.rows * kLanes});
    pack.load_heads(q, n.rows, V(n.scale), qs);
    pack.load_heads(d_o, n.rows, V(1), dos);
    pack.load_heads(o, n.rows, V(1), os);
    pack.load_heads(k, n.keys, V(1), ks);
    pack.load_heads(v, n.keys, V(1), vs);
    pack.each_row([&](int64_t from, int64_t to) { lses[to] = lse[from]; });
    for (int64_t r = 0; r < n.rows; ++r) {
      const int64_t read = keys_of_row(n, r);
      V *const of_p = p + r * of_keys, *const of_ds = ds + r * of_keys, *const of_o = os + r * row;
      sums(qs + r * row, kLanes, {ks, kLanes, row}, n.depth, read, of_p);
      sums(dos + r * row, kLanes, {vs, kLanes, row}, n.depth, read, of_ds);
      Lanes<V> delta{};
      for (int64_t d = 0; d < row; d += kLanes)
        delta = fma(load(dos + r * row + d), load(of_o + d), delta);
      const Lanes<V> less = load(lses + r * kLanes);
      for (int64_t t = 0; t < read * kLanes; t += kLanes) {
        const Lanes<V> weight = exp_of(load(of_p + t) - less);
        store(of_p + t, weight);
        store(of_ds + t, weight * (load(of_ds + t) - delta));
      }
      sums(of_ds, kLanes, {ks, row, kLanes}, read, width, of_o);  // dq, in place of o
    }
    for (int64_t t = 0; t < n.keys; ++t) {
      const int64_t first = n.causal ? std::min(t, n.rows) : 0, there = n.rows - first,
                    from = first * of_keys + t * kLanes;
      sums(p + from, of_keys, {dos + first * row, row, kLanes}, there, width, dvs + t * row);
      sums(ds + from, of_keys, {qs + first * row, row, kLanes}, there, width, dks + t * row);
    }
    pack.store_heads(os, n.rows, V(n.scale), dq);
    pack.store_heads(dks, n.keys, V(1), dk);
    pack.store_heads(dvs, n.keys, V(1), dv);
  });
}

}  // namespace

// All that backward has of a pack is to stay in the second cache: 384 of 512 KiB, in vectors of 32
// bytes. Longer or deeper heads gain nothing here (measured on a Zen with AVX2: 64 rows of 16 are
// as fast either way).
bool attention_is_short(const AttentionSizes& n) {
  const int64_t vectors = (3 * n.rows + 4 * n.keys) * n.depth + 2 * n.rows * n.keys;
  return n.groups == n.heads && n.batch * n.heads >= 2 * kLanesOf<float> && vectors <= 12 << 10;
}
void attention_short(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) { forward<T>(call); });
}
void attention_short_backward(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) { backward<T>(call); });
}

}  // namespace sinter::on_cpu
