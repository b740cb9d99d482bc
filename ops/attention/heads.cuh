// What the kernels of attention take: heads where they lie.
#pragma once

#include "ops/attention/attention.h"
#include "ops/kernel_args.h"

// rows of q, keys, depth
namespace sinter::SINTER_KERNEL_NS {

// [B, H, S, D] of any strides.
template <class Data> struct Heads {
  Data data;
  int64_t begin, batch, head, row, column;
  Heads(Data memory, const Strides& strides, int64_t first = 0)
      : data(memory),
        begin(first),
        batch(strides[0]),
        head(strides[1]),
        row(strides[2]),
        column(strides[3]) {}
  SINTER_DEVICE_FN int64_t at(int64_t b, int64_t h, int64_t r, int64_t d) const {
    return begin + b * batch + h * head + r * row + d * column;
  }
};
template <class T> using HeadsIn = Heads<In<T>>;
template <class T> using HeadsOut = Heads<Out<T>>;
template <class T> HeadsIn<T> heads_in(const Tensor& t) { return {in<T>(t), t.strides()}; }
template <class T> HeadsOut<T> heads_out(const Call& call, const AttentionSizes& n, size_t i) {
  const HeadsOfResult r(call, n, i);
  return {out<T>(r.in), r.strides, r.begin};
}

template <class T> struct AttentionForward {
  using V = compute_t<T>;
  HeadsIn<T> q, k, v;
  HeadsOut<T> o;
  Out<V> lse;
  int64_t heads, heads_of_group, rows, keys, tiles;
  int depth;
  bool causal;
  V scale;
};

template <class T> struct AttentionBackward {
  using V = compute_t<T>;
  HeadsIn<T> d_o, q, k, v, o;
  In<V> lse;
  HeadsOut<T> dq, dk, dv;
  int64_t heads, groups, heads_of_group, rows, keys, row_tiles, key_tiles, key_blocks;
  int depth;
  bool causal;
  V scale;
};

}  // namespace sinter::SINTER_KERNEL_NS
