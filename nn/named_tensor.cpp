#include "nn/named_tensor.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "core/device/memory.h"
#include "core/numbers.h"
#include "ops/ops.h"

namespace sinter::nn {

size_t place_of(
    const char* subject, std::string_view name, std::span<const std::string_view> names) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return size_t(found - names.begin());
  const std::string nearest = nearest_word(name, names);
  throw Error(Error::Kind::usage,
      sinter::str(subject, ": unknown name: ", escaped(name), "; ",
          nearest.empty() ? "allowed " + join(names) : "nearest is " + nearest));
}

void copy_values(const Tensor& to, const Tensor& from, const char* writer) {
  check_outside_step(writer);
  SINTER_CHECK(to.shape() == from.shape(), shape,
      sinter::str(writer, ": shapes differ: ", sinter::describe({{"to", &to}, {"from", &from}})));
  SINTER_ASSERT(to.is_contiguous(), writer, ": strided ", to.describe());
  const NoGrad no_grad;
  const Tensor here = from.device() == kCpu ? from : from.to(kCpu),
               values = here.dtype() == to.dtype() ? contiguous(here) : cast(here, to.dtype());
  copy_to_device(to.raw(), to.device(), values.raw(), to.dtype(), to.numel());
  to.storage()->bump_version(writer);
}

Tensor Converter::operator()(const Tensor& t, DType dtype) {
  Tensor whole;
  for (const auto& [original, converted] : done_) {
    if (original.is_same(t)) return converted;
    if (original.storage() == t.storage()) whole = converted;
  }
  if (!whole.defined()) {
    const int64_t n = int64_t(t.storage()->bytes() / size_of(t.dtype()));
    whole = Tensor::empty({n}, dtype, t.device());
    copy_values(whole, Tensor::view_of(t.storage(), t.dtype(), {n}, {1}, 0), "convert");
    whole.storage()->follow(*t.storage());
  }
  return done_
      .emplace_back(t, Tensor::view_of(whole.storage(), dtype, t.shape(), t.strides(), t.offset()))
      .second;
}

}  // namespace sinter::nn
