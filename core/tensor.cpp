#include "core/tensor.h"

#include <algorithm>

#include "core/context.h"
#include "core/convert.h"
#include "core/device/memory.h"

namespace sinter {
namespace {

bool dense(const Shape& shape, const Strides& strides) {
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

// Calls f(offset in elements) for every element in row-major order.
template <class F> void for_each_offset(const Shape& shape, const Strides& strides, F&& f) {
  if (shape.numel() == 0) return;
  const int64_t *size = shape.begin(), *stride = strides.begin();
  std::array<int64_t, kMaxRank> index{};
  int64_t offset = 0;
  while (true) {
    f(offset);
    int d = shape.rank() - 1;
    for (; d >= 0; --d) {
      offset += stride[d];
      if (++index[d] < size[d]) break;
      offset -= stride[d] * size[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace

Tensor::Impl::~Impl() = default;

Tensor::Impl& Tensor::undefined(const char* call) {
  throw Error(Error::Kind::state, str(call, ": the tensor is undefined"),
      "Tensor() is no tensor, such as an absent bias; defined() asks first");
}

Tensor Tensor::shaped(const Shape& shape, DType dtype) {
  check_shape("tensor", shape);
  auto impl = std::make_shared<Impl>();
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->numel = shape.numel();
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor Tensor::meta(const Shape& shape, DType dtype, Device device) {
  Tensor t = shape_only(shape, dtype, device);
  t.allocate(true);
  return t;
}

Tensor Tensor::shape_only(const Shape& shape, DType dtype, Device device) {
  static thread_local std::vector<std::shared_ptr<Storage>> storages;  // one for each device
  auto known = std::ranges::find(storages, device, &Storage::device);
  if (known == storages.end())
    known = storages.insert(known, std::make_shared<Storage>(Storage::WithoutBytes{}, 0, device));
  Tensor t = shaped(shape, dtype);
  t.impl_->storage = *known;
  return t;
}

void Tensor::allocate(bool meta) {
  impl("allocate");
  const bool as_it_is = impl_.use_count() == 1 && is_contiguous() && !impl_->autograd;
  if (!as_it_is) *this = shape_only(shape(), dtype(), device());
  const size_t bytes = size_t(numel()) * size_of(dtype());
  impl_->offset = 0;
  impl_->storage = meta ? std::make_shared<Storage>(Storage::WithoutBytes{}, bytes, device())
                        : std::make_shared<Storage>(bytes, device());
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor t = shaped(shape, dtype);
  t.impl_->storage = std::make_shared<Storage>(size_t(t.numel()) * size_of(dtype), device);
  return t;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  if (device == kCpu) {
    visit_all(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(t.data<T>(), t.numel(), convert<T>(value));
    });
  } else if (value == 0) {
    fill_bytes(t.raw(), device, 0, t.storage()->bytes());
  } else {
    const Tensor host = full(shape, value, dtype);
    copy_to_device(t.raw(), device, host.raw(), t.storage()->bytes());
  }
  return t;
}

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape, Device device) {
  SINTER_CHECK(int64_t(values.size()) == shape.numel(), shape,
      str("tensor: ", values.size(), " values do not fill ", shape.str(), ", which holds ",
          shape.numel()));
  Tensor t = empty(shape, dtype_of<T>, device);
  copy_to_device(t.raw(), device, values.data(), t.dtype(), t.numel());
  return t;
}

Tensor Tensor::view_of(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape,
    const Strides& strides, int64_t offset) {
  Tensor t = shaped(shape, dtype);
  SINTER_ASSERT(
      strides.rank() == shape.rank(), "strides ", strides.str(), " for shape ", shape.str());
  const int64_t end = offset + extent_of(shape, strides);
  SINTER_ASSERT(
      t.numel() == 0 || (offset >= 0 && end * int64_t(size_of(dtype)) <= int64_t(storage->bytes())),
      "view ", shape.str(), " strides ", strides.str(), " offset ", offset, " of ",
      storage->bytes(), " bytes");
  t.impl_->storage = std::move(storage);
  t.impl_->strides = strides;
  // An empty view begins with its storage, which may have no memory to be at an offset in.
  t.impl_->offset = t.numel() == 0 ? 0 : offset;
  t.impl_->contiguous = dense(shape, strides);
  return t;
}

Tensor Tensor::readable() const {
  if (device() == kCpu) return *this;
  const size_t bytes = size_t(extent_of(shape(), strides())) * size_of(dtype());
  const auto host = std::make_shared<Storage>(bytes, kCpu);
  copy_to_host(host->data(), raw(), device(), bytes);
  return view_of(host, dtype(), shape(), strides(), 0);
}

Tensor Tensor::to(Device device) const {
  impl("to");
  const char* why = Context::current().host_reads_forbidden;
  SINTER_CHECK(!why, state,
      str("to: a tensor is copied by the host inside ", why, ": ", describe(),
          "; a replay would not copy it again"),
      "copy it before the step and give it as an input; copy(..) is an op");
  Tensor out = empty(shape(), dtype(), device);
  if (is_contiguous() && this->device() == kCpu) {
    copy_to_device(out.raw(), device, raw(), dtype(), numel());
    return out;
  }
  if (is_contiguous()) {
    copy_between(out.raw(), device, raw(), this->device(), out.storage()->bytes());
    return out;
  }
  const Tensor host = readable(), dense = empty(shape(), dtype());
  visit_all(dtype(), [&](auto zero) {
    auto* to = dense.data<decltype(zero)>();
    const auto* from = host.data<decltype(zero)>();
    for_each_offset(shape(), strides(), [&](int64_t at) { *to++ = from[at]; });
  });
  copy_to_device(out.raw(), device, dense.raw(), dtype(), numel());
  return out;
}

Tensor Tensor::with_layout(const Strides& strides, int64_t offset) const {
  impl("with_layout");
  SINTER_ASSERT(is_meta() && strides.rank() == rank(), "with_layout of ", describe());
  const size_t bytes = size_t(offset + extent_of(shape(), strides)) * size_of(dtype());
  const auto storage = std::make_shared<Storage>(Storage::WithoutBytes{}, bytes, device());
  return view_of(storage, dtype(), shape(), strides, offset);
}

void Tensor::check_type(DType wanted) const {
  const DType found = impl("data").dtype;
  SINTER_CHECK(found == wanted, dtype,
      str("data: another type: asked for ", name_of(wanted), ", found ", name_of(found)),
      "a kernel for several types asks dtype() first");
}

void Tensor::check_host_read(const char* what) const {
  impl(what);
  const char* why = Context::current().host_reads_forbidden;
  SINTER_CHECK(!why, state,
      str(what, ": a value is read on the host inside ", why, ": ", describe(),
          "; a replay would never see it"),
      "read it after the step, or return it from the step");
}

double Tensor::item() const {
  check_host_read("item");
  SINTER_CHECK(numel() == 1, shape,
      str("item: one element is wanted: found ", describe(), "; it has ", numel()));
  return to_double();
}

template <class T> std::vector<T> Tensor::to_vector() const {
  check_host_read("to_vector");
  std::vector<T> out;
  out.reserve(size_t(numel()));
  const Tensor host = readable();
  visit_all(dtype(), [&](auto zero) {
    const auto* p = host.data<decltype(zero)>();
    for_each_offset(shape(), strides(), [&](int64_t at) { out.push_back(convert<T>(p[at])); });
  });
  return out;
}

double Tensor::to_double() const {
  impl("to_double");
  const Tensor host = readable();
  return visit_all(dtype(), [&](auto zero) { return double(*host.data<decltype(zero)>()); });
}

#define SINTER_INSTANTIATE(T)                                                \
  template Tensor Tensor::from(const std::vector<T>&, const Shape&, Device); \
  template std::vector<T> Tensor::to_vector() const;
SINTER_INSTANTIATE(float)
SINTER_INSTANTIATE(double)
SINTER_INSTANTIATE(bf16)
SINTER_INSTANTIATE(int32_t)
SINTER_INSTANTIATE(int64_t)
SINTER_INSTANTIATE(uint8_t)
#undef SINTER_INSTANTIATE

AutogradMeta& Tensor::autograd() const {
  std::unique_ptr<AutogradMeta>& meta = impl("autograd").autograd;
  if (!meta) meta = std::make_unique<AutogradMeta>();
  return *meta;
}

bool Tensor::requires_grad() const { return has_autograd() && impl_->autograd->requires_grad; }

Tensor& Tensor::set_requires_grad(bool on) {
  impl("set_requires_grad");
  SINTER_CHECK(!on || is_float(dtype()), dtype,
      str("set_requires_grad: only floating tensors have gradients: found ", describe()));
  SINTER_CHECK(!has_autograd() || impl_->autograd->leaf, state,
      str("set_requires_grad: not a leaf: ", describe(),
          "; an op made it from tensors that require grad"),
      "detach(x) gives its values as a leaf; retain_grad(x) keeps its gradient");
  autograd().requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const {
  if (!has_autograd()) return {};
  const AutogradMeta& meta = *impl_->autograd;
  const bool taken = meta.grad.is_meta() && meta.grad_taken_by;
  SINTER_CHECK(!taken, state,
      str("grad: no gradient of ", meta.name.empty() ? describe() : meta.name, ": the fused rule ",
          meta.grad_taken_by, " applies it to the weight as it is made"),
      str("capture::RuleSet(\"all,-", meta.grad_taken_by, "\") keeps gradients"));
  return meta.grad;
}

std::string Tensor::describe() const {
  if (!defined()) return "nothing";
  return str(name_of(dtype()), shape().str(), " ", device().str());
}

std::string describe(std::initializer_list<std::pair<const char*, const Tensor*>> named) {
  std::string out;
  for (const auto& [name, tensor] : named)
    out += str(out.empty() ? "" : ", ", name, " is ", tensor->describe());
  return out;
}

}  // namespace sinter
