// From tensors to the operands of kernels; for the host functions at the end of .cu files.
#pragma once

#include "core/device/launch.h"
#include "core/tensor.h"
#include "ops/kernels.h"

namespace sinter::SINTER_KERNEL_NS {

// Elements from the first to the last that the strides reach, both counted.
inline int64_t extent_of(const Tensor& t) { return sinter::extent_of(t.shape(), t.strides()); }

// An undefined tensor gives an operand that is not there.
template <class T> In<T> in(const Tensor& t) {
  return t.defined() ? In<T>(t.data<T>(), extent_of(t)) : In<T>();
}
template <class T> Out<T> out(const Tensor& t) {
  return t.defined() ? Out<T>(t.data<T>(), extent_of(t)) : Out<T>();
}
template <class T> InOut<T> in_out(const Tensor& t) {
  return t.defined() ? InOut<T>(t.data<T>(), extent_of(t)) : InOut<T>();
}

// Can 16 bytes be moved at once from the operand's first element on?
inline bool is_aligned(const Tensor& t) {
  return !t.defined() || reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
}

// f<N>() for operands that can be moved N elements at a time, else f<1>().
template <int N, class F> void with_width(bool wide, const F& f) {
  if (wide) return f.template operator()<N>();
  f.template operator()<1>();
}

}  // namespace sinter::SINTER_KERNEL_NS
