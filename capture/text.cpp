#include "capture/text.h"

#include <algorithm>
#include <set>

namespace sinter::capture {
namespace {

std::string number_of(int value) { return value < 0 ? "-" : str("%", value); }
std::string numbers_of(const std::vector<int>& values) {
  std::string out;
  for (const int value : values) out += str(out.empty() ? "" : ", ", number_of(value));
  return out;
}
// Quotes, backslashes and control bytes as \xNN.
std::string quoted(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? "\\x22" : c == '\\' ? "\\x5c" : escaped({&c, 1});
  return out + "\"";
}

// Numbers the values and writes the lines.
class Lister {
 public:
  explicit Lister(const Graph& graph);
  Listing out;

 private:
  std::vector<int> find_roots();
  void add_root(int value);
  void add_node(Node node);
  // Adds a value that no op makes, with its line.
  void define(int value, Value placed, const std::string& what);
  // The number of a value; at its first use its line: that of a constant or a view.
  int use(int value);

  const Graph& graph_;
  std::vector<std::vector<int>> roots_;  // per buffer: values that views may refer to
  std::vector<char> used_;               // per value
  std::set<std::string> names_;          // given out
};

// Note [Roots of a graph file]
//   A file knows no storage, only values, and a value that lies in another's memory is written as a
//   view of it. Something has to be there first: the roots.
//
//       %0 = input "x" f32[64, 784]
//       %1 = param "layers.0.weight" f32[256, 784]
//       %5 = view(%1) f32[784, 256] strides=[1,784]
//
//   Inputs are roots, in their order. In memory from outside every value with a name is one, since
//   the reader looks it up by that name, and all others are views of one that holds them; where
//   none has a name, the first value in use stands for the memory. What no root holds (a rule has
//   joined two parameters, say) is a view beyond its root: for people, read_graph() refuses it.
std::vector<int> Lister::find_roots() {
  std::vector<char> used_buffer(graph_.buffers.size(), 0);
  const auto mark = [&](int value) {
    if (value >= 0) used_[value] = used_buffer[graph_.values[value].buffer] = 1;
  };
  for (const Node& node : graph_.nodes) {
    std::ranges::for_each(node.in, mark);
    std::ranges::for_each(node.out, mark);
  }
  std::ranges::for_each(graph_.outputs, mark);
  for (const Graph::Gradient& g : graph_.gradients) {
    mark(g.param);
    mark(g.grad);
  }
  std::vector<int> all;
  const auto add = [&](int value) {
    std::vector<int>& roots = roots_[graph_.values[value].buffer];
    if (std::ranges::find(roots, value) != roots.end()) return;
    roots.push_back(value);
    all.push_back(value);
  };
  std::ranges::for_each(graph_.inputs, add);
  for (const bool named : {true, false}) {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (graph_.buffers[value.buffer].kind != Buffer::Kind::external) continue;
      const bool is_root = named ? !value.name.empty() && used_buffer[value.buffer]
                                 : used_[v] && roots_[value.buffer].empty();
      if (is_root) add(int(v));
    }
  }
  return all;
}

void Lister::define(int value, Value placed, const std::string& what) {
  const int number = out.numbers[value] = int(out.graph.values.size());
  std::string line = str(number_of(number), " = ", what, " ", print_type(placed));
  const bool constant = graph_.buffer_of(value).kind == Buffer::Kind::constant;
  if (placed.contiguous() && !constant) placed.strides = contiguous_strides(placed.shape);
  if (!placed.contiguous() && !constant) line += " strides=" + print_value(placed.strides);
  if (placed.offset != 0) line += str(" offset=", placed.offset);
  out.lines.push_back(std::move(line));
  out.graph.add_value(std::move(placed));
}

int Lister::use(int value) {
  if (out.numbers[value] >= 0) return out.numbers[value];
  Value placed = graph_.values[value];
  const Buffer& buffer = graph_.buffer_of(value);
  if (buffer.kind == Buffer::Kind::constant) {
    for (int d = 0; d < placed.shape.rank(); ++d) placed.strides[d] = 0;
    placed.offset = 0;
    placed.buffer = out.graph.add_buffer(buffer);
    define(value, std::move(placed), "const " + print_value(buffer.value));
    return out.numbers[value];
  }
  const std::vector<int>& roots = roots_[placed.buffer];
  SINTER_ASSERT(!roots.empty(), "%", value, " has no memory yet");
  const auto holder = std::ranges::find_if(
      roots, [&](int root) { return extent_of(graph_.values[root]).holds(extent_of(placed)); });
  const int root = holder == roots.end() ? roots[0] : *holder, number = out.numbers[root];
  placed.offset = (extent_of(placed).begin - extent_of(graph_.values[root]).begin) /
                  int64_t(size_of(placed.dtype));
  placed.buffer = out.graph.values[number].buffer;
  if (buffer.kind != Buffer::Kind::local) placed.name.clear();  // that of a root
  define(value, std::move(placed), str("view(%", number, ")"));
  return out.numbers[value];
}

void Lister::add_root(int value) {
  Value placed = graph_.values[value];
  if (placed.name.empty()) placed.name = str("external.", out.graph.values.size());
  while (!names_.insert(placed.name).second) placed.name += str(".", out.graph.values.size());
  const Buffer& buffer = graph_.buffer_of(value);
  const bool input = buffer.kind == Buffer::Kind::input;
  placed.buffer = out.graph.add_buffer(buffer);
  placed.offset = 0;
  if (input) out.graph.inputs.push_back(int(out.graph.values.size()));
  const std::string what = (input ? "input " : "param ") + quoted(placed.name);
  define(value, std::move(placed), what);
}

void Lister::add_node(Node node) {
  for (int& in : node.in) {
    if (in >= 0) in = use(in);
  }
  for (int& result : node.out) {
    Value placed = graph_.values[result];
    std::vector<int>& roots = roots_[placed.buffer];
    SINTER_ASSERT(out.numbers[result] < 0 && roots.empty() && placed.offset == 0, node.text(),
        " writes its result %", result, " into other memory");
    roots.push_back(result);
    placed.buffer = out.graph.add_buffer(graph_.buffer_of(result));
    placed.strides = contiguous_strides(placed.shape);
    result = out.numbers[result] = out.graph.add_value(std::move(placed));
  }
  std::string line = print_node(out.graph, node);
  if (!node.module.empty() || node.rule) line += "  # ";
  if (!node.module.empty()) line += "module " + escaped(node.module);
  if (node.rule) line += str(node.module.empty() ? "" : ", ", "rule ", node.rule);
  out.lines.push_back(std::move(line));
  out.graph.nodes.push_back(std::move(node));
}

Lister::Lister(const Graph& graph)
    : graph_(graph), roots_(graph.buffers.size()), used_(graph.values.size(), 0) {
  out.numbers.assign(graph.values.size(), -1);
  for (const int root : find_roots()) add_root(root);
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    if (used_[v] && graph_.buffer_of(int(v)).kind == Buffer::Kind::constant) use(int(v));
  }
  for (const Node& node : graph_.nodes) add_node(node);
  for (const Graph::Gradient& g : graph_.gradients) {
    out.graph.gradients.push_back({.param = use(g.param), .grad = use(g.grad)});
    out.lines.push_back(str("gradient %", use(g.param), " %", use(g.grad)));
  }
  std::string line = "output";
  for (const int value : graph_.outputs) {
    const std::string& name = graph_.values[value].name;
    const size_t i = out.graph.outputs.size();
    out.graph.outputs.push_back(use(value));
    line += str(i ? ", " : " ", quoted(name.empty() ? str("y", i) : name), " %", use(value));
  }
  out.lines.push_back(std::move(line));
}

}  // namespace

std::string print_type(const Value& value) { return str(name_of(value.dtype), value.shape.str()); }

std::string print_node(const Graph& graph, const Node& node) {
  std::string out = str(numbers_of(node.out), node.out.empty() ? "" : " = ", node.text(), "(",
      numbers_of(node.in), ")");
  for (size_t i = 0; i < node.out.size(); ++i)
    out += str(i ? ", " : " ", print_type(graph.values[node.out[i]]));
  if (const std::string attrs = node.attrs.str(); !attrs.empty()) out += " " + attrs;
  return node.role == Role::none ? out : str(out, " role=", print_value(node.role));
}

std::string dump(const Graph& graph) {
  std::string text;
  for (const std::string& line : listing_of(graph).lines) text += line + "\n";
  return text;
}

Listing listing_of(const Graph& graph) { return Lister(graph).out; }
std::vector<int> file_numbers(const Graph& graph) { return listing_of(graph).numbers; }

}  // namespace sinter::capture
