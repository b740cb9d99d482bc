// Device memory of the emulator, for tests of kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device/kernel.h"

namespace sinter::SINTER_KERNEL_NS {

// Orders in which the emulator may run threads.
inline const simt::Schedule kSchedules[] = {{simt::Schedule::Order::forward},
    {simt::Schedule::Order::reversed}, {simt::Schedule::Order::one_warp_ahead, 5},
    {simt::Schedule::Order::shuffled, 7}};

template <class T> class Buffer {
 public:
  explicit Buffer(int64_t n)
      : n_(n), data_(static_cast<T*>(simt::allocator().allocate(size_t(n) * sizeof(T)))) {}
  // n values f(i)
  template <class F> Buffer(int64_t n, F&& f) : Buffer(n) {
    for (int64_t i = 0; i < n; ++i) data_[i] = static_cast<T>(f(i));
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { simt::allocator().release(data_, size_t(n_) * sizeof(T)); }
  In<T> in() const { return {data_, n_}; }
  Out<T> out() { return {data_, n_}; }
  InOut<T> in_out() { return {data_, n_}; }
  T* data() { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  int64_t size() const { return n_; }
  std::vector<T> values() const { return {data_, data_ + n_}; }

 private:
  int64_t n_;
  T* data_;
};

}  // namespace sinter::SINTER_KERNEL_NS
