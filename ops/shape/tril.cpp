// tril: the lower triangle of each matrix, zeros above it. Its gradient is that of the same
// triangle.
#include "core/parallel.h"
#include "ops/kernels.h"
#include "ops/ops.h"

// matrices of S rows and T columns
namespace sinter {
namespace {

void cpu(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return;
  const int64_t S = y.size(-2), T = y.size(-1), diagonal = call.as<TrilAttrs>().diagonal;
  visit_float(x.dtype(), [&]<class N>(N) {
    const N* from = x.data<N>();
    N* to = y.data<N>();
    parallel_for(
        y.numel() / T, grain_of(2 * T * int64_t{sizeof(N)}), [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            // Those up to the diagonal, of which there may be any number.
            const int64_t kept = std::clamp<int64_t>(row % S + 1 + diagonal, 0, T);
            std::copy_n(from + row * T, kept, to + row * T);
            std::fill_n(to + row * T + kept, T - kept, N(0));
          }
        });
  });
}

void check(Operands, const Attrs& attrs) {
  const int64_t diagonal = attrs.as<TrilAttrs>().diagonal;
  SINTER_CHECK(diagonal > INT32_MIN && diagonal < INT32_MAX, usage,
      str("tril: diagonal out of range: ", diagonal, "; allowed ", INT32_MIN + 1, "..",
          INT32_MAX - 1));
}

Tensors backward(const Saved& saved, Operands grads) {
  return {tril(grads[0], saved.as<TrilAttrs>().diagonal)};
}

}  // namespace

const OpDef kTrilOp = listed<kTrilOp>({.formula = "y[r, c] = x[r, c] if c <= r + diagonal, else 0",
    .attrs = attr_type<TrilAttrs>(),
    .check = check,
    .cost = cost_per_element<0>,
    .cpu = cpu,
    .backward = backward});

Tensor tril(const Tensor& x, int64_t diagonal) { return apply1(kTrilOp, {x}, TrilAttrs{diagonal}); }

}  // namespace sinter
