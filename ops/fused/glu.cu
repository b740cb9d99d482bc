// glu and glu_backward: the arithmetic of the plain ops, element by element (ops/fused/glu.cpp).
#include "ops/fused/glu.h"
#include "ops/rows/block_reduce.cuh"

// B batch, H hidden
namespace sinter::SINTER_KERNEL_NS {

// Rows of a [B, H] tensor of any strides.
template <class Operand> struct RowsOf {
  Operand values;
  int64_t row = 0, col = 1;
};

// h = act(g) * u. A thread owns N = 16 bytes of columns in every grid_y-th row. Reads g and u once,
// writes h. vec: all rows lie on 16 bytes, and their elements side by side.
template <class Op, class T>
SINTER_KERNEL glu_vec(
    RowsOf<In<T>> g, RowsOf<In<T>> u, RowsOf<Out<T>> h, int64_t rows, int64_t cols, bool vec) {
  using V = compute_t<T>;
  constexpr int N = kVec<T>;
  const Op op;
  const int64_t c = (block_x() * threads_per_block() + thread_x()) * N,
                end = c + N < cols ? c + N : cols;
  for (int64_t b = block_y(); b < rows; b += grid_y()) {
    if (vec && c + N <= cols) {
      const Vec<T, N> gate = g.values.template load_vec<N>(b * g.row + c),
                      up = u.values.template load_vec<N>(b * u.row + c);
      Vec<T, N> y;
      SINTER_UNROLL
      for (int i = 0; i < N; ++i) y[i] = T(op.forward(V(gate[i])) * V(up[i]));
      h.values.store_vec(b * h.row + c, y);
    } else {
      SINTER_NO_UNROLL
      for (int64_t i = c; i < end; ++i) {
        h.values.put(b * h.row + i,
            T(op.forward(V(g.values[b * g.row + i * g.col])) * V(u.values[b * u.row + i * u.col])));
      }
    }
  }
}

// du = dh act(g), dg = (dh u) act'(g). Who owns what: as above. Reads dh, g and u once, writes dg
// and du.
template <class Op, class T>
SINTER_KERNEL glu_backward_vec(RowsOf<In<T>> dh, RowsOf<In<T>> g, RowsOf<In<T>> u,
    RowsOf<Out<T>> dg, RowsOf<Out<T>> du, int64_t rows, int64_t cols, bool vec) {
  using V = compute_t<T>;
  constexpr int N = kVec<T>;
  const Op op;
  const int64_t c = (block_x() * threads_per_block() + thread_x()) * N,
                end = c + N < cols ? c + N : cols;
  for (int64_t b = block_y(); b < rows; b += grid_y()) {
    if (vec && c + N <= cols) {
      const Vec<T, N> grad = dh.values.template load_vec<N>(b * dh.row + c),
                      gate = g.values.template load_vec<N>(b * g.row + c),
                      up = u.values.template load_vec<N>(b * u.row + c);
      Vec<T, N> to_g, to_u;
      SINTER_UNROLL
      for (int i = 0; i < N; ++i) {
        const GluGrads<V> d = glu_grads(op, V(grad[i]), V(gate[i]), V(up[i]));
        to_g[i] = T(d.dg);
        to_u[i] = T(d.du);
      }
      dg.values.store_vec(b * dg.row + c, to_g);
      du.values.store_vec(b * du.row + c, to_u);
    } else {
      SINTER_NO_UNROLL
      for (int64_t i = c; i < end; ++i) {
        const GluGrads<V> d = glu_grads(op, V(dh.values[b * dh.row + i * dh.col]),
            V(g.values[b * g.row + i * g.col]), V(u.values[b * u.row + i * u.col]));
        dg.values.put(b * dg.row + i, T(d.dg));
        du.values.put(b * du.row + i, T(d.du));
      }
    }
  }
}

namespace {

struct GluShape {
  int64_t rows, cols;
  bool flat, vec;
  Grid grid;
  int block;
};
// Dense operands are one row.
template <class T>
GluShape shape_of(std::initializer_list<const Tensor*> operands, int64_t out_row) {
  const Tensor& first = **operands.begin();
  const int64_t rows = first.size(0), cols = first.size(1);
  constexpr int64_t N = kVec<T>;
  const bool flat = out_row == cols && std::all_of(operands.begin(), operands.end(),
                                           [](const Tensor* t) { return t->is_contiguous(); });
  const bool aligned = std::all_of(operands.begin(), operands.end(), [&](const Tensor* t) {
    return is_aligned(*t) && (flat || (t->strides()[1] == 1 && t->strides()[0] % N == 0));
  });
  GluShape s{flat ? 1 : rows, flat ? rows * cols : cols, flat,
      aligned && (flat || (out_row % N == 0 && cols % N == 0)), {}, 0};
  s.block = block_for(blocks_for(s.cols, N), 256);
  s.grid = {blocks_for(s.cols, N * s.block), std::min<int64_t>(s.rows, 65535)};
  return s;
}
template <class T> RowsOf<In<T>> rows_of(const Tensor& t, const GluShape& shape) {
  return {in<T>(t), t.strides()[0], shape.flat ? 1 : t.strides()[1]};
}

}  // namespace

void glu(const Call& call) {
  const Tensor& h = call.out[0];
  if (h.numel() == 0) return;
  visit_float(h.dtype(), [&]<class T>(T) {
    const GluShape s = shape_of<T>({&call.in[0], &call.in[1]}, h.size(1));
    visit_act(call.as<GluAttrs>().act, [&]<class Op>(Op) {
      launch<glu_vec<Op, T>>(s.grid, s.block, 0, rows_of<T>(call.in[0], s),
          rows_of<T>(call.in[1], s), RowsOf<Out<T>>{out<T>(h), h.size(1)}, s.rows, s.cols, s.vec);
    });
  });
}

void glu_backward(const Call& call) {
  const Tensor& first = call.out[0];
  if (first.numel() == 0) return;
  const auto& [act, merged] = call.as<GluAttrs>();
  const int64_t cols = call.in[0].size(1), row = first.size(1);
  visit_float(first.dtype(), [&]<class T>(T) {
    const GluShape s = shape_of<T>({&call.in[0], &call.in[1], &call.in[2]}, row);
    const Out<T> du =
        merged ? Out<T>(first.data<T>() + cols, first.numel() - cols) : out<T>(call.out[1]);
    visit_act(act, [&]<class Op>(Op) {
      launch<glu_backward_vec<Op, T>>(s.grid, s.block, 0, rows_of<T>(call.in[0], s),
          rows_of<T>(call.in[1], s), rows_of<T>(call.in[2], s), RowsOf<Out<T>>{out<T>(first), row},
          RowsOf<Out<T>>{du, row}, s.rows, s.cols, s.vec);
    });
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
