#include "capture/text.h"

#include <algorithm>
#include <set>

#include "capture/statement.h"

namespace sinter::capture {
namespace {

// Note [One grammar] of statement.h.
struct Printer {
  std::string out = {};

  bool begins(char, bool present) { return present; }
  template <class T> bool more(const std::vector<T>& items, size_t i, char) {
    if (i > 0 && i < items.size()) out += ", ";
    return i < items.size();
  }
  void mark(std::string_view text) { out += text; }
  void word(const Statement& s) { out += s.word; }
  void value(int64_t number) { out += cat("%", number); }
  bool absent(int64_t number) {
    if (number < 0) out += '-';
    return number < 0;
  }
  // Quotes, backslashes and control bytes as \xNN.
  void name(std::string_view name) {
    out += '"';
    for (const char c : name) out += c == '"' ? "\\x22" : c == '\\' ? "\\x5c" : escaped({&c, 1});
    out += '"';
  }
  void real(double number) { out += print_value(number); }
  void type(const Value& value) { out += print_type(value); }
  void fields(const Statement& s) {
    for (const Attrs& attrs : s.fields) {
      if (const std::string text = attrs.str(); !text.empty()) out += " " + text;
    }
  }
};

template <class Numbers> std::string print(const Graph& graph, const Node& node, Numbers&& number) {
  Statement s{.word = node.text(), .op = node.op};
  for (const int out : node.out) {
    s.results.push_back(number(out));
    s.types.push_back(graph.values[out]);
  }
  for (const int in : node.in) s.operands.push_back(in < 0 ? -1 : number(in));
  s.fields = {node.attrs, NodeFields{node.role}};
  Printer printer;
  statement(printer, s);
  return printer.out;
}

// Numbers the values and writes the lines.
class Writer {
 public:
  explicit Writer(const Graph& graph);
  std::string text = cat("sinter-graph ", kGraphVersion, "\n");
  std::vector<int> numbers;  // per value

 private:
  std::vector<int> find_roots();
  void write_root(int value);
  void write_node(const Node& node);
  void write(Statement s) {
    Printer printer;
    statement(printer, s);
    text += printer.out + "\n";
  }
  // Writes the line of a value by itself.
  void define(int value, Statement s) {
    s.results = {numbers[value] = next_++};
    s.types = {graph_.values[value]};
    write(std::move(s));
  }
  // The number of a value; at its first use its line: that of a constant or a view.
  int use(int value);
  Placement placement(int value, int64_t begin) const {
    const Value& v = graph_.values[value];
    return {.strides = v.contiguous() ? Strides() : v.strides,
        .offset = (extent_of(v).begin - begin) / int64_t(size_of(v.dtype))};
  }

  const Graph& graph_;
  std::vector<std::vector<int>> roots_;  // per buffer: values that views may refer to
  std::vector<char> used_;               // per value
  std::set<std::string> names_;          // given out
  int next_ = 0;
};

// Note [Roots of a graph file]
//   A file knows no memory, only values, and a value that lies in another's memory is written as a
//   view of it. Something has to be there first: the roots.
//
//       %0 = input "x" f32[64, 784]
//       %1 = param "layers.0.weight" f32[256, 784]
//       %5 = view(%1) f32[784, 256] strides=[1,784]
//
//   Inputs are roots, in their order. In memory from outside every value with a name is one, since
//   the reader looks it up by that name, and all others are views of one that holds them; where
//   none has a name, the first value in use stands for the memory. What no root holds (a rule has
//   joined two parameters, say) is a view beyond its root: for people, parse() refuses it.
std::vector<int> Writer::find_roots() {
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

int Writer::use(int value) {
  if (numbers[value] >= 0) return numbers[value];
  const Value& v = graph_.values[value];
  if (graph_.buffers[v.buffer].kind == Buffer::Kind::constant) {
    define(value, {.word = "const", .number = graph_.buffers[v.buffer].value});
    return numbers[value];
  }
  const std::vector<int>& roots = roots_[v.buffer];
  SINTER_ASSERT(!roots.empty(), "%", value, " has no memory yet");
  const auto holder = std::ranges::find_if(
      roots, [&](int root) { return extent_of(graph_.values[root]).holds(extent_of(v)); });
  const int root = holder == roots.end() ? roots[0] : *holder;
  define(value, {.word = "view",
                    .operands = {numbers[root]},
                    .fields = {placement(value, extent_of(graph_.values[root]).begin)}});
  return numbers[value];
}

void Writer::write_root(int value) {
  const Value& v = graph_.values[value];
  std::string name = v.name.empty() ? cat("external.", next_) : v.name;
  while (!names_.insert(name).second) name += cat(".", next_);
  const bool input = graph_.buffers[v.buffer].kind == Buffer::Kind::input;
  define(value, {.word = input ? "input" : "param",
                    .names = {name},
                    .fields = {placement(value, extent_of(v).begin)}});
}

void Writer::write_node(const Node& node) {
  for (const int in : node.in) {
    if (in >= 0) use(in);
  }
  for (const int out : node.out) {
    std::vector<int>& roots = roots_[graph_.values[out].buffer];
    SINTER_ASSERT(numbers[out] < 0 && roots.empty() && graph_.values[out].offset == 0, node.text(),
        " writes its result %", out, " into other memory");
    numbers[out] = next_++;
    roots.push_back(out);
  }
  text += print(graph_, node, [&](int v) { return numbers[v]; });
  if (!node.module.empty() || node.rule) text += "  # ";
  if (!node.module.empty()) text += "module " + escaped(node.module);
  if (node.rule) text += cat(node.module.empty() ? "" : ", ", "rule ", node.rule);
  text += "\n";
}

Writer::Writer(const Graph& graph)
    : numbers(graph.values.size(), -1),
      graph_(graph),
      roots_(graph.buffers.size()),
      used_(graph.values.size(), 0) {
  for (const int root : find_roots()) write_root(root);
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    if (used_[v] && graph_.buffers[graph_.values[v].buffer].kind == Buffer::Kind::constant)
      use(int(v));
  }
  for (const Node& node : graph_.nodes) write_node(node);
  for (const Graph::Gradient& g : graph_.gradients) {
    const int param = use(g.param), grad = use(g.grad);
    write({.word = "gradient", .operands = {param, grad}});
  }
  Statement outputs{.word = "output"};
  for (const int value : graph_.outputs) {
    const std::string& name = graph_.values[value].name;
    outputs.names.push_back(name.empty() ? cat("y", outputs.names.size()) : name);
    outputs.operands.push_back(use(value));
  }
  write(std::move(outputs));
}

}  // namespace

std::string print_type(const Value& value) { return cat(name_of(value.dtype), value.shape.str()); }
std::string print_node(const Graph& graph, const Node& node) {
  return print(graph, node, [](int value) { return value; });
}
std::string dump(const Graph& graph) { return Writer(graph).text; }
std::vector<int> file_numbers(const Graph& graph) { return Writer(graph).numbers; }

}  // namespace sinter::capture
