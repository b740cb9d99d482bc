// Tensor: a handle to an array: shared storage, shape, strides, element type. Copying a Tensor
// copies the handle, as in PyTorch. Views share the storage. Elements are reached through raw
// pointers by kernels only; arithmetic lives in ops/ops.h. Autograd keeps its few facts about a
// tensor in `autograd()`. Threads: many may read one tensor, and use it in ops, at once. Whoever
// changes it (its elements, its gradient, set_requires_grad, hooks) must be alone with it, as with
// any value. The first autograd() of a tensor is such a change; has_autograd(), requires_grad() and
// grad() are not.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/storage.h"

namespace sinter {

class Tensor;

// What autograd knows of a tensor; below.
struct AutogradMeta;

class Tensor {
 public:
  Tensor() = default;  // undefined: no tensor (an absent bias, say)

  // Uninitialised, zero, constant. Sizes >= 0; throws shape.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = kCpu) {
    return full(shape, 0, dtype, device);
  }
  static Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = kCpu) {
    return full(shape, 1, dtype, device);
  }
  static Tensor full(
      const Shape& shape, double value, DType dtype = DType::f32, Device device = kCpu);
  // The values in row-major order; throws shape unless values.size() == shape.numel().
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = kCpu);
  static Tensor from(
      std::initializer_list<float> values, const Shape& shape, Device device = kCpu) {
    return from(std::vector<float>(values), shape, device);
  }
  // A meta tensor: its storage has no bytes. Ops take it, return meta tensors and launch nothing;
  // views, versions and recorders treat it like any other. It serves shape rules and plans, and
  // shows what a function does without doing it.
  static Tensor meta(const Shape& shape, DType dtype = DType::f32, Device device = kCpu);
  // A meta tensor that nobody computes with: what a shape rule gives, what autograd remembers of a
  // tensor whose elements it does not need. A thread has one storage of it per device: none is
  // allocated.
  static Tensor shape_only(const Shape& shape, DType dtype, Device device);
  // Makes a tensor for elements of what a shape rule gave, in place: dense, uninitialised, or, if
  // `meta`, a meta tensor of its own. Another handle to it stays as it is.
  void allocate(bool meta);
  // Strided view of `storage`; strides and offset in elements. REQUIRES: it lies inside the storage
  // (checked).
  static Tensor view_of(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape,
      const Strides& strides, int64_t offset);

  // A meta tensor of other strides, on a storage of its own. REQUIRES: this is one.
  Tensor with_layout(const Strides& strides, int64_t offset) const;
  // A dense copy on a device (this one or another). Neither autograd nor a capture sees it; to the
  // host it waits for the device.
  Tensor to(Device device) const;

  bool is_meta() const { return impl_ && !impl_->storage->has_bytes(); }
  // There is no conversion to bool: if (a == b), where == compares elements, must not compile.
  bool defined() const { return impl_ != nullptr; }
  // These throw state if it is undefined.
  const Shape& shape() const { return impl("shape").shape; }
  const Strides& strides() const { return impl("strides").strides; }
  // Of dim i, which may count from the end: -1 is the last. Throws shape for any other.
  int64_t size(int i) const { return impl("size").shape[i]; }
  int rank() const { return impl("rank").shape.rank(); }
  int64_t numel() const { return impl("numel").numel; }
  DType dtype() const { return impl("dtype").dtype; }
  Device device() const { return impl("device").storage->device(); }
  int64_t offset() const { return impl("offset").offset; }  // of the first element, in elements
  bool is_contiguous() const { return impl("is_contiguous").contiguous; }
  const std::shared_ptr<Storage>& storage() const { return impl("storage").storage; }
  // True if there is no other handle to it, and no other tensor on its storage.
  bool is_sole_owner() const { return impl_.use_count() == 1 && impl_->storage.use_count() == 1; }
  // Identity of the handle's target: equal for copies, different for views.
  const void* id() const { return impl_.get(); }
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  // To ask later whether the tensor is still in use, without keeping it: by how many handles.
  std::weak_ptr<const void> watch() const { return impl_; }

  // Pointer to the first element, for kernels. REQUIRES: T is the element type (checked).
  template <class T> T* data() const {
    check_type(dtype_of<T>);
    return static_cast<T*>(raw());
  }
  // Memory of the device: on the host only core/device/memory.h may touch it unless that is the
  // CPU.
  void* raw() const {
    const Impl& t = impl("raw");
    return static_cast<char*>(t.storage->data()) + t.offset * int64_t(size_of(t.dtype));
  }

  // The one element, on the host. Throws shape unless numel() == 1, and state inside a captured
  // step.
  double item() const;
  // All elements in row-major order, on the host; converts. Throws state inside a captured step.
  template <class T> std::vector<T> to_vector() const;

  // item() for the library itself: allowed inside a captured step.
  double to_double() const;

  // Autograd's facts; made at first use. has_autograd() asks without making.
  AutogradMeta& autograd() const;
  bool has_autograd() const { return impl_ && impl_->autograd != nullptr; }
  bool requires_grad() const;
  // Throws state unless this is a leaf (what an op made follows from its inputs), and dtype unless
  // its type is floating. Returns *this for chaining.
  Tensor& set_requires_grad(bool on);
  // The gradient of the last backward(), or undefined. Throws state if a fused rule took it (the
  // message names the rule).
  Tensor grad() const;
  // backward(*this) of autograd/autograd.h, where it is defined.
  void backward() const;

  // "f32[64, 784] cpu": for messages. values(): numbers too, as nested brackets, long dims cut in
  // the middle.
  std::string describe() const;
  std::string values(int precision = 4) const;

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    Shape shape;
    Strides strides;
    int64_t offset = 0, numel = 0;
    DType dtype = DType::f32;
    bool contiguous = true;
    std::unique_ptr<AutogradMeta> autograd;
    ~Impl();
  };
  // Dense, without a storage yet.
  static Tensor shaped(const Shape& shape, DType dtype);
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Impl& impl(const char* call) const { return impl_ ? *impl_ : undefined(call); }
  [[noreturn, gnu::cold]] static Impl& undefined(const char* call);
  void check_type(DType wanted) const;
  void check_host_read(const char* what) const;
  // The tensor where the host may read it, with its strides: itself on the CPU, else a copy of the
  // elements it reaches.
  Tensor readable() const;
  std::shared_ptr<Impl> impl_;
};

struct AutogradMeta {
  bool requires_grad = false;
  bool leaf = true;  // not made by an op on a tape
  // A module registered it, or an optimizer steps it: Note [A parameter that nobody registered].
  bool known = false;
  Tensor grad;  // leaves, and tensors that asked for it (retain_grad)
  const char* grad_taken_by =
      nullptr;  // a fused rule consumed the gradient: reading it is an error
  std::vector<std::function<Tensor(const Tensor&)>>
      hooks;  // called with the gradient; a defined result replaces it
  // Of a value that an op made: where it stands on the tape of its thread. Written once, by that
  // thread, before anyone else can see the tensor. No two tapes of the process share a generation.
  uint64_t tape_generation = 0;
  int64_t tape_slot = -1;
  Tensor bf16_copy;  // of a weight; old after another write, so ask bf16_copy_of() of ops/ops.h
  std::string name;  // "layers.0.weight", for messages and graphs
  // Of a resident number that never changes, such as the grad_output of backward, and of views of
  // it: so that nobody waits for the device to learn it.
  std::optional<double> constant;
  // Of losses of which some rows do not count: which do, u8[B], and how many, f32[1]. Of a gradient
  // that was averaged over them: how many of this process, and of all (Note [Rows that do not
  // count] in ops/rows/losses.cpp).
  Tensor counts, counted, counted_of_all;
};

// values(), then describe(); of a meta or an undefined tensor describe() alone.
std::ostream& operator<<(std::ostream& out, const Tensor& t);

// "f32[64, 784] cpu, f32[10] cpu": the operands in a message.
std::string describe(std::initializer_list<std::pair<const char*, const Tensor*>> named);

}  // namespace sinter
