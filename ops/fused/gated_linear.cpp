// gated_linear: h = act(x Wg^T) * (x Wu^T) and, to be kept for backward, g and u. On the CPU g and
// u are one product where the weights are neighbours. What need not be kept (without backward, or
// of bf16 operands, whose sums stay f32) is made for some rows at a time and never leaves the cache
// for memory.
#include "ops/fused/product_chain.h"
#include "ops/kernels.h"

// B batch, I in, H hidden, O out
namespace sinter {
namespace {

// Not the reference's: keeping g and u side by side adds nothing up.
Cost cost(Operands in, Operands out, const Attrs& attrs) {
  return cost_of(out[0].numel() * (4 * in[0].size(1) +
                                      chain_flops(gate_program(attrs.as<GatedLinearAttrs>().act))),
      in, out);
}
template <class T, class V = compute_t<T>> void run(const Call& call) {
  const auto& [act, keep] = call.as<GatedLinearAttrs>();
  const MatrixView x(call.in[0]);
  const int64_t rows = call.out[0].size(0), hidden = call.out[0].size(1), ins = call.in[1].size(1),
                both = 2 * hidden;
  T *h_out = call.out[0].template data<T>(),
    *kept = keep ? call.out[1].template data<T>() : nullptr;
  const T *x_at = static_cast<const T*>(x.data), *gate = call.in[1].template data<T>(),
          *up = call.in[2].template data<T>();
  // Of one storage, too: two that meet by chance would give other sums in one run than in the next.
  const bool neighbours = call.in[1].storage() == call.in[2].storage() && up == gate + hidden * ins;
  const ChainProgram program = gate_program(act);
  const ChainLoop<V, V> loop(program);
  const auto some_rows = [&](int64_t first, int64_t n) {
    V* sums = nullptr;
    if constexpr (std::is_same_v<T, V>) {
      sums = kept ? kept + first * both : thread_buffer<V, BufferFor::sums>(n * both);
    } else {
      sums = thread_buffer<V, BufferFor::sums>(n * both);
    }
    const T* from = x_at + first * (x.trans ? 1 : x.ld);
    Gemm desc = gemm_of(x, false, MatrixView(call.in[1]), true, dtype_of<V>);
    desc.m = n;
    desc.n = neighbours ? both : hidden;
    desc.ldc = std::max<int64_t>(both, 1);
    gemm(desc, from, gate, nullptr, sums);
    if (!neighbours) gemm(desc, from, up, nullptr, sums + hidden);
    const int64_t bytes = 3 * int64_t(sizeof(V)) + chain_flops(program);
    constexpr int64_t kBlock = 1024;  // of columns, so that they stay in the first cache
    parallel_for(n, grain_of(hidden * bytes), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        for (int64_t at = 0; at < hidden; at += kBlock) {
          const int64_t cols = std::min(kBlock, hidden - at);
          const V *g = sums + b * both + at, *u = g + hidden;
          T* const h = h_out + (first + b) * hidden + at;
          if constexpr (std::is_same_v<T, V>) {
            V* to[] = {h};
            loop(g, &u, to, cols);
          } else {
            V* to[] = {thread_buffer<V, BufferFor::gate_row>(cols)};
            loop(g, &u, to, cols);
            std::copy_n(to[0], cols, h);
          }
        }
        if constexpr (!std::is_same_v<T, V>) {
          if (kept) std::copy_n(sums + b * both, both, kept + (first + b) * both);
        }
      }
    });
  };
  const bool in_place = kept && std::is_same_v<T, V>;  // the sums are what is kept
  for_panels(rows, both * int64_t(sizeof(V)), in_place, some_rows);
}

Tensors reference(Operands in, const Attrs& attrs) {
  const auto& [act, keep] = attrs.as<GatedLinearAttrs>();
  const Tensor g = linear(in[0], in[1]), u = linear(in[0], in[2]);
  Tensors out = call_fused(kPointwiseChainOp, {g, u}, ChainAttrs{gate_program(act)});
  if (keep) out.push_back(side_by_side(g, u));
  return out;
}
}  // namespace

const OpDef kGatedLinearOp = listed<kGatedLinearOp>({.formula = "h = act(x Wg^T) (x Wu^T)",
    .min_inputs = 3,
    .attrs = attr_type<GatedLinearAttrs>(),
    .cost = cost,
    .cpu =
        [](const Call& call) {
          visit_float(call.out[0].dtype(), [&]<class T>(T) { run<T>(call); });
        },
    .strided = 0b1,
    .reference = reference});

}  // namespace sinter
