// clip_norm: the squares of all gradients, and the scaling, in one launch; the block that arrives
// last knows the norm and scales alone, for no block may wait for another. Where that is too much
// for one block, or the gradients do not fit one table, the scaling is launches of its own: one per
// table for the norm, one per table for the scaling.
#include <numeric>

#include "ops/fused/fused.h"
#include "ops/ops.h"
#include "ops/rows/clip_kernel.cuh"

namespace sinter::SINTER_KERNEL_NS {

constexpr int kGradients = 128;            // of a table, which travels as a kernel argument
constexpr int64_t kScaledByOne = 1 << 20;  // elements that one block may scale
constexpr int kClipThreads = 512;

template <class T> struct Gradients {
  struct Entry {
    InOut<T> values;
    int64_t n = 0;
    int32_t first_block = 0;
    bool vec = false;
  };
  int count = 0;
  int64_t chunk = 0;  // elements of a block
  Entry of[kGradients];
};

// The entry that this block works on, and its elements.
template <class T> struct Piece {
  const typename Gradients<T>::Entry& entry;
  int64_t begin, end;
};
template <class T> SINTER_DEVICE_FN Piece<T> piece_of_block(const Gradients<T>& table) {
  int i = 0;
  SINTER_NO_UNROLL
  while (i + 1 < table.count && block_x() >= table.of[i + 1].first_block) ++i;
  const int64_t n = table.of[i].n, begin = (block_x() - table.of[i].first_block) * table.chunk;
  return {table.of[i], begin, begin + table.chunk < n ? begin + table.chunk : n};
}

// partials.total carries the sum of squares from table to table. Reads every gradient once; scaling
// reads and writes it again.
template <class T>
SINTER_KERNEL clip_norm_squares(Gradients<T> table, Partials<compute_t<T>> partials, bool first,
    bool scale, compute_t<T> limit) {
  using V = compute_t<T>;
  constexpr int N = kVec<T>;
  auto& scratch = shared<Shared<V, 32>>();
  const auto [entry, begin, end] = piece_of_block(table);
  const int64_t dense = entry.vec ? end - (end - begin) % N : begin;
  V sum = 0;
  for (int64_t i = begin + thread_x() * N; i < dense; i += threads_per_block() * N) {
    const Vec<T, N> v = entry.values.template load_vec<N>(i);
    V part = 0;
    SINTER_UNROLL
    for (int k = 0; k < N; ++k) part = part + V(v[k]) * V(v[k]);
    sum = sum + part;
  }
  SINTER_NO_UNROLL
  for (int64_t i = dense + thread_x(); i < end; i += threads_per_block())
    sum = sum + V(entry.values[i]) * V(entry.values[i]);
  sum = block_join<SumOf>(sum, scratch);
  if (thread_x() == 0) partials.values.put(block_x(), sum);
  if (!ticket(partials.ticket, static_cast<uint32_t>(grid_x()))) return;

  V all = 0;
  for (int64_t i = thread_x(); i < grid_x(); i += threads_per_block())
    all = all + partials.values[i];
  all = block_join<SumOf>(all, scratch);
  if (!first) all = all + partials.total[0];
  if (!scale) {
    block_sync();  // all have read the old total
    if (thread_x() == 0) partials.total.put(0, all);
    return;
  }
  const V factor = clip_factor(all, limit);
  if (factor == V(1)) return;
  SINTER_NO_UNROLL
  for (int i = 0; i < table.count; ++i)
    scale_elements(table.of[i].values, 0, table.of[i].n, table.of[i].vec, factor);
}

template <class T>
SINTER_KERNEL clip_norm_scale(Gradients<T> table, InOut<compute_t<T>> total, compute_t<T> limit) {
  const compute_t<T> factor = clip_factor(total[0], limit);
  if (factor == 1) return;
  const auto [entry, begin, end] = piece_of_block(table);
  scale_elements(entry.values, begin, end, entry.vec, factor);
}

void clip_norm(const Call& call) {
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    struct Part {
      Gradients<T> table;
      int64_t blocks = 0;
    };
    Tensors tensors;
    int64_t elements = 0;
    for (const Tensor& t : call.in) {
      if (t.numel() > 0) {
        tensors.push_back(t);
        elements += t.numel();
      }
    }
    std::vector<Part> parts;
    for (size_t at = 0; at < tensors.size(); at += kGradients) {
      Part& part = parts.emplace_back();
      const auto group =
          std::span(tensors).subspan(at, std::min<size_t>(kGradients, tensors.size() - at));
      const int64_t total = std::accumulate(group.begin(), group.end(), int64_t{0},
          [](int64_t n, const Tensor& t) { return n + t.numel(); });
      part.table.chunk = blocks_for(blocks_for(total, 512), 2048) *
                         2048;  // 512 + kGradients blocks at most: they fit the partials
      for (const Tensor& t : group) {
        part.table.of[part.table.count++] = {
            in_out<T>(t), t.numel(), static_cast<int32_t>(part.blocks), is_aligned(t)};
        part.blocks += blocks_for(t.numel(), part.table.chunk);
      }
    }
    const auto operands = partials<V>(call.in[0].device());
    const V limit = static_cast<V>(call.as<ClipAttrs>().max_norm);
    const bool at_once = parts.size() == 1 && elements <= kScaledByOne;
    for (const Part& part : parts) {
      launch<clip_norm_squares<T>>({part.blocks}, kClipThreads, sizeof(Shared<V, 32>), part.table,
          operands, &part == &parts[0], at_once, limit);
    }
    for (const Part& part : parts) {
      if (!at_once)
        launch<clip_norm_scale<T>>(
            {part.blocks}, kClipThreads, 0, part.table, operands.total, limit);
    }
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
