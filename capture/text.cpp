#include "capture/text.h"

#include <algorithm>
#include <map>
#include <set>

#include "capture/statement.h"

namespace sinter::capture {
namespace {

template <class Numbers>
Statement statement_of(const Graph& graph, const Node& node, Numbers&& number) {
  Statement s{.word = node.op->text(), .op = node.op};
  for (const int out : node.out) {
    s.results.push_back(number(out));
    s.types.push_back(graph.values[out]);
  }
  for (const int in : node.in) s.operands.push_back(in < 0 ? -1 : number(in));
  s.fields = {node.attrs, NodeFields{node.role}};
  return s;
}

// Numbers the values and writes the lines.
class Writer {
 public:
  explicit Writer(const Graph& graph);
  std::string text() const;
  const std::vector<int>& numbers() const { return numbers_; }

 private:
  struct Written {
    std::string body, comment;
  };
  void find_roots();
  void write_root(int value);
  void write_node(const Node& node);
  void write_outputs();
  void write(Statement s, std::string comment = "") {
    lines_.push_back({print(std::move(s)), std::move(comment)});
  }
  // Writes the line of a value by itself.
  void define(int value, Statement s) {
    s.results = {numbers_[value] = next_++};
    s.types = {graph_.values[value]};
    write(std::move(s));
  }
  // The number of a value; at its first use its line: that of a constant or a view.
  int use(int value);
  Placement placement(int value) const;

  const Graph& graph_;
  std::vector<int> numbers_;   // per value
  std::vector<int> roots_;     // values with a line of their own: inputs, then external ones
  std::vector<int> root_of_;   // per buffer: the value that views refer to
  std::vector<int> roots_in_;  // per buffer: how many
  std::vector<int64_t> base_;  // per buffer: byte of the storage where the file's offsets begin
  std::vector<char> used_;     // per value
  std::map<int, std::string> root_names_;
  std::set<std::string> names_;  // given out
  std::map<int, int> shared_;    // buffers of several roots, and their tags
  std::vector<Written> lines_;
  int next_ = 0;
};

// Note [Roots of a graph file]
//   A file knows no memory, only values, and a value that lies in another's memory is written as a
//   view of it. Something has to be there first: the roots.
//
//       %0 = input "x" f32[64, 784]
//       %1 = param "layers.0.weight" f32[256, 784]
//       %5 = view(%1) f32[784, 256] strides=[1, 784]
//
//   Inputs are roots, in their order. In memory from outside every value with a name is one, since
//   the reader looks it up by that name, and all others are views. Where none has a name, a dense
//   value stands for the memory, because a view of a dense value can be checked. Several roots in
//   one memory get a common tag (in=s0). Offsets count from the first byte that the graph uses: how
//   much lies before it is an accident of this run.
void Writer::find_roots() {
  std::vector<char> used_buffer(graph_.buffers.size(), 0);
  const auto mark = [&](int value) {
    if (value >= 0) used_[value] = used_buffer[graph_.values[value].buffer] = 1;
  };
  for (const Node& node : graph_.nodes) {
    for (const int in : node.in) mark(in);
    for (const int out : node.out) mark(out);
  }
  for (const std::vector<int>* list : {&graph_.inputs, &graph_.outputs}) {
    for (const int value : *list) mark(value);
  }
  for (const Graph::Gradient& g : graph_.gradients) {
    mark(g.param);
    mark(g.grad);
  }

  const auto add_root = [&](int value) {
    const int buffer = graph_.values[value].buffer;
    roots_.push_back(value);
    used_[value] = 1;
    if (roots_in_[buffer]++ == 0) root_of_[buffer] = value;
  };
  for (const int in : graph_.inputs) {
    if (std::ranges::find(roots_, in) == roots_.end()) add_root(in);
  }
  std::vector<int> nameless(graph_.buffers.size(), -1);
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    if (graph_.buffers[value.buffer].kind != Buffer::Kind::external || !used_buffer[value.buffer])
      continue;
    int& best = nameless[value.buffer];
    if (!value.name.empty()) {
      add_root(int(v));
    } else if (used_[v] &&
               (best < 0 || (value.contiguous() && !graph_.values[best].contiguous()))) {
      best = int(v);
    }
  }
  for (const int value : nameless) {
    if (value >= 0 && roots_in_[graph_.values[value].buffer] == 0) add_root(value);
  }
  // The first byte in use of each storage.
  std::vector<int64_t> unit(graph_.buffers.size(), 0);
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    const Buffer::Kind kind = graph_.buffers[value.buffer].kind;
    if (!used_[v] || (kind != Buffer::Kind::external && kind != Buffer::Kind::input)) continue;
    const int64_t size = int64_t(size_of(value.dtype)), begin = value.offset * size;
    int64_t &base = base_[value.buffer], &largest = unit[value.buffer];
    base = largest ? std::min(base, begin) : begin;
    largest = std::max(largest, size);
  }
  for (size_t b = 0; b < base_.size(); ++b) base_[b] -= unit[b] ? base_[b] % unit[b] : 0;
}

Placement Writer::placement(int value) const {
  const Value& v = graph_.values[value];
  return {.strides = v.contiguous() ? Strides() : v.strides,
      .offset = v.offset - base_[v.buffer] / int64_t(size_of(v.dtype))};
}

int Writer::use(int value) {
  if (numbers_[value] >= 0) return numbers_[value];
  const int buffer = graph_.values[value].buffer, root = root_of_[buffer];
  if (graph_.buffers[buffer].kind == Buffer::Kind::constant) {
    define(value, {.word = "const", .number = graph_.buffers[buffer].value});
  } else {
    SINTER_ASSERT(root >= 0, "%", value, " has no memory yet");
    define(value, {.word = "view", .operands = {numbers_[root]}, .fields = {placement(value)}});
  }
  return numbers_[value];
}

void Writer::write_root(int value) {
  const Value& v = graph_.values[value];
  std::string& name = root_names_[value] = v.name.empty() ? cat("external.", next_) : v.name;
  while (!names_.insert(name).second) name += cat(".", next_);
  Placement placement = this->placement(value);
  if (roots_in_[v.buffer] > 1)
    placement.in.number = shared_.try_emplace(v.buffer, int(shared_.size())).first->second;
  const bool input = graph_.buffers[v.buffer].kind == Buffer::Kind::input;
  define(value, {.word = input ? "input" : "param", .name = name, .fields = {placement}});
}

void Writer::write_node(const Node& node) {
  for (const int in : node.in) {
    if (in >= 0) use(in);
  }
  for (const int out : node.out) {
    const Value& v = graph_.values[out];
    SINTER_ASSERT(numbers_[out] < 0 && root_of_[v.buffer] < 0 && v.offset == 0, node.op->text(),
        " writes its result %", out, " into other memory");
    numbers_[out] = next_++;
    root_of_[v.buffer] = out;
  }
  std::string comment = node.module.empty() ? "" : "module " + escaped(node.module);
  if (node.rule) comment += cat(comment.empty() ? "" : ", ", "rule ", node.rule);
  write(statement_of(graph_, node, [&](int v) { return numbers_[v]; }), std::move(comment));
}

void Writer::write_outputs() {
  Statement s{.word = "output"};
  for (const int value : graph_.outputs) {
    const Value& v = graph_.values[value];
    const auto root = root_names_.find(value);
    std::string name;
    if (root != root_names_.end()) {
      name = root->second;
    } else if (graph_.buffers[v.buffer].kind == Buffer::Kind::local) {
      name = v.name;
    }
    if (name.empty()) name = cat("y", s.outputs.size());
    s.outputs.push_back({std::move(name), use(value)});
  }
  write(std::move(s));
}

Writer::Writer(const Graph& graph)
    : graph_(graph),
      numbers_(graph.values.size(), -1),
      root_of_(graph.buffers.size(), -1),
      roots_in_(graph.buffers.size(), 0),
      base_(graph.buffers.size(), 0),
      used_(graph.values.size(), 0) {
  find_roots();
  for (const int root : roots_) write_root(root);
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    if (used_[v] && graph_.buffers[graph_.values[v].buffer].kind == Buffer::Kind::constant)
      use(int(v));
  }
  for (const Node& node : graph_.nodes) write_node(node);
  for (const Graph::Gradient& g : graph_.gradients) {
    const int param = use(g.param), grad = use(g.grad);
    write({.word = "gradient", .operands = {param, grad}});
  }
  write_outputs();
}

std::string Writer::text() const {
  constexpr size_t kMaxColumn = 72;  // of comments
  size_t column = 0;
  for (const Written& line : lines_) {
    if (!line.comment.empty()) column = std::max(column, std::min(line.body.size(), kMaxColumn));
  }
  std::string out = cat("sinter-graph ", kGraphVersion, "\n");
  for (const Written& line : lines_) {
    out += line.body;
    if (!line.comment.empty())
      out += std::string(std::max(column, line.body.size()) - line.body.size(), ' ') + "  # " +
             line.comment;
    out += "\n";
  }
  return out;
}

std::string label(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '"' || c == '\\' ? cat("\\", c) : c == '\n' ? "\\n" : escaped({&c, 1});
  return "\"" + out + "\"";
}

}  // namespace

std::string print_node(const Graph& graph, const Node& node) {
  return print(statement_of(graph, node, [](int value) { return value; }));
}
std::string dump(const Graph& graph) { return Writer(graph).text(); }
std::vector<int> file_numbers(const Graph& graph) { return Writer(graph).numbers(); }
std::string dump_dot(const Graph& graph) {
  const std::vector<int> numbers = file_numbers(graph);
  std::string out =
      "digraph sinter {\n  node [shape=box, fontname=monospace];\n  edge [fontname=monospace, "
      "fontsize=9];\n";
  const auto edge = [&](const std::string& from, const std::string& to, const Value& v) {
    out += cat("  ", from, " -> ", to, " [label=", label(print_type(v)), "];\n");
  };
  // Who wrote a buffer last; before any node did, the ellipse of the value itself.
  std::vector<int> writer(graph.buffers.size(), -1);
  std::set<int> drawn;
  const auto source = [&](int value) {
    const Value& v = graph.values[value];
    const Buffer& buffer = graph.buffers[v.buffer];
    if (writer[v.buffer] >= 0) return cat("n", writer[v.buffer]);
    std::string id = cat("v", numbers[value]);
    if (!drawn.insert(value).second) return id;
    std::string name = v.name.empty() ? cat("%", numbers[value]) : v.name;
    if (buffer.kind == Buffer::Kind::constant) name = print_value(buffer.value);
    out += cat("  ", id, " [shape=ellipse, label=", label(name + "\n" + print_type(v)), "];\n");
    return id;
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const std::string id = cat("n", n), module = node.module.empty() ? "" : "\n" + node.module;
    if (node.rule)
      out += cat("  subgraph cluster_", n, " {\n    label=", label(node.rule), ";\n  ");
    out += cat("  ", id, " [label=", label(cat(node.op->text(), module)), "];\n");
    for (const int o : node.rule ? node.origin : std::vector<int>()) {
      out += cat("    ", id, "_", o, " [style=dashed, label=\"op ", o, "\"];\n");
      out += cat("    ", id, "_", o, " -> ", id, " [style=dotted, arrowhead=none];\n");
    }
    if (node.rule) out += "  }\n";
    for (const int in : node.in) {
      if (in >= 0) edge(source(in), id, graph.values[in]);
    }
    const auto wrote = [&](int value) {
      writer[graph.values[value].buffer] = int(n);
      return false;
    };
    node.any_written(wrote);
    for (const int out : node.out) wrote(out);
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value& v = graph.values[graph.outputs[i]];
    const std::string from = source(graph.outputs[i]), id = cat("out", i);
    const std::string name = v.name.empty() ? cat("y", i) : v.name;
    out += cat("  ", id, " [shape=ellipse, label=", label(name), "];\n");
    edge(from, id, v);
  }
  return out + "}\n";
}

}  // namespace sinter::capture
