#include "nn/named_tensor.h"

#include "core/device/memory.h"
#include "ops/step_state.h"

namespace sinter::nn {
namespace {

// Calls f(offset in a, offset in b) for every element of two equal shapes, in row-major order.
template <class F>
void for_each_pair(
    const Tensor& a, const Tensor& b, F&& f, int dim = 0, int64_t at_a = 0, int64_t at_b = 0) {
  if (dim == a.rank()) return f(at_a, at_b);
  for (int64_t i = 0; i < a.size(dim); ++i)
    for_each_pair(a, b, f, dim + 1, at_a + i * a.strides()[dim], at_b + i * b.strides()[dim]);
}

void write_values(const Tensor& to, const Tensor& from) {
  visit_all(to.dtype(), [&](auto zero_to) {
    visit_all(from.dtype(), [&](auto zero_from) {
      using To = decltype(zero_to);
      auto* out = to.data<To>();
      const auto* in = from.data<decltype(zero_from)>();
      for_each_pair(to, from, [&](int64_t i, int64_t j) { out[i] = To(in[j]); });
    });
  });
}

}  // namespace

void copy_values(const Tensor& to, const Tensor& from, const char* writer) {
  check_outside_step(writer);
  SINTER_CHECK(to.shape() == from.shape(), shape,
      cat(writer, ": shapes differ: ", sinter::describe({{"to", &to}, {"from", &from}})));
  if (to.device() != kCpu || from.device() != kCpu) {
    const Tensor read = from.device() == kCpu ? from : from.to(kCpu),
                 staged = to.device() == kCpu ? to : Tensor::empty(to.shape(), to.dtype());
    write_values(staged, read);
    if (to.device() != kCpu) {
      SINTER_ASSERT(to.is_contiguous(), writer, ": strided ", to.describe());
      copy_to_device(to.raw(), to.device(), staged.raw(), staged.storage()->bytes());
    }
  } else {
    write_values(to, from);
  }
  to.storage()->bump_version(writer);
  if (to.has_autograd() && to.autograd().bf16_copy.defined())
    copy_values(to.autograd().bf16_copy, to, writer);
}

Tensor Converter::operator()(const Tensor& t, DType dtype) {
  std::shared_ptr<Storage> converted;
  for (const auto& [uid, storage] : done_) {
    if (uid == t.storage()->uid()) converted = storage;
  }
  if (!converted) {
    const int64_t n = int64_t(t.storage()->bytes() / size_of(t.dtype()));
    const Tensor whole = Tensor::empty({n}, dtype, t.device());
    copy_values(whole, Tensor::view_of(t.storage(), t.dtype(), {n}, {1}, 0), "convert");
    converted = whole.storage();
    done_.emplace_back(t.storage()->uid(), converted);
  }
  return Tensor::view_of(converted, dtype, t.shape(), t.strides(), t.offset());
}

}  // namespace sinter::nn
