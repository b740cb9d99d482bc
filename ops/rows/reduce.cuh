// The kernels of reductions over any dims, in one launch: for sum, mean, max, sum_rows
// (ops/rows/reduce.cu) and layer_norm_weight_grad.
#pragma once

#include <algorithm>

#include "ops/rows/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// Index i of a list of dims, the last running fastest -> elements from the first.
struct Groups {
  int n = 0;
  int64_t size[kMaxRank / 2 + 1] = {}, stride[kMaxRank / 2 + 1] = {};
  SINTER_DEVICE_FN int64_t offset(int64_t i) const {
    int64_t at = 0;
    SINTER_NO_UNROLL
    for (int d = n - 1; d > 0; --d) {
      const int64_t rest = i / size[d];
      at += (i - rest * size[d]) * stride[d];
      i = rest;
    }
    return at + i * stride[0];
  }
};

// y[o] = factor * join over k of x[kept.offset(o) + reduced.offset(k)],  o < outputs, k < terms
struct Reduction {
  Groups kept, reduced;
  int64_t outputs = 1, terms = 1;
};

// Joined in runs of 16 terms, and runs with one another, so that rounding errors grow with terms
// / 16. Four loads are on their way at once.
template <class R, class V, class Load>
SINTER_DEVICE_FN V join_terms(int64_t begin, int64_t end, int64_t step, const Load& load) {
  V all = R::template start<V>();
  for (int64_t k = begin; k < end;) {
    V run = R::template start<V>();
    int j = 0;
    SINTER_NO_UNROLL
    for (; j < 16 && k + 3 * step < end; j += 4, k += 4 * step) {
      V terms[4];
      SINTER_UNROLL
      for (int i = 0; i < 4; ++i) terms[i] = load(k + i * step);
      SINTER_UNROLL
      for (int i = 0; i < 4; ++i) run = R::join(run, terms[i]);
    }
    SINTER_NO_UNROLL
    for (; j < 16 && k < end; ++j, k += step) run = R::join(run, load(k));
    all = R::join(all, run);
  }
  return all;
}

// The last block to arrive joins the splits of every output, in order.
template <class R, class U, class V>
SINTER_DEVICE_FN void join_splits(
    const Partials<V>& partials, const Out<U>& y, int64_t outputs, V factor) {
  const int64_t splits = grid_y();
  if (!ticket(partials.ticket, static_cast<uint32_t>(grid_x() * splits))) return;
  for (int64_t o = thread_x(); o < outputs; o += threads_per_block()) {
    V v = partials.values[o * splits];
    for (int64_t s = 1; s < splits; ++s) v = R::join(v, partials.values[o * splits + s]);
    y.put(o, U(v * factor));
  }
}

// Terms lie side by side. Block (o, s) owns split s of output o, its threads the terms in turn, N
// at once. Reads x once, writes y. REQUIRES: N > 1 only if all terms of an output lie side by side,
// on 16 bytes, and splits are multiples of N.
template <class R, class T, class U, int N>
SINTER_KERNEL reduce_rows(In<T> x, Out<U> y, Reduction r, int64_t per_split, compute_t<T> factor,
    Partials<compute_t<T>> partials) {
  using V = compute_t<T>;
  const int64_t o = block_x(), first = r.kept.offset(o), begin = block_y() * per_split;
  const int64_t end = begin + per_split < r.terms ? begin + per_split : r.terms;
  V v = join_terms<R, V>(begin + thread_x() * N, end, threads_per_block() * N, [&](int64_t k) {
    const Vec<T, N> terms = x.template load_vec<N>(first + (N > 1 ? k : r.reduced.offset(k)));
    V run = V(terms[0]);
    SINTER_UNROLL
    for (int i = 1; i < N; ++i) run = R::join(run, V(terms[i]));
    return run;
  });
  v = block_join<R>(v, shared<Shared<V, 32>>());
  if (grid_y() == 1) {
    if (thread_x() == 0) y.put(o, U(v * factor));
    return;
  }
  if (thread_x() == 0) partials.values.put(o * grid_y() + block_y(), v);
  join_splits<R>(partials, y, r.outputs, factor);
}

// What reduce_columns adds up: here the elements of a tensor, by their places in it.
template <class T> struct ElementTerms {
  using V = compute_t<T>;
  In<T> x;
  SINTER_DEVICE_FN V operator()(int64_t i) const { return V(x[i]); }
};

// Outputs lie side by side. A block owns 32 of them, a lane one, its warps the terms in turn,
// joined in order. Reads each term once, writes y.
template <class R, class Terms, class U>
SINTER_KERNEL reduce_columns(Terms term, Out<U> y, Reduction r, int64_t per_split,
    typename Terms::V factor, Partials<typename Terms::V> partials) {
  using V = typename Terms::V;
  auto& tile = shared<SharedTile<V, 32, 32>>();
  const int64_t o = block_x() * 32 + lane(), begin = block_y() * per_split;
  const int64_t end = begin + per_split < r.terms ? begin + per_split : r.terms;
  if (o < r.outputs) {
    const int64_t first = r.kept.offset(o);
    tile.put(warp(), lane(),
        join_terms<R, V>(begin + warp(), end, warps_per_block(),
            [&](int64_t k) { return term(first + r.reduced.offset(k)); }));
  }
  block_sync();
  if (warp() == 0 && o < r.outputs) {
    V v = tile(0, lane());
    for (int w = 1; w < warps_per_block(); ++w) v = R::join(v, tile(w, lane()));
    if (grid_y() == 1) {
      y.put(o, U(v * factor));
    } else {
      partials.values.put(o * grid_y() + block_y(), v);
    }
  }
  if (grid_y() > 1) join_splits<R>(partials, y, r.outputs, factor);
}

// The dims of a dense x, neighbours of one kind as one. Bit d of mask: dim d is reduced.
inline Reduction reduction_of(const Shape& x, uint32_t mask) {
  Reduction r;
  int64_t stride = 1;
  int last = -1;
  for (int d = x.rank() - 1; d >= 0; stride *= x[d], --d) {
    const int kind = mask >> d & 1;
    (kind ? r.terms : r.outputs) *= x[d];
    if (x[d] == 1) continue;
    Groups& g = kind ? r.reduced : r.kept;
    if (kind == last) {
      g.size[g.n - 1] *= x[d];
    } else {
      g.size[g.n] = x[d];
      g.stride[g.n] = stride;
      ++g.n;
      last = kind;
    }
  }
  for (Groups* g : {&r.kept, &r.reduced}) {
    std::reverse(g->size, g->size + g->n);
    std::reverse(g->stride, g->stride + g->n);
  }
  return r;
}

// Terms per split: so many that each has `least`, that 128 blocks are busy, or 512 where that makes
// few splits for the last block to join, and that the partials have room.
inline int64_t per_split_of(const Reduction& r, int64_t blocks, int64_t least) {
  const int64_t wanted = std::max(128 / blocks, std::min<int64_t>(512 / blocks, 16));
  const int64_t splits = std::min({wanted, r.terms / least, kPartials / r.outputs});
  return splits <= 1 ? std::max<int64_t>(r.terms, 1)
                     : blocks_for(blocks_for(r.terms, splits), 64) * 64;
}

inline uint32_t all_but_last(const Shape& x) { return (1u << (x.rank() - 1)) - 1; }

template <class R, class U, class Terms, class V = typename Terms::V>
void reduce_by_columns(const Terms& terms, const Tensor& y, const Reduction& r, V factor = V(1)) {
  const int64_t blocks = blocks_for(r.outputs, 32), per_split = per_split_of(r, blocks, 512);
  launch<reduce_columns<R, Terms, U>>(
      {blocks, blocks_for(std::max<int64_t>(r.terms, 1), per_split)},
      block_for(per_split * 4, 1024), sizeof(SharedTile<V, 32, 32>), terms, out<U>(y), r, per_split,
      factor, partials<V>(y.device()));
}
template <class R, class T, class U>
void reduce(const Tensor& x, const Tensor& y, const Reduction& r, bool mean = false) {
  using V = compute_t<T>;
  const V factor = mean ? V(1) / static_cast<V>(r.terms) : V(1);
  if (r.kept.n > 0 && r.kept.stride[r.kept.n - 1] == 1)
    return reduce_by_columns<R, U>(ElementTerms<T>{in<T>(x)}, y, r, factor);
  const bool wide = r.reduced.n == 1 && r.terms % kVec<T> == 0 && is_aligned(x);
  with_width<kVec<T>>(wide, [&]<int N>() {
    const int64_t per_split = per_split_of(r, r.outputs, 16384);
    launch<reduce_rows<R, T, U, N>>(
        {r.outputs, blocks_for(std::max<int64_t>(r.terms, 1), per_split)},
        block_for(per_split / (4 * N), 512), sizeof(Shared<V, 32>), in<T>(x), out<U>(y), r,
        per_split, factor, partials<V>(x.device()));
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
