// pointwise_chain: programs without a product (ops/fused/chain_end.cuh). The steps' formulas are
// those of the plain ops: the same bits in f32.
#include "ops/fused/chain_end.cuh"
#include "ops/rows/block_reduce.cuh"

namespace sinter::SINTER_KERNEL_NS {

// An operand of dense results, by the place j of an element among all of theirs: as long as they
// are, or broadcast.
template <class T> struct FlatOperand {
  In<T> data;
  Broadcast b;
  bool vec = false;

  FlatOperand() = default;
  FlatOperand(const Tensor& t, const Tensor& result)
      : data(in<T>(t)),
        b(*broadcast_of(t, result.shape())),
        vec(is_aligned(t) && b.inner == 1 && (b.full || b.period % kVec<T> == 0)) {}
  static Columns<T, Out<T>> result(const Tensor& t) { return {out<T>(t), 0, is_aligned(t)}; }
  template <class V, int N>
  SINTER_DEVICE_FN void load(int64_t, int64_t j, int count, V (&v)[N]) const {
    if (vec && count == N) {
      const int64_t at = b.full ? j : j % b.period;
      const Vec<T, N> part = data.template load_vec<N>(at);
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) v[q] = part[q];
    } else {
      int64_t at = j / b.inner % b.period, left = b.inner - j % b.inner;  // results that read it
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) {
        v[q] = q < count ? V(data[at]) : V(0);
        if (--left > 0) continue;
        left = b.inner;
        at = at + 1 == b.period ? 0 : at + 1;
      }
    }
  }
};

// A thread owns 16 bytes of elements in each turn. Reads every operand once (those that are
// broadcast, from the cache), writes every result once.
template <class T>
SINTER_KERNEL pointwise_chain_vec(
    FlatOperand<T> first, EndSteps<T, kInterpreted, FlatOperand<T>> steps, int64_t total) {
  constexpr int N = kVec<T>;
  const int64_t turn = grid_x() * threads_per_block() * N;
  SINTER_NO_UNROLL
  for (int64_t j = (block_x() * threads_per_block() + thread_x()) * N; j < total; j += turn) {
    const int count = total - j < N ? static_cast<int>(total - j) : N;
    compute_t<T> z[N];
    first.load(0, j, count, z);
    steps(0, j, count, z);
  }
}

// A thread owns eight columns in every grid_y-th row, or where not all operands are whole there
// (kWhole) 16 bytes of them. Reads every operand once, writes every result once.
template <class T, int kEnd, bool kWhole>
SINTER_KERNEL gate_rows(
    OperandColumns<T> first, EndSteps<T, kEnd> steps, int64_t rows, int64_t cols) {
  constexpr int N = kWhole ? kGroup : kVec<T>;
  const int64_t j = (block_x() * threads_per_block() + thread_x()) * N, left = cols - j;
  if (left <= 0) return;
  SINTER_NO_UNROLL
  for (int64_t i = block_y(); i < rows; i += grid_y()) {
    compute_t<T> z[N];
    if constexpr (kWhole) {
      typename EndSteps<T, kEnd>::Read read;
      const Group<T> group = first.load(i, j);
      steps.load(i, j, read);
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) z[q] = group[q];
      steps(i, j, read, z);
    } else {
      const int count = left < N ? static_cast<int>(left) : N;
      first.load(i, j, count, z);
      steps(i, j, count, z);
    }
  }
}

// Gates with GELU (tanh) are compiled.
static constexpr int kGateEnd = find_end(chain_detail::gate<pointwise::GeluTanh>()),
                     kGateGradEnd = find_end(chain_detail::gate_grad<pointwise::GeluTanh>());

static void by_rows(const Call& call, int end) {
  const auto& [program, merged] = call.as<ChainAttrs>();
  const Tensor& first = call.in[0];
  const int64_t rows = first.size(0), cols = first.size(1);
  visit_float(first.dtype(), [&]<class T>(T) {
    const auto run = [&]<int kEnd, bool kWhole>(const EndSteps<T, kEnd>& steps) {
      // As many threads as a row has parts, in blocks of one size, for eight rows each or fewer.
      const int64_t parts = blocks_for(cols, kWhole ? kGroup : kVec<T>),
                    across = blocks_for(parts, 256);
      const int64_t down = std::max(blocks_for(rows, 8), blocks_for(8 * multiprocessors(), across));
      launch<gate_rows<T, kEnd, kWhole>>({across, std::min({rows, down, kMaxGridYZ})},
          block_for(blocks_for(parts, across), 256), 0, OperandColumns<T>(first), steps, rows,
          cols);
    };
    const auto run_end = [&]<int kEnd> {
      const EndSteps<T, kEnd> steps(program, call.in.subspan(1), call.out, merged);
      if constexpr (kEnd != kInterpreted) {
        if (OperandColumns<T>(first).is_whole() && steps.all_whole())
          return run.template operator()<kEnd, true>(steps);
      }
      run.template operator()<kEnd, false>(steps);
    };
    if (end == kGateEnd) return run_end.template operator()<kGateEnd>();
    if (end == kGateGradEnd) return run_end.template operator()<kGateGradEnd>();
    run_end.template operator()<kInterpreted>();
  });
}

static void flat(const Call& call) {
  constexpr int kThreads = 128;
  const Tensor& result = call.out[0];
  const int64_t total = result.numel();
  visit_float(result.dtype(), [&]<class T>(T) {
    launch<pointwise_chain_vec<T>>(
        {std::min<int64_t>(blocks_for(total, kThreads * kVec<T>), 132 * 8)}, kThreads, 0,
        FlatOperand<T>(call.in[0], result),
        EndSteps<T, kInterpreted, FlatOperand<T>>(
            call.as<ChainAttrs>().program, call.in.subspan(1), call.out),
        total);
  });
}

void pointwise_chain(const Call& call) {
  if (call.out[0].numel() == 0) return;
  const Tensor& first = call.in[0];
  const auto is_like_it = [&](const Tensor& t) { return t.shape() == first.shape(); };
  // Rows of matrices may lie apart, and so may those of the halves of a result.
  const bool matrices = first.rank() == 2 && std::ranges::all_of(call.in, is_like_it);
  const bool apart = call.as<ChainAttrs>().merged ||
                     !std::ranges::all_of(call.in, [](auto& t) { return t.is_contiguous(); });
  const int end = find_end(call.as<ChainAttrs>().program);
  if (apart || (matrices && (end == kGateEnd || end == kGateGradEnd))) return by_rows(call, end);
  flat(call);
}

}  // namespace sinter::SINTER_KERNEL_NS
