#include "capture/graph.h"

#include <algorithm>

namespace sinter::capture {
namespace {

// First and one-past-last element that a value can touch.
std::pair<int64_t, int64_t> extent(const Value& v) {
  if (v.shape.numel() == 0) return {0, 0};
  int64_t last = v.offset;
  for (int d = 0; d < v.shape.rank(); ++d) last += (v.shape[d] - 1) * v.strides[d];
  const int64_t size = static_cast<int64_t>(size_of(v.dtype));
  return {v.offset * size, (last + 1) * size};
}

}  // namespace

bool stands_for(const Node& node, const std::vector<int>& origin) {
  return std::includes(origin.begin(), origin.end(), node.origin.begin(), node.origin.end());
}

bool Node::reads(int value) const { return std::find(in.begin(), in.end(), value) != in.end(); }

int Graph::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return static_cast<int>(buffers.size()) - 1;
}

int Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<int>(values.size()) - 1;
}

int Graph::add_local(const Shape& shape, DType dtype, Device device) {
  const int buffer = add_buffer({.device = device, .bytes = static_cast<size_t>(shape.numel()) * size_of(dtype)});
  return add_value({.buffer = buffer, .dtype = dtype, .shape = shape, .strides = contiguous_strides(shape)});
}

Tensor Graph::meta(int value) const {
  if (value < 0) return {};
  const Value& v = values[value];
  Tensor t = Tensor::meta(v.shape, v.dtype, device_of(value));
  return v.contiguous() && v.offset == 0 ? t : t.with_layout(v.contiguous() ? t.strides() : v.strides, v.offset);
}

Tensors Graph::metas(const std::vector<int>& ids) const {
  Tensors out;
  for (const int id : ids) out.push_back(meta(id));
  return out;
}

Cost Graph::cost(const Node& node) const { return node.op->cost(metas(node.in), metas(node.out), node.attrs); }

bool Graph::overlap(int a, int b) const {
  if (a < 0 || b < 0 || values[a].buffer != values[b].buffer) return false;
  const auto [a0, a1] = extent(values[a]);
  const auto [b0, b1] = extent(values[b]);
  return a0 < b1 && b0 < a1;
}

bool Graph::writes(const Node& node, int value) const {
  for (const int out : node.out) {
    if (overlap(out, value)) return true;
  }
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (node.op->writes_input(i, node.in.size()) && overlap(node.in[i], value)) return true;
  }
  return false;
}

bool Graph::reads(const Node& node, int value) const {
  return std::any_of(node.in.begin(), node.in.end(), [&](int in) { return overlap(in, value); });
}

bool Graph::conflict(const Node& a, const Node& b) const {
  const auto hits = [&](const Node& writer, const Node& other) {
    const auto touched = [&](int value) { return reads(other, value) || writes(other, value); };
    for (const int out : writer.out) {
      if (touched(out)) return true;
    }
    for (size_t i = 0; i < writer.in.size(); ++i) {
      if (writer.in[i] >= 0 && writer.op->writes_input(i, writer.in.size()) && touched(writer.in[i])) return true;
    }
    return false;
  };
  return hits(a, b) || hits(b, a);
}

std::vector<int> Graph::readers(int value) const {
  std::vector<int> out;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (reads(nodes[n], value)) out.push_back(static_cast<int>(n));
  }
  return out;
}

int Graph::producer(int value) const {
  for (size_t n = nodes.size(); n-- > 0;) {
    if (std::find(nodes[n].out.begin(), nodes[n].out.end(), value) != nodes[n].out.end()) return static_cast<int>(n);
  }
  return -1;
}

bool Graph::is_output(int value) const {
  return std::any_of(outputs.begin(), outputs.end(), [&](int out) { return overlap(out, value); });
}

int Graph::eliminate_dead() {
  int gone = 0;
  for (size_t n = nodes.size(); n-- > 0;) {
    const Node& node = nodes[n];
    if (node.op->in_place()) continue;
    const bool used = std::any_of(node.out.begin(), node.out.end(), [&](int out) {
      const bool grad = std::any_of(gradients.begin(), gradients.end(), [&](const Gradient& g) { return overlap(g.grad, out); });
      return grad || is_output(out) || !readers(out).empty();
    });
    if (!used) nodes.erase(nodes.begin() + static_cast<int64_t>(n)), ++gone;
  }
  return gone;
}

int Graph::eliminate_duplicates() {
  int gone = 0;
  for (size_t a = 0; a < nodes.size(); ++a) {
    if (nodes[a].op->in_place()) continue;
    for (size_t b = a + 1; b < nodes.size();) {
      const Node &first = nodes[a], &second = nodes[b];
      bool same = first.op == second.op && first.in == second.in && first.attrs == second.attrs;
      // Nothing between them may change what both read; and each result must own its memory, as in-place ops may follow.
      for (size_t k = a + 1; same && k < nodes.size(); ++k) {
        for (const int in : first.in) same = same && !(k < b && in >= 0 && writes(nodes[k], in));
        for (const std::vector<int>* outs : {&first.out, &second.out}) {
          for (const int out : *outs) same = same && !(k != b && writes(nodes[k], out));
        }
      }
      for (const int out : second.out) same = same && !is_output(out);
      for (const Gradient& g : gradients) {
        for (const int out : second.out) same = same && !overlap(g.grad, out);
      }
      if (!same) {
        ++b;
        continue;
      }
      for (size_t o = 0; o < second.out.size(); ++o) {
        const int from = values[second.out[o]].buffer, to = values[first.out[o]].buffer;
        for (Value& v : values) {
          if (v.buffer == from) v.buffer = to;
        }
        for (Node& node : nodes) std::replace(node.in.begin(), node.in.end(), second.out[o], first.out[o]);
      }
      nodes.erase(nodes.begin() + static_cast<int64_t>(b));
      ++gone;
    }
  }
  return gone;
}

void Graph::verify(const char* after) const {
  std::vector<char> written(buffers.size(), 0);
  for (size_t b = 0; b < buffers.size(); ++b) written[b] = buffers[b].kind != Buffer::Kind::local;
  for (const Node& node : nodes) {
    for (const int in : node.in) {
      if (in < 0) continue;
      SINTER_ASSERT(static_cast<size_t>(in) < values.size(), after, ": no value %", in);
      SINTER_ASSERT(written[values[in].buffer], after, ": ", print_node(*this, node), " reads %", in, " before it is made");
    }
    const Tensors inferred = node.op->infer ? node.op->infer(metas(node.in), node.attrs) : Tensors{};
    SINTER_ASSERT(inferred.size() == node.out.size(), after, ": ", print_node(*this, node), " should have ", inferred.size(), " results");
    for (size_t o = 0; o < node.out.size(); ++o) {
      const Value& v = values[node.out[o]];
      SINTER_ASSERT(v.shape == inferred[o].shape() && v.dtype == inferred[o].dtype(), after, ": ", print_node(*this, node), " result ", o,
                    " should be ", inferred[o].describe());
      SINTER_ASSERT(v.contiguous(), after, ": ", print_node(*this, node), " result ", o, " is not dense");
      written[v.buffer] = 1;
    }
  }
  for (const int out : outputs) SINTER_ASSERT(written[values[out].buffer], after, ": output %", out, " is never made");
}

std::string difference(const Graph& a, const Graph& b) {
  const size_t n = std::min(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < n; ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    const bool same = x.op == y.op && x.attrs == y.attrs && x.in == y.in && x.out == y.out && x.role == y.role;
    if (!same) return cat("op ", i, " is ", print_node(a, x), " in the first recording, ", print_node(b, y), " in the second");
  }
  if (a.nodes.size() != b.nodes.size()) {
    const Graph& longer = a.nodes.size() > n ? a : b;
    return cat("the first recording has ", a.nodes.size(), " ops, the second ", b.nodes.size(), "; the extra one is ", print_node(longer, longer.nodes[n]));
  }
  for (size_t v = 0; v < std::min(a.values.size(), b.values.size()); ++v) {
    const Buffer &x = a.buffers[a.values[v].buffer], &y = b.buffers[b.values[v].buffer];
    if (!(a.values[v] == b.values[v]) || x.kind != y.kind) {
      return cat("value %", v, " is ", a.meta(static_cast<int>(v)).describe(), " in the first recording, ", b.meta(static_cast<int>(v)).describe(), " in the second");
    }
    if (x.kind == Buffer::Kind::constant && x.value != y.value) return cat("a constant is ", print_value(x.value), " in the first recording, ", print_value(y.value), " in the second");
    if (x.kind == Buffer::Kind::external && x.storage != y.storage) {
      return cat("the step makes a tensor that no op produced, anew each time: ", a.values[v].name, " ", a.meta(static_cast<int>(v)).describe());
    }
  }
  if (a.values.size() != b.values.size() || a.outputs != b.outputs) return "the results differ";
  return "";
}

}  // namespace sinter::capture
