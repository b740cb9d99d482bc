// OpDef: everything the framework knows of an op, and apply(), the one path that every op takes on
// every device in every mode:
//
//   infer shape -> allocate -> launch the kernel -> tell the recorders
//
// On meta tensors (core/tensor.h) it does the same but for memory, kernel and times.
// The tape (autograd) and the capture are recorders; the profiler's scope sits around the whole of
// it. ops/ knows them only by Recorder. OpDefs are static and immutable. Threads may call apply()
// at once, on shared tensors too, as long as no op changes in place what another reads
// (core/tensor.h); its own state is the thread's Context.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ops/attrs.h"
#include "ops/formula.h"
#include "ops/signature.h"
#include "profiler/cost.h"
#include "profiler/scope.h"

namespace sinter {

struct OpDef;
using profiler::Cost;
using profiler::Role;
using Tensors = std::vector<Tensor>;
using Operands = std::span<const Tensor>;  // an absent optional input is an undefined Tensor

// One execution of an op: what a kernel gets and what a recorder sees.
struct Call {
  const OpDef& op;
  Operands in;
  std::span<Tensor> out;  // allocated, of the inferred shapes
  const Attrs& attrs;
  Role role = Role::none;
  template <class A> const A& as() const { return attrs.as<A>(); }
};

// What backward gets. Tensors that the op did not ask to save have shape, dtype and device only.
struct Saved {
  Operands in, out;
  const Attrs& attrs;
  uint32_t needs;  // bit i: input i wants a gradient
  bool wants(int i) const { return needs >> i & 1; }
  template <class A> const A& as() const { return attrs.as<A>(); }
};

// Operands and attributes of one form in which a fused op stands for ops of a step.
struct Form {
  Tensors in;
  Attrs attrs;
};

using Kernel = void (*)(const Call&);

struct OpDef {
  profiler::StaticName name{};
  Formula formula{};
  Signature signature{};  // what it takes and gives
  int min_inputs = signature.empty() ? 1 : signature.required(),
      max_inputs = signature.operands();  // 0: as many as min_inputs
  const AttrType* attrs = nullptr;
  // What the signature cannot say of operands and attributes that fit it: throws. And the results,
  // tensors without storage, where it does not say them. Those that call an op ask results().
  void (*check)(Operands in, const Attrs& attrs) = nullptr;
  Tensors (*infer)(Operands in, const Attrs& attrs) = nullptr;
  // FLOPs (FMA 2; add, multiply, compare, exp, log 1; copies 0) and minimum bytes, each operand
  // once. Asked only while a profile is made; what it throws reaches the caller of apply().
  Cost (*cost)(Operands in, Operands out, const Attrs& attrs) = nullptr;
  Kernel cpu = nullptr, cuda = nullptr, simt = nullptr;
  // A view op has this instead of kernels: the output, on the input's storage. It launches nothing.
  Tensor (*view)(Operands in, const Attrs& attrs) = nullptr;
  // One gradient per input, undefined where not wanted; made by ops, so that it is timed and
  // captured too. nullptr: no gradient.
  Tensors (*backward)(const Saved& saved, Operands grads) = nullptr;
  uint32_t saves_in = 0, saves_out = 0;  // bit i: backward reads input / output i
  uint32_t writes = signature.writes();  // bit i: input i is changed in place
  // For ops with a list of tensors, in place of `writes`: is input i of n changed?
  bool (*writes_of)(size_t i, size_t n) = nullptr;
  uint32_t strided =
      0;  // bit i: the kernel takes input i with any strides; else apply() makes it dense
  // In place of `strided`, for ops with a list of tensors, and where attributes decide.
  bool (*strided_of)(size_t i, size_t n, const Attrs& attrs) = nullptr;
  // Fused ops (ops/fused/fused.h): the same meaning in plain ops. What only the kernels cannot
  // take, or "": "<what was found>; <what they take>". The forms whose traced reference is a
  // pattern that capture looks for, the largest first. Of an op that runs a program: what tables
  // call it with these attributes.
  Tensors (*reference)(Operands in, const Attrs& attrs) = nullptr;
  std::string (*limit)(Operands in, const Attrs& attrs) = nullptr;
  std::vector<Form> (*forms)() = nullptr;
  profiler::StaticName (*label)(const Attrs& attrs) = nullptr;

  std::string_view text() const { return name.view(); }
  profiler::StaticName label_of(const Attrs& of) const { return label ? label(of) : name; }
  // The only shape rule: tensors without storage for the outputs, or an Error. In-place ops give
  // none.
  Tensors results(Operands in, const Attrs& attrs) const;
  int most_inputs() const { return max_inputs ? max_inputs : min_inputs; }
  bool writes_input(size_t i, size_t n) const {
    return writes_of ? writes_of(i, n) : i < 32 && (writes >> i & 1);
  }
  bool takes_strides(size_t i, size_t n, const Attrs& of) const {
    if (strided_of) return strided_of(i, n, of);
    return writes_of ? writes_of(i, n) : i < 32 && (strided >> i & 1);
  }
  bool in_place() const { return writes != 0 || writes_of != nullptr; }
  Kernel kernel(Device::Type type) const {
    return type == Device::Type::cpu ? cpu : type == Device::Type::cuda ? cuda : simt;
  }
};

// Told about every op after it ran. Hangs in Context::recorders.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void record(const Call& call) = 0;
  // Asked before an op changes operands in place: throws where that must not be.
  virtual void check_in_place(const OpDef&, Operands) const {}
};

// Runs `op`. Throws shape, dtype, device, not_built, memory with the module path.
Tensors apply(const OpDef& op, Tensors in, const Attrs& attrs = {}, Role role = Role::none);
// For ops with one output.
inline Tensor apply1(const OpDef& op, Tensors in, const Attrs& attrs = {}, Role role = Role::none) {
  return std::move(apply(op, std::move(in), attrs, role)[0]);
}
// The part of apply() that a replay repeats: profile, launch. No checks, no recording, no
// allocation.
void launch_op(const Call& call);

// All ops, in the order of the documents (the lists: ops/ops.h, ops/pointwise/pointwise.h,
// ops/fused/fused.h).
std::span<const OpDef* const> all_ops();
// The ops of pointwise::List, each followed by its backward.
std::span<const OpDef* const> pointwise_ops();
// By name, or nullptr.
const OpDef* find_op(std::string_view name);

// An input that may be absent.
inline Tensor optional_input(Operands in, size_t i) { return i < in.size() ? in[i] : Tensor(); }
// Of the first defined one; the CPU if there is none.
Device device_of(Operands in);
// The elements of all of them together; none may be absent.
int64_t numel_of(Operands in);
// The elements of dims from..to-1 together.
int64_t numel_of_dims(const Tensor& t, int from, int to = kMaxRank);

// Helpers of shape rules and costs.
void check_defined(const char* op, std::string_view name, const Tensor& t);
// The hint is to cast b: an input, not the weight that it meets.
void check_same_dtype(const char* op, std::string_view name_a, const Tensor& a,
    std::string_view name_b, const Tensor& b);
void check_rank(const char* op, std::string_view name, const Tensor& t, int rank);
void check_dtype(const char* op, std::string_view name, const Tensor& t, DType wanted);
void check_floating(const char* op, std::string_view name, const Tensor& t);
void check_same_shape(const char* op, std::string_view name_a, const Tensor& a,
    std::string_view name_b, const Tensor& b);
// Of an operand that is changed in place: an undefined or strided tensor is refused.
void check_writable(const char* op, std::string_view name, const Tensor& t);
// Throws data unless every element of an i32 or i64 tensor is one of 0..n-1: "nll: label out of
// range: 7 in row 2 of i32[3] cpu; 5 classes are 0..4"; or is `none`, if there are any.
void check_range(const char* op, const char* what, const char* place, const Tensor& t,
    const char* things, int64_t n, int64_t none = 0);
// The type in which sums over bf16 are kept: f32; other types keep theirs.
constexpr DType wide(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }
// "nan at [3, 5]" or "inf at [3, 5]": the first NaN, or without one the first infinity; "" where
// all numbers are finite, or the tensor is undefined or not of a floating type.
std::string not_finite(const Tensor& t);
// "operand 1, 0.weight, has nan at [3, 5]", of the first that has one; "all are finite". Not looked
// at: what the op has changed in place.
std::string finiteness(const OpDef& op, Operands in);
// Distinct elements times their size: a broadcast (stride 0) dim counts once. 0 for an absent
// tensor.
int64_t bytes_of(const Tensor& t);
// Those of an operand that may be a scalar broadcast to a shape by zero strides: a constant of the
// step, which counts 0.
int64_t bytes_unless_broadcast(const Tensor& t);
// Every defined input read once, every output written once; in-place inputs of `op` written once
// more.
Cost cost_of(int64_t flops, Operands in, Operands out, const OpDef* op = nullptr);

// Deterministic test data: uniform in [low, high], f64, a pure function of (shape, seed).
Tensor sample_tensor(const Shape& shape, uint64_t seed, double low = -2, double high = 2);
Tensor sample_labels(int64_t n, int64_t classes, uint64_t seed);

}  // namespace sinter
