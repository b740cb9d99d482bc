#include "ops/fused/reference.h"

#include <algorithm>
#include <map>

#include "core/context.h"
#include "ops/ops.h"

namespace sinter {
namespace {

Tensor meta_of(const Tensor& t) {
  if (!t.defined()) return {};
  const Tensor dense = Tensor::meta(t.shape(), t.dtype(), t.device());
  return t.is_contiguous() ? dense : dense.with_layout(t.strides(), 0);
}

// Hears the ops of a reference in place of all other recorders.
class Tracer : public Recorder {
 public:
  explicit Tracer(Trace& trace) : trace_(trace) {
    Context::current().recorders.swap(others_);
    Context::current().recorders.push_back(this);
  }
  ~Tracer() override { Context::current().recorders.swap(others_); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  void record(const Call& call) override {
    trace_.ops.push_back({&call.op, call.attrs, Tensors(call.in.begin(), call.in.end()),
        Tensors(call.out.begin(), call.out.end()), call.role});
  }

 private:
  Trace& trace_;
  std::vector<Recorder*> others_;
};

// The bytes of one operand or result. A number for all rows stays in a register.
int64_t moved_bytes(const Tensor& t) {
  if (!t.defined()) return 0;
  return t.rank() == 1 ? bytes_unless_broadcast(t) : bytes_of(t);
}

Cost cost_of_trace(const Trace& trace) {
  Cost cost;
  for (const TracedOp& op : trace.ops) {
    if (!op.op->view) cost.flops += op.op->cost(op.in, op.out, op.attrs).flops;
  }
  for (const Tensor& t : trace.operands) cost.bytes_read += moved_bytes(t);
  for (const Tensor& t : trace.results) cost.bytes_written += moved_bytes(t);
  return cost;
}

struct Derived {
  Attrs attrs;
  std::vector<std::pair<Shape, DType>> results;
  Cost cost;
};

// All that the answer depends on but for the attributes.
std::vector<int64_t> signature_of(Operands in) {
  const Device device = device_of(in);
  std::vector<int64_t> key{int64_t(device.type), device.index};
  for (const Tensor& t : in) {
    if (!t.defined()) {
      key.push_back(-1);
      continue;
    }
    key.insert(key.end(), {t.rank(), int64_t(t.dtype())});
    key.insert(key.end(), t.shape().begin(), t.shape().end());
    key.insert(key.end(), t.strides().begin(), t.strides().end());
  }
  return key;
}

Derived derive(const OpDef& op, Operands in, const Attrs& attrs) {
  try {
    const Trace trace = trace_reference(op, in, attrs);
    const std::string why = op.limit ? op.limit(in, attrs) : "";
    SINTER_CHECK(why.empty(), shape, why);
    Derived derived{.attrs = attrs, .results = {}, .cost = cost_of_trace(trace)};
    for (const Tensor& t : trace.results) derived.results.emplace_back(t.shape(), t.dtype());
    return derived;
  } catch (const Error& error) {
    std::string operands;
    for (const Tensor& t : in) operands += (operands.empty() ? "" : ", ") + t.describe();
    throw Error(error.kind(),
        str(op.label_of(attrs), ": operands do not fit: ", operands, "; ", error.message()),
        error.hint());
  }
}

const Derived& derived(const OpDef& op, Operands in, const Attrs& attrs) {
  constexpr size_t kMost = 1024;
  using Key = std::pair<const OpDef*, std::vector<int64_t>>;
  static thread_local std::map<Key, std::vector<Derived>> known;
  const Key key{&op, signature_of(in)};
  for (const Derived& d : known[key]) {
    if (d.attrs == attrs) return d;
  }
  Derived made = derive(op, in, attrs);  // of other ops, too: `known` may have grown
  if (known.size() > kMost || known[key].size() > kMost) known.clear();
  std::vector<Derived>& list = known[key];
  list.push_back(std::move(made));
  return list.back();
}

}  // namespace

Trace trace_reference(const OpDef& op, Operands in, const Attrs& attrs) {
  Trace trace;
  for (const Tensor& t : in) trace.operands.push_back(meta_of(t));
  const Tracer tracer(trace);
  trace.results = op.reference(trace.operands, attrs);
  return trace;
}

Tensors call_fused(const OpDef& op, const Tensors& in, const Attrs& attrs) {
  return in[0].is_meta() ? apply(op, in, attrs) : op.reference(in, attrs);
}

Tensors infer_by_reference(const OpDef& op, Operands in, const Attrs& attrs) {
  Tensors out;
  for (const auto& [shape, dtype] : derived(op, in, attrs).results)
    out.push_back(Tensor::shape_only(shape, dtype, device_of(in)));
  return out;
}

Cost cost_by_reference(const OpDef& op, Operands in, const Attrs& attrs) {
  return derived(op, in, attrs).cost;
}

}  // namespace sinter
