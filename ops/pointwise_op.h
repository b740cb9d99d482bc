// From a pointwise struct (ops/pointwise.h) to its OpDefs: pointwise_op<Gelu>() and
// pointwise_backward_op<Gelu>(), with CPU kernels, shape rule, cost and gradient.
// Instantiated for the lists in pointwise_arithmetic.cpp and pointwise_activations.cpp; a program
// may instantiate it for a struct of its own.
#pragma once

#include "core/context.h"
#include "core/parallel.h"
#include "ops/fused/chain_step.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "ops/pointwise.h"
#include "ops/pointwise_device.h"
#include "ops/pointwise_loops.h"
#include "ops/pointwise_struct.h"
#include "ops/relu_mask.h"

namespace sinter {

template <class Op> const OpDef& pointwise_op();
template <class Op> const OpDef& pointwise_backward_op();

namespace pointwise_detail {

using pointwise::Element, pointwise::kGrads, pointwise::kSavedValues, pointwise::Saves;

template <class Op> void check(Operands in) {
  constexpr int first = Op::has_condition ? 1 : 0;
  if constexpr (Op::has_condition) check_dtype(Op::name, "condition", in[0], DType::u8);
  check_floating(Op::name, first ? "a" : "x", in[first]);
  for (int i = first + 1; i < Op::arity; ++i) {
    SINTER_CHECK(in[i].defined(), shape, cat(Op::name, ": operand ", i, " is undefined"));
    check_same_dtype(Op::name, "a", in[first], "b", in[i]);
  }
}

template <class Op> Tensors infer(Operands in, const Attrs& attrs) {
  check<Op>(in);
  Shape shape = in[0].shape();
  for (int i = 1; i < Op::arity; ++i) shape = broadcast_shapes(Op::name, shape, in[i].shape());
  Tensors out{Tensor::shape_only(shape, in[Op::arity - 1].dtype(), in[0].device())};
  if constexpr (Op::saves == Saves::mask) {
    if (attrs.as<Op>().mask) {
      SINTER_CHECK(shape.rank() >= 1, shape,
          cat(Op::name, ": a scalar has no rows: x is ", in[0].describe()), "reshape(x, {1})");
      out.push_back(Tensor::shape_only(relu_mask_shape(shape), DType::u8, in[0].device()));
    }
  }
  return out;
}

template <class Op> Cost cost(Operands in, Operands out, const Attrs&) {
  Cost c = cost_of(Op::flops * out[0].numel(), in, out.first(1));
  if (out.size() > 1) c.bytes_written += (out[0].numel() + 7) / 8;
  return c;
}

// out[0] = f(in..) for a call's operands of types In.
template <class T, class... In, class F>
void map_call(const Call& call, int64_t flops, const F& f) {
  constexpr int N = sizeof...(In);
  std::array<const Tensor*, N + 1> operands;
  for (int i = 0; i < N; ++i) operands[i] = &call.in[i];
  operands[N] = &call.out[0];
  pointwise_rows<1, In..., T>(call.out[0].shape(), operands, (N + 1) * sizeof(T) + 2 * flops,
      [&](const In*... in, T* out, int64_t n) {
        for (int64_t i = 0; i < n; ++i) out[i] = f(compute_t<T>(in[i])...);
      });
}

// f(first element, first byte of the mask, columns) for each row of a tensor with a bit mask.
template <class T, class F> void for_masked_rows(const Tensor& x, const F& f) {
  const int64_t cols = x.size(-1), rows = cols ? x.numel() / cols : 0;
  parallel_for(
      rows, grain_of(cols * 2 * static_cast<int64_t>(sizeof(T))), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) f(r * cols, r * relu_mask_row(cols), cols);
      });
}

template <class Op, class T> void forward_typed(const Call& call) {
  const Op& op = call.as<Op>();
  if constexpr (Op::saves == Saves::mask) {
    const T* x = call.in[0].data<T>();
    T* y = call.out[0].template data<T>();
    if (call.out.size() == 1)
      return parallel_for(call.in[0].numel(), grain_of(2 * sizeof(T)),
          [&](int64_t b, int64_t e) { relu_row(x + b, y + b, nullptr, e - b); });
    uint8_t* mask = call.out[1].template data<uint8_t>();
    for_masked_rows<T>(call.in[0], [&](int64_t at, int64_t mask_at, int64_t cols) {
      relu_row(x + at, y + at, mask + mask_at, cols);
    });
  } else {
    const auto f = [op](auto... x) __attribute__((always_inline)) { return op.forward(x...); };
    [&]<size_t... I>(std::index_sequence<I...>) {
      map_call<T, Element<Op, T, I>...>(call, Op::flops, f);
    }(std::make_index_sequence<Op::arity>());
  }
}

template <class Op> void forward(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { forward_typed<Op, T>(call); });
}

// Inputs: dy, then what the op saves, each of a shape that broadcasts to dy's (a mask has rows of
// its own). Outputs: one dense gradient of the full shape per differentiable input.
template <class Op> Tensors infer_backward(Operands in, const Attrs&) {
  const char* op = Op::backward_name;
  const Tensor& dy = in[0];
  check_floating(op, "dy", dy);
  for (int i = 1; i <= kSavedValues<Op>; ++i) {
    const Tensor& saved = in[i];
    const bool mask = Op::saves == Saves::mask, bytes = mask || (Op::has_condition && i == 1);
    check_dtype(op, "what was saved", saved, bytes ? DType::u8 : dy.dtype());
    const bool fits = mask ? dy.rank() > 0 && saved.shape() == relu_mask_shape(dy.shape())
                           : broadcasts_to(saved.shape(), dy.shape());
    SINTER_CHECK(fits, shape,
        cat(op, ": what was saved does not fit: ", describe({{"dy", &dy}, {"saved", &saved}}),
            mask && dy.rank() > 0 ? "; it must be " + relu_mask_shape(dy.shape()).str()
            : mask                ? "; a scalar has no rows"
                                  : "; it must broadcast to " + dy.shape().str()));
  }
  return Tensors(kGrads<Op>, Tensor::shape_only(in[0].shape(), in[0].dtype(), in[0].device()));
}

template <class Op> Cost cost_backward(Operands in, Operands out, const Attrs&) {
  if constexpr (Op::saves == Saves::mask) {
    Cost c = cost_of(Op::backward_flops * out[0].numel(), in.first(1), out);
    c.bytes_read += (out[0].numel() + 7) / 8;
    return c;
  } else {
    return cost_of(Op::backward_flops * out[0].numel(), in, out);
  }
}

template <class Op, class T> void backward_typed(const Call& call) {
  using C = compute_t<T>;
  constexpr int S = kSavedValues<Op>;
  const Op& op = call.as<Op>();
  const Tensor& dy = call.in[0];
  if constexpr (Op::saves == Saves::mask) {
    for_masked_rows<T>(dy, [&](int64_t at, int64_t mask_at, int64_t cols) {
      relu_backward_row(dy.data<T>() + at, call.in[1].data<uint8_t>() + mask_at,
          call.out[0].template data<T>() + at, cols);
    });
  } else if constexpr (kGrads<Op> == 1) {
    const auto f = [op](auto... v) __attribute__((always_inline)) { return op.grad(v...); };
    [&]<size_t... I>(std::index_sequence<I...>) {
      map_call<T, std::enable_if_t<(I >= 0), T>...>(call, Op::backward_flops, f);
    }(std::make_index_sequence<1 + S>());
  } else {
    std::array<const Tensor*, 1 + S + 2> operands;
    for (int i = 0; i < 1 + S; ++i) operands[i] = &call.in[i];
    for (int i = 0; i < 2; ++i) operands[1 + S + i] = &call.out[i];
    [&]<size_t... I>(std::index_sequence<I...>) {
      pointwise_rows<2, T, Element<Op, T, I>..., T, T>(dy.shape(), operands,
          (S + 3) * sizeof(T) + 2 * Op::backward_flops,
          [&](const T* g, const Element<Op, T, I>*... saved, T* da, T* db, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
              const auto grads = op.grad(C(g[i]), C(saved[i])...);
              da[i] = grads[grads.size() - 2];
              db[i] = grads[grads.size() - 1];
            }
          });
    }(std::make_index_sequence<S>());
  }
}

template <class Op> void backward_kernel(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { backward_typed<Op, T>(call); });
}

template <class Op> Tensors backward(const Saved& saved, Operands grads) {
  constexpr int first = Op::arity - kGrads<Op>;
  Tensors full;
  if constexpr (Op::backward_flops == 0) {
    full.assign(kGrads<Op>, grads[0]);
  } else if constexpr (std::is_same_v<Op, pointwise::Mul>) {  // its derivatives are products again:
                                                              // only the wanted ones
    full = {saved.wants(0) ? mul(grads[0], saved.in[1]) : Tensor{},
        saved.wants(1) ? mul(grads[0], saved.in[0]) : Tensor{}};
  } else {
    Tensors in{grads[0]};
    if constexpr (Op::saves == Saves::inputs) in.insert(in.end(), saved.in.begin(), saved.in.end());
    if constexpr (Op::saves == Saves::output) in.push_back(saved.out[0]);
    if constexpr (Op::saves == Saves::mask) {
      SINTER_ASSERT(saved.out.size() == 2, Op::name, " ran without its mask");
      in.push_back(saved.out[1]);
    }
    full = apply(pointwise_backward_op<Op>(), in, saved.attrs);
  }
  Tensors out(Op::arity);
  for (int i = first; i < Op::arity; ++i) {
    if (saved.wants(i)) out[i] = sum_to(full[i - first], saved.in[i].shape());
  }
  return out;
}

}  // namespace pointwise_detail

template <class Op> const OpDef& pointwise_op() {
  namespace p = pointwise_detail;
  using p::Saves;
  pointwise::check_struct<Op>();
  static const OpDef def = {.name = profiler::StaticName(Op::name),
      .min_inputs = Op::arity,
      .max_inputs = Op::arity,
      .attrs = attr_type<Op>(),
      .infer = p::infer<Op>,
      .cost = p::cost<Op>,
      .cpu = p::forward<Op>,
      .cuda = SINTER_IF_CUDA(on_cuda::pointwise_kernels<Op>().forward),
      .simt = on_simt::pointwise_kernels<Op>().forward,
      .backward = p::backward<Op>,
      .saves_in = Op::saves == Saves::inputs ? (1u << Op::arity) - 1 : 0,
      .saves_out = Op::saves == Saves::output ? 1u
                   : Op::saves == Saves::mask ? 2u
                                              : 0,
      .strided = Op::saves == Saves::mask ? 0 : ~0u};
  if constexpr (!pointwise::kIsListed<Op>) [[maybe_unused]]
    static const bool is_step = add_own_chain_step<Op, false>(def);
  return def;
}

template <class Op> const OpDef& pointwise_backward_op() {
  namespace p = pointwise_detail;
  static const OpDef def = {.name = profiler::StaticName(Op::backward_name),
      .min_inputs = 1 + p::kSavedValues<Op>,
      .max_inputs = 1 + p::kSavedValues<Op>,
      .attrs = attr_type<Op>(),
      .infer = p::infer_backward<Op>,
      .cost = p::cost_backward<Op>,
      .cpu = p::backward_kernel<Op>,
      .cuda = SINTER_IF_CUDA(on_cuda::pointwise_kernels<Op>().backward),
      .simt = on_simt::pointwise_kernels<Op>().backward,
      .strided = Op::saves == p::Saves::mask ? 0 : ~0u};
  if constexpr (!pointwise::kIsListed<Op>) [[maybe_unused]]
    static const bool is_step = add_own_chain_step<Op, true>(def);
  return def;
}

namespace pointwise_detail {
// Forward and backward op of every struct of a list.
template <class... Op> std::vector<const OpDef*> ops_of(std::tuple<Op...>) {
  std::vector<const OpDef*> list;
  ((list.push_back(&pointwise_op<Op>()), list.push_back(&pointwise_backward_op<Op>())), ...);
  return list;
}
}  // namespace pointwise_detail

}  // namespace sinter
