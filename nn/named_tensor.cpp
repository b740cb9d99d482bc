#include "nn/named_tensor.h"

#include "autograd/autograd.h"
#include "core/device/memory.h"
#include "ops/ops.h"

namespace sinter::nn {

void copy_values(const Tensor& to, const Tensor& from, const char* writer) {
  check_outside_step(writer);
  SINTER_CHECK(to.shape() == from.shape(), shape,
      cat(writer, ": shapes differ: ", sinter::describe({{"to", &to}, {"from", &from}})));
  SINTER_ASSERT(to.is_contiguous(), writer, ": strided ", to.describe());
  const NoGrad no_grad;
  const Tensor here = from.device() == kCpu ? from : from.to(kCpu),
               values = here.dtype() == to.dtype() ? contiguous(here) : cast(here, to.dtype());
  copy_to_device(to.raw(), to.device(), values.raw(), to.dtype(), to.numel());
  to.storage()->bump_version(writer);
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
    converted->follow(*t.storage());
    done_.emplace_back(t.storage()->uid(), converted);
  }
  return Tensor::view_of(converted, dtype, t.shape(), t.strides(), t.offset());
}

}  // namespace sinter::nn
