#include "capture/graph.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "capture/text.h"
#include "ops/fused/fused.h"
#include "ops/optim/update.h"
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

Device Graph::device() const {
  if (nodes.empty()) return values.empty() ? kCpu : device_of(0);
  return sinter::device_of(metas(nodes.front().in));
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

Cost Graph::cost() const {
  Cost all;
  for (const Node& node : nodes) all += cost(node);
  return all;
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

std::string Graph::names(const std::vector<int>& members) const {
  std::map<std::string_view, int> counts;
  for (const int m : members) ++counts[nodes[m].text()];
  std::string out;
  for (const int m : members) {
    const Node& node = nodes[m];
    int& count = counts[node.text()];
    if (count == 0) continue;
    out += out.empty() ? "" : ", ";
    if (!node.out.empty()) out += str("%", node.out[0], " ");
    out += node.text();
    if (count > 3) {
      out += str(" x", std::exchange(count, 0));
    } else if (node.out.empty() && !values[node.in[0]].name.empty()) {
      out += " of " + values[node.in[0]].name;
    }
  }
  return out;
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
    const Tensors inferred = node.op->results(metas(node.in), node.attrs);
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

namespace {

// "op 3, scale f32[64, 10] in MLP / layers.2 / Linear(512 -> 256), backward"
std::string place_of(const Graph& graph, size_t n) {
  const Node& node = graph.nodes[n];
  const std::string phases = text_of_phases(node);
  const int value = node.out.empty() ? node.in[0] : node.out[0];
  return str("op ", n, ", ", node.text(), value < 0 ? "" : " ",
      value < 0 ? "" : print_type(graph.values[value]), node.module.empty() ? "" : " in ",
      node.module, phases.empty() ? "" : ", ", phases);
}

std::string place_in_memory(const Value& v) {
  return str(
      print_type(v), " with strides ", v.strides.str(), " at ", v.offset, " of buffer ", v.buffer);
}

std::string difference_of_attrs(const Attrs& a, const Attrs& b, const Sides& sides) {
  const std::vector<AttrField> x = a.fields(), y = b.fields();
  std::string text;
  for (size_t i = 0; i < x.size(); ++i) {
    const std::string here = x[i].text(), there = y[i].text();
    if (here != there)
      text += str(text.empty() ? "" : "; ", x[i].name, " is ", here, " ", sides.a, ", ", there, " ",
          sides.b);
  }
  return text;
}

// Note [Constants of a step]
//   A tensor that the host makes inside a step, by Tensor::zeros() or from(), is told to nobody,
//   and is another one at each call. It is a constant if each recording finds the same elements in
//   it: each takes a copy, which is the graph's own whatever the function and the caller do with
//   theirs, and which a replay reads. So no op may change it: the next replay would go on with what
//   the last one left. One that is the same tensor at the next call is no constant, but state.
std::string difference_of_constants(const Graph& a, const Graph& b, int value, const Sides& sides) {
  const std::string what = a.meta(value).describe() + ", which the host makes in the step, ";
  if (a.changes_in_place(a.values[value].buffer))
    return what +
           "is changed in place: a replay would go on with what the last one left; let the "
           "op change a copy(..) of it";
  const Tensor &x = a.buffer_of(value).constant, &y = b.buffer_of(value).constant;
  if (x.device() == y.device() && x.to_vector<uint8_t>() == y.to_vector<uint8_t>()) return "";
  return str(what, "holds other elements ", sides.b, " than ", sides.a);
}

// Of a value that both know by one number.
std::string difference_of_memory(const Graph& a, const Graph& b, int value, const Sides& sides) {
  const Buffer &x = a.buffer_of(value), &y = b.buffer_of(value);
  if (x.kind != y.kind) return "";  // told by the value
  const auto bits = [](double number) { return std::bit_cast<uint64_t>(number); };
  if (x.kind == Buffer::Kind::constant && bits(x.value) != bits(y.value)) {
    return str("a constant, is ", print_value(x.value), " ", sides.a, ", ", print_value(y.value),
        " ", sides.b);
  }
  if (x.kind != Buffer::Kind::external || x.storage == y.storage) return "";
  if (x.constant.defined() && y.constant.defined())
    return difference_of_constants(a, b, value, sides);
  const std::string& name = a.values[value].name;
  return str(name, name.empty() ? "" : " ", a.meta(value).describe(),
      ", which no op produced, is another tensor ", sides.b);
}

}  // namespace

std::string difference(const Graph& a, const Graph& b, const Sides& sides) {
  const size_t n = std::min(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < n; ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    if (x.op != y.op || x.in != y.in || x.out != y.out || x.role != y.role) {
      return str(place_of(a, i), ": it is ", print_node(a, x), " ", sides.a, ", ", print_node(b, y),
          " ", sides.b);
    }
    std::string differs;
    if (!(x.attrs == y.attrs)) differs = difference_of_attrs(x.attrs, y.attrs, sides);
    for (size_t o = 0; differs.empty() && o < x.in.size(); ++o) {
      if (x.in[o] < 0) continue;
      differs = difference_of_memory(a, b, x.in[o], sides);
      if (!differs.empty()) differs = str("operand ", o, ", ", differs);
    }
    if (!differs.empty()) return str(place_of(a, i), ": ", differs);
  }
  if (a.nodes.size() != b.nodes.size()) {
    const Graph& longer = a.nodes.size() > n ? a : b;
    return str("there are ", a.nodes.size(), " ops ", sides.a, ", ", b.nodes.size(), " ", sides.b,
        "; the first one more is ", place_of(longer, n), ": ", print_node(longer, longer.nodes[n]));
  }
  for (size_t v = 0; v < std::min(a.values.size(), b.values.size()); ++v) {
    const Value& x = a.values[v];
    Value y = b.values[v];
    y.name = x.name;  // which may be given at any time
    if (!(x == y) || a.buffers[x.buffer].kind != b.buffers[y.buffer].kind) {
      return str("value %", v, " is ", place_in_memory(x), " ", sides.a, ", ", place_in_memory(y),
          " ", sides.b);
    }
    if (const std::string differs = difference_of_memory(a, b, int(v), sides); !differs.empty())
      return str("value %", v, ", ", differs);
  }
  if (a.values.size() != b.values.size() || a.outputs != b.outputs) return "the results differ";
  return "";
}

}  // namespace sinter::capture
