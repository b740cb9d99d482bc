#include <algorithm>
#include <optional>

#include "core/context.h"
#include "core/rng.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "profiler/backward.h"

namespace sinter {
namespace {

uint32_t shape_key_of(Operands in) {
  profiler::ShapeKey key;
  for (const Tensor& t : in) {
    if (t.defined()) key.add(name_of(t.dtype()), std::span(t.shape().begin(), t.shape().end()));
  }
  return key.intern();
}

void check_inputs(const OpDef& op, Operands in) {
  const char* name = op.name.c_str();
  SINTER_CHECK(
      static_cast<int>(in.size()) >= op.min_inputs && static_cast<int>(in.size()) <= op.max_inputs,
      shape,
      cat(name, ": ", in.size(), " inputs given; it takes ", op.min_inputs, "..", op.max_inputs));
  const Tensor* first = nullptr;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].defined()) {
      SINTER_CHECK(static_cast<int>(i) >= op.min_inputs || op.in_place(), shape,
          cat(name, ": input ", i, " is undefined; its inputs 0..", op.min_inputs - 1,
              " must be tensors"));
      continue;  // whether others may be absent is the shape rule's to say
    }
    if (!first) first = &in[i];
    SINTER_CHECK(in[i].device() == first->device(), device,
        cat(name, ": operands on two devices: ", first->describe(), " and ", in[i].describe(),
            " (input ", i, ")"));
  }
  SINTER_CHECK(first, shape, cat(name, ": every input is undefined"));
}

// Describes the call to the open scope and runs its kernel.
void launch_in(profiler::Scope& scope, const Call& call) {
  scope.describe([&] {
    profiler::OpInfo info{
        .uid = profiler::next_op_uid(), .forward_uid = profiler::BackwardOf::current()};
    info.cost = call.op.view ? Cost{} : call.op.cost(call.in, call.out, call.attrs);
    info.role = call.role;
    info.shape_key = shape_key_of(call.in);
    return info;
  });
  if (call.op.view) return;
  Device device = kCpu;
  for (const Tensor& t : call.in) {
    if (t.defined()) device = t.device();
  }
  const Kernel kernel = call.op.kernel(device.type);
  SINTER_CHECK(
      kernel, not_built, cat(call.op.text(), ": not in this build: no kernel for ", device.str()));
  const profiler::KernelSpan span(device == kCpu);
  kernel(call);
}

}  // namespace

void launch_op(const Call& call) {
  profiler::Scope scope(call.op.name, profiler::ScopeKind::op);
  launch_in(scope, call);
}

namespace {

bool any_meta(Operands in) {
  return std::any_of(in.begin(), in.end(), [](const Tensor& t) { return t.is_meta(); });
}

}  // namespace

Tensors apply(const OpDef& op, Tensors in, const Attrs& attrs, Role role) {
  Context& context = Context::current();
  try {
    check_inputs(op, in);
    for (size_t i = 0; i < in.size(); ++i) {
      const bool any_strides =
          op.view || op.takes_strides(i, in.size()) || op.writes_input(i, in.size());
      if (!any_strides && in[i].defined() && !in[i].is_contiguous()) in[i] = contiguous(in[i]);
    }
    const bool meta = any_meta(in);
    std::optional<profiler::Scope> scope;
    if (!meta) scope.emplace(op.name, profiler::ScopeKind::op);
    Tensors out;
    if (op.view) {
      out.push_back(op.view(in, attrs));
    } else if (op.infer) {
      out = op.infer(in, attrs);
      for (Tensor& t : out) {
        t = meta ? Tensor::meta(t.shape(), t.dtype(), t.device())
                 : Tensor::empty(t.shape(), t.dtype(), t.device());
      }
    }
    if (op.in_place()) {
      for (const Recorder* recorder : context.recorders) recorder->check_in_place(op, in);
    }
    const Call call{op, in, out, attrs, role};
    if (!meta) launch_in(*scope, call);
    for (size_t i = 0; i < in.size(); ++i) {
      if (op.writes_input(i, in.size()) && in[i].defined())
        in[i].storage()->bump_version(op.name.c_str());
    }
    for (Recorder* recorder : context.recorders) recorder->record(call);
    return out;
  } catch (Error& error) {
    if (!context.module_labels.empty()) error.set_path(context.module_path());
    throw;
  }
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef* op : all_ops()) {
    if (op->text() == name) return op;
  }
  return nullptr;
}

void check_defined(const char* op, const char* name, const Tensor& t) {
  SINTER_CHECK(t.defined(), shape, cat(op, ": ", name, " is undefined; a tensor is wanted"));
}

void check_same_dtype(
    const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  SINTER_CHECK(a.dtype() == b.dtype(), dtype,
      cat(op, ": element types differ: ", describe({{name_a, &a}, {name_b, &b}}), "; ", name_a,
          " is ", name_of(a.dtype()), ", ", name_b, " is ", name_of(b.dtype())),
      cat("cast(", name_b, ", DType::", name_of(a.dtype()), ")"));
}

void check_rank(const char* op, const char* name, const Tensor& t, int rank) {
  SINTER_CHECK(t.defined() && t.rank() == rank, shape,
      cat(op, ": wrong rank: ", name, " is ", t.describe(), "; ", name, " must have ", rank,
          " dims, it has ", t.defined() ? t.rank() : 0));
}

void check_dtype(const char* op, const char* name, const Tensor& t, DType wanted) {
  SINTER_CHECK(t.defined() && t.dtype() == wanted, dtype,
      cat(op, ": wrong element type: ", name, " is ", t.describe(), "; it must be ",
          name_of(wanted)));
}

void check_floating(const char* op, const char* name, const Tensor& t) {
  SINTER_CHECK(t.defined() && is_float(t.dtype()), dtype,
      cat(op, ": a floating type is wanted: ", name, " is ", t.describe(),
          "; allowed f32, f64, bf16"));
}

int64_t bytes_of(const Tensor& t) {
  if (!t.defined()) return 0;
  int64_t n = t.numel() == 0 ? 0 : 1;
  for (int d = 0; d < t.rank(); ++d) n *= t.strides()[d] == 0 ? 1 : t.size(d);
  return n * static_cast<int64_t>(size_of(t.dtype()));
}

Cost cost_of(int64_t flops, Operands in, Operands out, const OpDef* op) {
  Cost cost{.flops = flops};
  for (size_t i = 0; i < in.size(); ++i) {
    cost.bytes_read += bytes_of(in[i]);
    if (op && op->writes_input(i, in.size())) cost.bytes_written += bytes_of(in[i]);
  }
  for (const Tensor& t : out) cost.bytes_written += bytes_of(t);
  return cost;
}

Tensor sample_tensor(const Shape& shape, uint64_t seed, double low, double high) {
  Tensor t = Tensor::empty(shape, DType::f64);
  double* p = t.data<double>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double u =
        (static_cast<double>(philox_word(seed, 77, static_cast<uint64_t>(i))) + 0.5) * 0x1p-32;
    p[i] = low + (high - low) * u;
  }
  return t;
}

Tensor sample_labels(int64_t n, int64_t classes, uint64_t seed) {
  Tensor t = Tensor::empty({n}, DType::i32);
  for (int64_t i = 0; i < n; ++i)
    t.data<int32_t>()[i] = static_cast<int32_t>(
        philox_word(seed, 78, static_cast<uint64_t>(i)) % static_cast<uint64_t>(classes));
  return t;
}

}  // namespace sinter
