#include <optional>

#include "core/context.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "profiler/backward.h"

namespace sinter {
namespace {

profiler::StaticName shapes_of(Operands in) {
  profiler::ShapeText text;
  for (const Tensor& t : in) {
    if (t.defined()) text.add(name_of(t.dtype()), std::span(t.shape().begin(), t.shape().end()));
  }
  return text.intern();
}

// Throws unless `op` can take them. Returns whether any is a meta tensor.
bool check_inputs(const OpDef& op, Operands in) {
  const char* name = op.name.c_str();
  SINTER_CHECK(int(in.size()) >= op.min_inputs && int(in.size()) <= op.most_inputs(), shape,
      str(name, ": ", in.size(), " inputs given; it takes ", op.min_inputs, "..",
          op.most_inputs()));
  const Tensor* first = nullptr;
  bool meta = false;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].defined()) {
      SINTER_CHECK(int(i) >= op.min_inputs || op.in_place(), shape,
          str(name, ": input ", i, " is undefined; ",
              op.min_inputs == 1 ? "it" : str("each of its inputs 0..", op.min_inputs - 1),
              " must be a tensor"));
      continue;  // whether others may be absent is the shape rule's to say
    }
    const Storage& storage = *in[i].storage();
    if (!first) first = &in[i];
    meta |= !storage.has_bytes();
    SINTER_CHECK(storage.device() == first->device(), device,
        str(name, ": operands on two devices: ", first->describe(), " and ", in[i].describe(),
            " (input ", i, ")"));
  }
  SINTER_CHECK(first, shape, str(name, ": every input is undefined"));
  return meta;
}

// Describes the call to the open scope and runs its kernel.
void launch_in(profiler::Scope& scope, const Call& call) {
  scope.describe([&] {
    profiler::OpInfo info{
        .uid = profiler::next_op_uid(), .forward_uid = profiler::BackwardOf::current()};
    info.cost = call.op.view ? Cost{} : call.op.cost(call.in, call.out, call.attrs);
    info.role = call.role;
    info.module = profiler::intern(Context::current().module);
    info.shapes = shapes_of(call.in);
    return info;
  });
  if (call.op.view) return;
  const Device device = device_of(call.in);
  const Kernel kernel = call.op.kernel(device.type);
  SINTER_CHECK(kernel, not_built,
      str(call.op.label_of(call.attrs), ": not in this build: no kernel for ", device.str()));
  const profiler::KernelSpan span(device == kCpu);
  kernel(call);
}

}  // namespace

void launch_op(const Call& call) {
  profiler::Scope scope([&] { return call.op.label_of(call.attrs); }, profiler::ScopeKind::op);
  launch_in(scope, call);
}

Tensors apply(const OpDef& op, Tensors in, const Attrs& attrs, Role role) {
  Context& context = Context::current();
  try {
    const bool meta = check_inputs(op, in) || !context.launches;  // nothing is computed then
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i].defined() || in[i].is_contiguous()) continue;
      if (!op.view && !op.takes_strides(i, in.size(), attrs) && !op.writes_input(i, in.size()))
        in[i] = contiguous(in[i]);
    }
    std::optional<profiler::Scope> scope;
    if (!meta) scope.emplace([&] { return op.label_of(attrs); }, profiler::ScopeKind::op);
    Tensors out;
    if (op.view) {
      out.push_back(op.view(in, attrs));
    } else {
      out = op.results(in, attrs);
      SINTER_CHECK(op.cost && (op.in_place() || !out.empty()), usage,
          str(op.text(), ": its OpDef lacks .cost, or what it gives: .infer or .signature"));
      for (Tensor& t : out) t.allocate(meta);
    }
    if (op.in_place()) {
      for (const Recorder* recorder : context.recorders) recorder->check_in_place(op, in);
    }
    const Call call{op, in, out, attrs, role};
    if (!meta) launch_in(*scope, call);
    for (size_t i = 0; op.in_place() && i < in.size(); ++i) {
      if (!op.writes_input(i, in.size()) || !in[i].defined()) continue;
      SINTER_CHECK(!meta || !context.launches || in[i].is_meta(), state,
          str(op.text(), ": ", in[i].describe(), " (input ", i,
              ") would be changed by a meta tensor, which has no elements"),
          "a captured step runs its function on meta tensors at calls 2, 10, 100, ..: what lasts "
          "from call to call is to be made before the step, or at its first call");
      in[i].storage()->bump_version(op.name.c_str());
    }
    for (Recorder* recorder : context.recorders) recorder->record(call);
    return out;
  } catch (Error& error) {
    if (*context.module) error.set_path(context.module);
    throw;
  }
}

}  // namespace sinter
