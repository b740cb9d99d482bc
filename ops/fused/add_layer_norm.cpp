// add_layer_norm: y = layer_norm(s), s = a + b: the end of every residual block. s is a result too,
// for backward and for the next block, but never read back: of the plain ops' five passes over
// memory four remain. The same bits as the plain ops.
#include "ops/fused/fused.h"
#include "ops/fused/reference.h"
#include "ops/kernels.h"
#include "ops/row_loops.h"

// N columns
namespace sinter {
namespace {

void cpu(const Call& call) {
  const Tensor &y = call.out[0], &sum = call.out[3];
  const int64_t cols = y.size(-1);
  visit_float(y.dtype(), [&]<class T>(T) {
    using V = compute_t<T>;
    const T *a = call.in[0].data<T>(), *b = call.in[1].data<T>(), *weight = call.in[2].data<T>(),
            *bias = call.in[3].data<T>();
    const V eps = V(call.as<LayerNormAttrs>().eps);
    const int64_t bytes = 6 * cols * int64_t(sizeof(V));
    for_row_tiles(y.numel() / cols, bytes, [&](int64_t row, int64_t rows) {
      T* s = sum.data<T>();
      for (int64_t i = row * cols; i < (row + rows) * cols; ++i) s[i] = T(V(a[i]) + V(b[i]));
      V* x = scratch<V>(cols * kLanes);
      load_tile(s + row * cols, rows, cols, x);
      alignas(64) V mean[kLanes], rstd[kLanes];
      normalise_tile(x, cols, eps, weight, bias, mean, rstd);
      store_tile(x, rows, cols, y.data<T>() + row * cols);
      std::copy_n(mean, rows, call.out[1].data<V>() + row);
      std::copy_n(rstd, rows, call.out[2].data<V>() + row);
    });
  });
}

Tensors reference(Operands in, const Attrs& attrs) {
  const Tensor sum = add(in[0], in[1]);
  Tensors out = apply(kLayerNormOp, {sum, in[2], in[3]}, attrs);
  out.push_back(sum);
  return out;
}

std::string limit(Operands in, const Attrs&) {
  if (in[0].shape() == in[1].shape()) return "";
  return cat("an operand is ", in[1].describe(), " beside ", in[0].describe(),
      "; both must be of one shape");
}

std::vector<Form> forms() {
  return {{{Tensor::meta({2, 3}), Tensor::meta({2, 3}), Tensor::meta({3}), Tensor::meta({3})},
      LayerNormAttrs{}}};
}

}  // namespace

const OpDef kAddLayerNormOp{.name = "add_layer_norm",
    .formula = "s = a + b, y = (s - mean) / sqrt(var + eps) weight + bias, by rows",
    .min_inputs = 4,
    .max_inputs = 4,
    .attrs = attr_type<LayerNormAttrs>(),
    .infer = infer_of<kAddLayerNormOp>,
    .cost = cost_of_reference<kAddLayerNormOp>,
    .cpu = cpu,
    SINTER_KERNELS(add_layer_norm),
    .reference = reference,
    .limit = limit,
    .forms = forms};

}  // namespace sinter
