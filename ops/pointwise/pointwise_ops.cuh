// The tables of pointwise_device.h: host functions that run an op of pointwise::List, or its
// backward, by the kernels of pointwise_kernels.cuh. Included by the .cu file of each half of the
// list; each compiles for itself.
#pragma once

#include "ops/pointwise/pointwise_device.h"
#include "ops/pointwise/pointwise_kernels.cuh"
#include "ops/pointwise/relu_mask.h"

namespace sinter::SINTER_KERNEL_NS {

using pointwise::Saves;

template <class Op, class T> struct Forward {
  static constexpr int kOutputs = 1;
  Op op;
  template <class... X> SINTER_DEVICE_FN Vec<T, 1> operator()(X... x) const {
    return {T(op.forward(compute_t<T>(x)...))};
  }
};

// Two gradients: the last two, those of a and b.
template <class Op, class T> struct Backward {
  static constexpr int kOutputs = pointwise::kGrads<Op>;
  Op op;
  template <class... X> SINTER_DEVICE_FN Vec<T, kOutputs> operator()(X... x) const {
    const auto grads = op.grad(compute_t<T>(x)...);
    if constexpr (kOutputs == 1) {
      return {T(grads)};
    } else {
      return {T(grads[grads.size() - 2]), T(grads[grads.size() - 1])};
    }
  }
};

// y = relu(x) and a bit per element (ops/pointwise/relu_mask.h). A thread owns 8 elements of a row
// and their mask byte; threads beyond the row write the zeros of its padding. Reads x once, writes
// y and the mask once. vec: every row is aligned for 16-byte accesses.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
relu_masked(
    int64_t rows, int64_t cols, int64_t mask_row, bool vec, In<T> x, Out<T> y, Out<uint8_t> mask) {
  for (int64_t i = first_item(); i < rows * mask_row; i += item_step()) {
    const int64_t row = i / mask_row, begin = (i - row * mask_row) * 8, left = cols - begin,
                  at = row * cols + begin;
    uint32_t bits = 0;
    if (vec && left >= 8) {
      SINTER_UNROLL
      for (int part = 0; part < 8; part += kVec<T>) {
        Vec<T, kVec<T>> v = x.template load_vec<kVec<T>>(at + part);
        SINTER_UNROLL
        for (int k = 0; k < kVec<T>; ++k) {
          const bool keep = pointwise::Relu::passes(compute_t<T>(v[k]));
          bits |= static_cast<uint32_t>(keep) << (part + k);
          v[k] = keep ? v[k] : T(0);
        }
        y.store_vec(at + part, v);
      }
    } else {
      SINTER_NO_UNROLL
      for (int k = 0; k < 8 && k < left; ++k) {
        const T v = x[at + k];
        const bool keep = pointwise::Relu::passes(compute_t<T>(v));
        bits |= static_cast<uint32_t>(keep) << k;
        y.put(at + k, keep ? v : T(0));
      }
    }
    mask.put(i, static_cast<uint8_t>(bits));
  }
}

// dx = dy where the mask has a bit, else 0. Owners as in relu_masked.
template <class T>
SINTER_KERNEL_BOUNDS(kItemBlock)
relu_masked_backward(
    int64_t rows, int64_t cols, int64_t mask_row, bool vec, In<T> dy, In<uint8_t> mask, Out<T> dx) {
  const int64_t bytes = (cols + 7) / 8;  // of a mask row, less the padding
  for (int64_t i = first_item(); i < rows * bytes; i += item_step()) {
    const int64_t row = i / bytes, begin = (i - row * bytes) * 8, left = cols - begin,
                  at = row * cols + begin;
    const uint32_t bits = mask[row * mask_row + begin / 8];
    if (vec && left >= 8) {
      SINTER_UNROLL
      for (int part = 0; part < 8; part += kVec<T>) {
        Vec<T, kVec<T>> v = dy.template load_vec<kVec<T>>(at + part);
        SINTER_UNROLL
        for (int k = 0; k < kVec<T>; ++k) v[k] = bits >> (part + k) & 1 ? v[k] : T(0);
        dx.store_vec(at + part, v);
      }
    } else {
      SINTER_NO_UNROLL
      for (int k = 0; k < 8 && k < left; ++k) {
        const T v = dy[at + k];
        dx.put(at + k, bits >> k & 1 ? v : T(0));
      }
    }
  }
}

template <class T> bool has_vec_rows(const Tensor& a, const Tensor& b) {
  return a.size(-1) % kVec<T> == 0 && is_aligned<T, kVec<T>>(a) && is_aligned<T, kVec<T>>(b);
}

template <class Op, class T> void pointwise_forward_as(const Call& call) {
  const Tensor& y = call.out[0];
  if constexpr (Op::saves == Saves::mask) {
    if (call.out.size() > 1) {
      const int64_t items = call.out[1].numel(), cols = y.size(-1);
      if (y.numel() == 0) return;
      return launch<relu_masked<T>>(item_grid(items), kItemBlock, 0, y.numel() / cols, cols,
          relu_mask_row(cols), has_vec_rows<T>(call.in[0], y), in<T>(call.in[0]), out<T>(y),
          out<uint8_t>(call.out[1]));
    }
  }
  const auto op = pointwise::with_number<compute_t<T>>(call.as<Op>());
  [&]<size_t... I>(std::index_sequence<I...>) {
    launch_pointwise<T, pointwise::Element<Op, T, I>...>(
        Forward<std::remove_const_t<decltype(op)>, T>{op}, y, {}, {&call.in[I]...});
  }(std::make_index_sequence<Op::arity>());
}

template <class Op, class T> void pointwise_backward_as(const Call& call) {
  const Tensor &dy = call.in[0], &dx = call.out[0];
  if constexpr (Op::saves == Saves::mask) {
    if (dx.numel() == 0) return;
    const int64_t cols = dx.size(-1), rows = dx.numel() / cols;
    launch<relu_masked_backward<T>>(item_grid(rows * ((cols + 7) / 8)), kItemBlock, 0, rows, cols,
        relu_mask_row(cols), has_vec_rows<T>(dy, dx), in<T>(dy), in<uint8_t>(call.in[1]),
        out<T>(dx));
  } else {
    const auto op = pointwise::with_number<compute_t<T>>(call.as<Op>());
    const Tensor second = pointwise::kGrads<Op> == 2 ? call.out[1] : Tensor();
    [&]<size_t... I>(std::index_sequence<I...>) {
      launch_pointwise<T, T, pointwise::Element<Op, T, I>...>(
          Backward<std::remove_const_t<decltype(op)>, T>{op}, dx, second,
          {&dy, &call.in[1 + I]...});
    }(std::make_index_sequence<pointwise::kSavedValues<Op>>());
  }
}

template <class Op> void pointwise_forward(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { pointwise_forward_as<Op, T>(call); });
}
template <class Op> void pointwise_backward(const Call& call) {
  visit_float(call.out[0].dtype(), [&]<class T>(T) { pointwise_backward_as<Op, T>(call); });
}

template <class... Op> PointwiseKernels pointwise_table(std::tuple<Op...>, size_t index) {
  static constexpr PointwiseKernels kTable[] = {{pointwise_forward<Op>, pointwise_backward<Op>}...};
  return kTable[index];
}

}  // namespace sinter::SINTER_KERNEL_NS
