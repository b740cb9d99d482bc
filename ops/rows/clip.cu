// squared_norm, clip_in_place and clip_norm. One mechanism: one tensor is a list of one. clip_norm
// takes the squares of all gradients and scales them in one launch; the block that arrives last
// knows the norm and scales alone, for no block may wait for another. Where that is too much for
// one block, or the gradients do not fit one table, the scaling is launches of its own: one per
// table for the norm, one per table for the scaling.
#include "ops/ops.h"
#include "ops/rows/block_reduce.cuh"
#include "ops/rows/block_table.cuh"
#include "ops/rows/row_formulas.h"

namespace sinter::SINTER_KERNEL_NS {

// Of a table, which travels as a kernel argument. One gradient has a table of its own size: 4 KB of
// arguments take longer to send than a small kernel to run.
constexpr int kGradients = 128;
// Elements that one block may scale: 16 turns of its threads, a trip to memory each, take as long
// as another launch.
constexpr int64_t kScaledByOne = 1 << 15;
constexpr int kClipThreads = 512;

template <class T> struct Gradient {
  InOut<T> values;
  int64_t n = 0;
  bool vec = false;
};
template <class T, int N> using Gradients = BlockTable<Gradient<T>, N>;

// x[i] *= factor for begin <= i < end, by all threads of the block. vec: begin is a multiple of 8,
// and x lies on 16 bytes.
template <class T, class V>
SINTER_DEVICE_FN void scale_elements(
    const InOut<T>& x, int64_t begin, int64_t end, bool vec, const ClipFactor<V>& factor) {
  constexpr int N = kVec<T>;
  const int64_t dense = vec ? end - (end - begin) % N : begin;
  for (int64_t i = begin + thread_x() * N; i < dense; i += threads_per_block() * N) {
    Vec<T, N> v = x.template load_vec<N>(i);
    SINTER_UNROLL
    for (int k = 0; k < N; ++k) v[k] = T(factor(V(v[k])));
    x.store_vec(i, v);
  }
  SINTER_NO_UNROLL
  for (int64_t i = dense + thread_x(); i < end; i += threads_per_block())
    x.put(i, T(factor(V(x[i]))));
}

// The squares of v(0), .. v(N - 1), each a V, in V or, where that has no room for them, in f64.
template <class V, int N, class F> SINTER_DEVICE_FN double sum_of_squares(const F& v) {
  V sum = 0;
  SINTER_UNROLL
  for (int k = 0; k < N; ++k) sum = sum + v(k) * v(k);
  if (has_room_for<V>(sum, 1e-29)) return sum;
  double exact = 0;
  SINTER_UNROLL
  for (int k = 0; k < N; ++k) exact = exact + double(v(k)) * double(v(k));
  return exact;
}

// partials.total carries the sum of squares from table to table. Reads every gradient once; scaling
// reads and writes it again.
template <class T, int kTable>
SINTER_KERNEL clip_norm_squares(
    Gradients<T, kTable> table, Partials<double> partials, bool first, bool scale, double limit) {
  using V = compute_t<T>;
  constexpr int N = kVec<T>;
  auto& scratch = shared<Shared<double, 32>>();
  const auto [entry, begin, end] = table.piece();
  const int64_t dense = entry.vec ? end - (end - begin) % N : begin;
  double sum = 0;
  for (int64_t i = begin + thread_x() * N; i < dense; i += threads_per_block() * N) {
    const Vec<T, N> v = entry.values.template load_vec<N>(i);
    sum = sum + sum_of_squares<V, N>([&](int k) { return V(v[k]); });
  }
  SINTER_NO_UNROLL
  for (int64_t i = dense + thread_x(); i < end; i += threads_per_block()) {
    const V v = V(entry.values[i]);
    sum = sum + sum_of_squares<V, 1>([&](int) { return v; });
  }
  sum = block_join<SumOf>(sum, scratch);
  if (thread_x() == 0) partials.values.put(block_x(), sum);
  if (!ticket(partials.ticket, static_cast<uint32_t>(grid_x()))) return;

  double all = 0;
  for (int64_t i = thread_x(); i < grid_x(); i += threads_per_block())
    all = all + partials.values[i];
  all = block_join<SumOf>(all, scratch);
  if (!first) all = all + partials.total[0];
  if (!scale) {
    block_sync();  // all have read the old total
    if (thread_x() == 0) partials.total.put(0, all);
    return;
  }
  const ClipFactor<V> factor(all, limit);
  if (factor.keeps()) return;
  SINTER_NO_UNROLL
  for (int i = 0; i < table.count; ++i) {
    const Gradient<T>& scaled = table.of[kTable > 1 ? i : 0];
    scale_elements(scaled.values, 0, scaled.n, scaled.vec, factor);
  }
}

// Reads and writes every gradient, where they are too long. A NaN total gives NaN.
template <class T, int kTable>
SINTER_KERNEL clip_norm_scale(Gradients<T, kTable> table, InOut<double> total, double limit) {
  const ClipFactor<compute_t<T>> factor(total[0], limit);
  if (factor.keeps()) return;
  const auto [entry, begin, end] = table.piece();
  scale_elements(entry.values, begin, end, entry.vec, factor);
}

// At least one: the sum over nothing is made, too.
template <class T, int N> std::vector<Gradients<T, N>> tables_of(Operands tensors) {
  std::vector<Gradients<T, N>> tables;
  for (size_t at = 0; tables.empty() || at < tensors.size();) {
    const Operands group = tensors.subspan(at, std::min<size_t>(N, tensors.size() - at));
    Gradients<T, N>& table = tables.emplace_back();
    // 512 + N blocks at most: they fit the partials
    table.chunk = blocks_for(blocks_for(numel_of(group), 512), 2048) * 2048;
    for (const Tensor& t : group) {
      if (t.numel() > 0) table.add({in_out<T>(t), t.numel(), is_aligned(t)});
    }
    table.blocks = std::max<int64_t>(table.blocks, 1);
    at += group.size();
  }
  return tables;
}

template <class T, int N>
void take_squares(const std::vector<Gradients<T, N>>& tables, const Partials<double>& own,
    bool scale = false, double limit = 1) {
  for (const Gradients<T, N>& table : tables) {
    launch<clip_norm_squares<T, N>>({table.blocks}, kClipThreads, sizeof(Shared<double, 32>), table,
        own, &table == &tables[0], scale, limit);
  }
}
template <class T, int N>
void scale_all(
    const std::vector<Gradients<T, N>>& tables, const InOut<double>& total, double limit) {
  for (const Gradients<T, N>& table : tables)
    launch<clip_norm_scale<T, N>>({table.blocks}, kClipThreads, 0, table, total, limit);
}
static double limit_of(const Call& call) { return call.as<ClipAttrs>().max_norm; }

void squared_norm(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    auto own = partials<double>(call.in[0].device());
    own.total = in_out<double>(call.out[0]);
    take_squares(tables_of<T, 1>(call.in), own);
  });
}

void clip_in_place(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    scale_all(tables_of<T, 1>(call.in.first(1)), in_out<double>(call.in[1]), limit_of(call));
  });
}

void clip_norm(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    const auto tables = tables_of<T, kGradients>(call.in);
    const auto own = partials<double>(call.in[0].device());
    const double limit = limit_of(call);
    const bool at_once = tables.size() == 1 && numel_of(call.in) <= kScaledByOne;
    take_squares(tables, own, at_once, limit);
    if (!at_once) scale_all(tables, own.total, limit);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
