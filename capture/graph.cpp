#include "capture/graph.h"

#include <algorithm>

#include "ops/fused/fused.h"
#include "ops/update.h"
#include "profiler/phase.h"

namespace sinter::capture {
namespace {

Extent extent_of(DType dtype, const Shape& shape, const Strides& strides, int64_t offset) {
  const int64_t size = int64_t(size_of(dtype));
  return {offset * size, (offset + sinter::extent_of(shape, strides)) * size};
}

// Where an update that is not the last of its step has the step's state, which it reads only; -1
// for all other nodes.
int state_read_only(const Node& node) {
  if (node.op->attrs != attr_type<UpdateAttrs>() || node.attrs.as<UpdateAttrs>().tail) return -1;
  return int(node.in.size() - kStepOperands);
}

}  // namespace

Extent extent_of(const Tensor& t) {
  return extent_of(t.dtype(), t.shape(), t.strides(), t.offset());
}
Extent extent_of(const Value& v) { return extent_of(v.dtype, v.shape, v.strides, v.offset); }

std::string text_of_phases(const Node& node) {
  std::string text;
  for (size_t i = 1; i < std::size(profiler::kPhaseNames); ++i) {
    if (node.phases >> i & 1)
      text.append(text.empty() ? "" : " + ").append(profiler::kPhaseNames[i]);
  }
  return text;
}

bool stands_for(const Node& node, const std::vector<int>& origin) {
  return std::ranges::includes(origin, node.origin);
}

bool Node::reads(int value) const { return std::ranges::find(in, value) != in.end(); }

bool Node::writes_operand(size_t i) const {
  return op->writes_input(i, in.size()) && int(i) != state_read_only(*this);
}

int Graph::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return int(buffers.size()) - 1;
}

int Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return int(values.size()) - 1;
}

int Graph::add_local(const Shape& shape, DType dtype, Device device) {
  const int buffer =
      add_buffer({.device = device, .bytes = size_t(shape.numel()) * size_of(dtype)});
  return add_value(
      {.buffer = buffer, .dtype = dtype, .shape = shape, .strides = contiguous_strides(shape)});
}

Tensor Graph::meta(int value) const {
  if (value < 0) return {};
  const Value& v = values[value];
  Tensor t = Tensor::meta(v.shape, v.dtype, device_of(value));
  return v.contiguous() && v.offset == 0
             ? t
             : t.with_layout(v.contiguous() ? t.strides() : v.strides, v.offset);
}

Tensors Graph::metas(const std::vector<int>& ids) const {
  Tensors out;
  for (const int id : ids) out.push_back(meta(id));
  return out;
}

Cost Graph::cost(const Node& node) const {
  return node.op->cost(metas(node.in), metas(node.out), node.attrs);
}

bool Graph::overlap(int a, int b) const {
  if (a < 0 || b < 0 || values[a].buffer != values[b].buffer) return false;
  if (values[a].shape.numel() == 0 || values[b].shape.numel() == 0) return true;
  return extent_of(values[a]).overlaps(extent_of(values[b]));
}

bool Graph::writes(const Node& node, int value) const {
  const auto overlaps = [&](int written) { return overlap(written, value); };
  return std::ranges::any_of(node.out, overlaps) || node.any_written(overlaps);
}

bool Graph::reads(const Node& node, int value) const {
  return std::ranges::any_of(node.in, [&](int in) { return overlap(in, value); });
}

bool Graph::conflict(const Node& a, const Node& b) const {
  const auto hits = [&](const Node& writer, const Node& other) {
    const auto touched = [&](int value) { return reads(other, value) || writes(other, value); };
    return std::ranges::any_of(writer.out, touched) || writer.any_written(touched);
  };
  return hits(a, b) || hits(b, a);
}

size_t Graph::launches() const {
  return size_t(
      std::ranges::count_if(nodes, [](const Node& node) { return node.role != Role::data; }));
}

bool Graph::changes_in_place(int buffer) const {
  const auto lies_there = [&](int value) { return values[value].buffer == buffer; };
  return std::ranges::any_of(nodes, [&](const Node& node) { return node.any_written(lies_there); });
}

void Graph::verify(const char* after, const std::vector<char>& unchanged) const {
  std::vector<char> written(buffers.size(), 0);
  for (size_t b = 0; b < buffers.size(); ++b) written[b] = buffers[b].kind != Buffer::Kind::local;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    for (const int in : node.in) {
      if (in < 0) continue;
      SINTER_ASSERT(size_t(in) < values.size(), after, ": no value %", in);
      SINTER_ASSERT(written[values[in].buffer], after, ": ", print_node(*this, node), " reads %",
          in, " before it is made");
    }
    for (const int out : node.out) written[values[out].buffer] = 1;
    if (n < unchanged.size() && unchanged[n]) continue;
    const Tensors inferred =
        node.op->infer ? node.op->infer(metas(node.in), node.attrs) : Tensors{};
    SINTER_ASSERT(inferred.size() == node.out.size(), after, ": ", print_node(*this, node),
        " should have ", inferred.size(), " results");
    for (size_t o = 0; o < node.out.size(); ++o) {
      const Value& v = values[node.out[o]];
      SINTER_ASSERT(v.shape == inferred[o].shape() && v.dtype == inferred[o].dtype(), after, ": ",
          print_node(*this, node), " result ", o, " should be ", inferred[o].describe());
      SINTER_ASSERT(
          v.contiguous(), after, ": ", print_node(*this, node), " result ", o, " is not dense");
    }
  }
  for (const int out : outputs)
    SINTER_ASSERT(written[values[out].buffer], after, ": output %", out, " is never made");
}

std::string difference(const Graph& a, const Graph& b) {
  const size_t n = std::min(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < n; ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    const bool same =
        x.op == y.op && x.attrs == y.attrs && x.in == y.in && x.out == y.out && x.role == y.role;
    if (!same)
      return cat("op ", i, " is ", print_node(a, x), " in the first recording, ", print_node(b, y),
          " in the second");
  }
  if (a.nodes.size() != b.nodes.size()) {
    const Graph& longer = a.nodes.size() > n ? a : b;
    return cat("the first recording has ", a.nodes.size(), " ops, the second ", b.nodes.size(),
        "; the extra one is ", print_node(longer, longer.nodes[n]));
  }
  for (size_t v = 0; v < std::min(a.values.size(), b.values.size()); ++v) {
    const Buffer &x = a.buffers[a.values[v].buffer], &y = b.buffers[b.values[v].buffer];
    if (!(a.values[v] == b.values[v]) || x.kind != y.kind) {
      return cat("value %", v, " is ", a.meta(int(v)).describe(), " in the first recording, ",
          b.meta(int(v)).describe(), " in the second");
    }
    if (x.kind == Buffer::Kind::constant && x.value != y.value)
      return cat("a constant is ", print_value(x.value), " in the first recording, ",
          print_value(y.value), " in the second");
    if (x.kind == Buffer::Kind::external && x.storage != y.storage) {
      return cat("the step makes a tensor that no op produced, anew each time: ", a.values[v].name,
          " ", a.meta(int(v)).describe());
    }
  }
  if (a.values.size() != b.values.size() || a.outputs != b.outputs) return "the results differ";
  return "";
}

}  // namespace sinter::capture
