// The CPU as a side that ops/rows/row_formulas.h is compiled for: operands as core/device/kernel.h
// has them for devices, which no file includes beside this.
#pragma once

#include "core/math.h"
#include "core/tensor.h"

#define SINTER_KERNEL_NS on_cpu
#define SINTER_DEVICE_FN SINTER_FN

namespace sinter::on_cpu {

template <class T> struct In {
  const T* data = nullptr;
  T operator[](int64_t i) const { return data[i]; }
};
template <class T> struct Out {
  T* data = nullptr;
  explicit operator bool() const { return data; }
  void put(int64_t i, T v) const { data[i] = v; }
};
template <class T> struct InOut : Out<T> {
  T operator[](int64_t i) const { return this->data[i]; }
};
template <class T> In<T> in(const Tensor& t) { return {t.defined() ? t.data<T>() : nullptr}; }
template <class T> Out<T> out(const Tensor& t) { return {t.defined() ? t.data<T>() : nullptr}; }
template <class T> InOut<T> in_out(const Tensor& t) { return {out<T>(t)}; }

}  // namespace sinter::on_cpu
