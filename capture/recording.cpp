#include "capture/recording.h"

#include <algorithm>

#include "core/context.h"
#include "ops/step_state.h"

namespace sinter::capture {
namespace {

thread_local bool recording_now = false;

std::string layout(const Tensor& t) { return t.shape().str() + t.strides().str(); }

}  // namespace

Recording::Recording(const Tensors& inputs) {
  SINTER_CHECK(!recording_now, state, "capture: a captured step inside a captured step; only the outer one can be replayed",
               "call the inner step's function directly");
  recording_now = true;
  restart_random_ops();
  Context& context = Context::current();
  reads_forbidden_before_ = context.host_reads_forbidden;
  context.host_reads_forbidden = "a captured step";
  context.recorders.push_back(this);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    const int64_t size = static_cast<int64_t>(size_of(t.dtype())), begin = t.offset() * size;
    int64_t last = 0;
    for (int d = 0; d < t.rank(); ++d) last += (t.size(d) - 1) * t.strides()[d];
    const int64_t bytes = t.numel() ? (last + 1) * size : 0;
    const int buffer = graph_.add_buffer({.kind = Buffer::Kind::input, .device = t.device(), .bytes = static_cast<size_t>(bytes)});
    inputs_.push_back({t.storage()->uid(), begin, begin + bytes, buffer});
    const int value = value_of(t);
    Value& v = graph_.values[value];
    if (v.name.empty()) v.name = t.has_autograd() && !t.autograd().name.empty() ? t.autograd().name : inputs.size() == 1 ? "x" : cat("x", i);
    graph_.inputs.push_back(value);
  }
}

Recording::~Recording() {
  Context& context = Context::current();
  std::erase(context.recorders, this);
  context.host_reads_forbidden = reads_forbidden_before_;
  recording_now = false;
}

std::pair<int, int64_t> Recording::buffer_of(const Tensor& t) {
  const uint64_t uid = t.storage()->uid();
  const int64_t at = t.offset() * static_cast<int64_t>(size_of(t.dtype()));
  for (const Input& in : inputs_) {
    if (in.storage == uid && at >= in.begin && (at < in.end || in.begin == in.end)) return {in.buffer, in.begin};
  }
  const auto [it, fresh] = buffers_.try_emplace(uid, static_cast<int>(graph_.buffers.size()));
  if (!fresh) return {it->second, 0};
  Buffer buffer{.kind = Buffer::Kind::external, .device = t.device(), .bytes = t.storage()->bytes(), .storage = t.storage()};
  if (t.has_autograd() && t.autograd().name == kConstantName) {
    buffer.kind = Buffer::Kind::constant;
    buffer.value = Tensor::view_of(t.storage(), t.dtype(), {}, {}, 0).to_double();
  }
  return {graph_.add_buffer(std::move(buffer)), 0};
}

int Recording::value_of(const Tensor& t) {
  if (!t.defined()) return -1;
  const auto [it, fresh] = values_.try_emplace(Key{t.storage()->uid(), t.offset(), t.dtype(), layout(t)}, static_cast<int>(graph_.values.size()));
  if (fresh) {
    const auto [buffer, begin] = buffer_of(t);
    graph_.add_value({.buffer = buffer,
                      .dtype = t.dtype(),
                      .shape = t.shape(),
                      .strides = t.strides(),
                      .offset = t.offset() - begin / static_cast<int64_t>(size_of(t.dtype())),
                      .name = t.has_autograd() ? t.autograd().name : ""});
  }
  return it->second;
}

void Recording::record(const Call& call) {
  if (call.op.view) return;  // views are values
  Node node{.op = &call.op, .attrs = call.attrs, .in = {}, .out = {}, .role = call.role, .module = Context::current().module_path(), .origin = {}};
  for (const Tensor& t : call.in) node.in.push_back(value_of(t));
  for (const Tensor& t : call.out) {
    buffers_[t.storage()->uid()] = graph_.add_buffer({.device = t.device(), .bytes = t.storage()->bytes()});
    node.out.push_back(value_of(t));
  }
  node.origin.push_back(static_cast<int>(graph_.nodes.size()));
  graph_.nodes.push_back(std::move(node));
}

Graph Recording::finish(const Tensors& outputs, const Tensors& parameters) {
  for (const Tensor& t : outputs) graph_.outputs.push_back(value_of(t));
  for (const Tensor& t : parameters) {
    if (!t.has_autograd() || !t.autograd().grad.defined()) continue;
    const auto known = buffers_.find(t.autograd().grad.storage()->uid());
    if (known == buffers_.end() || graph_.buffers[known->second].kind != Buffer::Kind::local) continue;
    graph_.gradients.push_back({value_of(t), value_of(t.autograd().grad)});
  }
  graph_.verify("recording");
  return std::move(graph_);
}

}  // namespace sinter::capture
