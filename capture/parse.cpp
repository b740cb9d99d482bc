// Reads the text of text.h. Whatever the bytes are, the answer is a Graph that holds together or an
// Error of kind data with file and line: sizes are bounded before they are multiplied, every op's
// own shape rule is asked, and nothing recurses.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "capture/statement.h"
#include "capture/text.h"

namespace sinter::capture {
namespace {

constexpr int64_t kMaxLocalBytes = int64_t{1} << 52;

// Adds statements to a graph.
class Builder {
 public:
  void add(const Line& line, Statement& s);
  bool finished() const { return finished_; }
  Graph take() { return std::move(graph_); }

 private:
  int defined(const Line& line, int64_t number) const;  // the value of that number
  void define(const Line& line, int64_t number, Value value);
  void add_node(const Line& line, Statement& s, std::vector<int> operands);
  void add_view(const Line& line, int base, Value& value);
  void add_constant(const Line& line, double number, Value& value);
  void add_root(const Line& line, const Statement& s, Value& value);
  Tensors infer(const Line& line, const Node& node) const;

  Graph graph_;
  std::unordered_map<int64_t, int> values_, storages_;
  std::set<std::string> names_;
  int64_t local_bytes_ = 0;
  bool finished_ = false;
};

int Builder::defined(const Line& line, int64_t number) const {
  const auto it = values_.find(number);
  line.check(
      it != values_.end(), "undefined value", cat("%", number, " is not defined before this line"));
  return it->second;
}

void Builder::define(const Line& line, int64_t number, Value value) {
  line.check(
      graph_.values.size() < kMaxGraphValues, "too many values", cat("at most ", kMaxGraphValues));
  const bool fresh = values_.emplace(number, int(graph_.values.size())).second;
  line.check(fresh, "value defined twice", cat("%", number));
  graph_.add_value(std::move(value));
}

// Puts the value where its line says.
void place(const Line& line, const Placement& at, Value& value) {
  if (at.strides.rank() > 0) {
    line.check(at.strides.rank() == value.shape.rank(), "strides do not fit",
        cat(at.strides.str(), " for ", print_type(value)));
    value.strides = at.strides;
  }
  value.offset = at.offset;
  double end = double(at.offset);  // in f64, which does not overflow
  for (int d = 0; d < value.shape.rank(); ++d) {
    line.check(value.strides[d] >= 0, "strides do not fit", "none may be negative");
    end += double(value.shape[d]) * double(value.strides[d]);
  }
  line.check(value.offset >= 0 && end <= double(kMaxNumber), "layout too large",
      cat(print_type(value), " strides ", value.strides.str(), " offset ", value.offset));
}

// Where it ends in its memory, in bytes; 0 of an empty value, which needs none.
size_t end_of(const Value& value) {
  return value.shape.numel() == 0 ? 0 : size_t(extent_of(value).end);
}

void Builder::add(const Line& line, Statement& s) {
  line.check(!finished_, "not understood", "a line after the output line, which is the last");
  std::vector<int> operands;
  for (const int64_t n : s.operands) operands.push_back(n < 0 ? -1 : defined(line, n));
  if (s.op) return add_node(line, s, std::move(operands));

  const size_t gives = s.word == "gradient" || s.word == "output" ? 0 : 1;
  line.check(s.results.size() == gives, "results do not fit",
      cat(s.word, " gives ", gives, ", found ", s.results.size()));
  if (s.word == "gradient") {
    line.check(graph_.buffers[graph_.values[operands[0]].buffer].kind == Buffer::Kind::external,
        "not a parameter", "gradient wants one");
    graph_.gradients.push_back({operands[0], operands[1]});
  } else if (s.word == "output") {
    for (Statement::Output& output : s.outputs) {
      graph_.outputs.push_back(defined(line, output.value));
      Value& v = graph_.values[graph_.outputs.back()];
      if (graph_.buffers[v.buffer].kind == Buffer::Kind::local)
        v.name = std::move(output.name);  // others have one or are views
    }
    finished_ = true;
  } else {
    Value& value = s.types[0];
    if (s.word == "const") {
      add_constant(line, s.number, value);
    } else {
      const auto& placement = s.fields[0].as<Placement>();
      const bool shares = placement.in.number >= 0;
      line.check(!shares || s.word == "param", "not understood",
          cat("in= of ", s.word, "; only parameters share memory"));
      place(line, placement, value);
      line.check(placement.offset == 0 || s.word != "input", "not understood",
          "offset= of an input; an input begins where it is given");
      if (s.word == "view") {
        line.check(operands.size() == 1 && operands[0] >= 0, "operands do not fit",
            "view takes one value");
        add_view(line, operands[0], value);
      } else {
        add_root(line, s, value);
      }
    }
    define(line, s.results[0], std::move(value));
  }
}

void Builder::add_constant(const Line& line, double number, Value& value) {
  line.check(is_float(value.dtype), "unknown element type",
      cat(name_of(value.dtype), " for a constant; allowed f32, f64, bf16"));
  for (int d = 0; d < value.shape.rank(); ++d) value.strides[d] = 0;
  value.buffer = graph_.add_buffer(
      {.kind = Buffer::Kind::constant, .bytes = size_of(value.dtype), .value = number});
}

void Builder::add_view(const Line& line, int base, Value& value) {
  value.buffer = graph_.values[base].buffer;
  Buffer& buffer = graph_.buffers[value.buffer];
  line.check(buffer.kind != Buffer::Kind::constant, "view of a constant",
      "give the constant another shape");
  const size_t end = end_of(value);
  if (buffer.kind == Buffer::Kind::external)
    buffer.bytes = std::max(buffer.bytes, end);  // how far it goes, bind() sees
  line.check(
      end <= buffer.bytes, "view out of range", cat("it ends at byte ", end, " of ", buffer.bytes));
}

void Builder::add_root(const Line& line, const Statement& s, Value& value) {
  line.check(names_.insert(s.name).second, "name given twice", escaped(s.name));
  value.name = s.name;
  const bool input = s.word == "input";
  const int fresh = int(graph_.buffers.size());
  const int64_t shared = s.fields[0].as<Placement>().in.number;
  value.buffer = shared < 0 ? fresh : storages_.try_emplace(shared, fresh).first->second;
  if (value.buffer == fresh)
    graph_.add_buffer({.kind = input ? Buffer::Kind::input : Buffer::Kind::external});
  Buffer& buffer = graph_.buffers[value.buffer];
  buffer.bytes = std::max(buffer.bytes, end_of(value));
  if (input) graph_.inputs.push_back(int(graph_.values.size()));
}

void Builder::add_node(const Line& line, Statement& s, std::vector<int> operands) {
  line.check(
      graph_.nodes.size() < kMaxGraphValues, "too many ops", cat("at most ", kMaxGraphValues));
  Node node{.op = s.op,
      .attrs = s.fields[0],
      .in = std::move(operands),
      .role = s.fields[1].as<NodeFields>().role,
      .origin = {int(graph_.nodes.size())}};
  const Tensors inferred = infer(line, node);
  line.check(inferred.size() == s.results.size(), "results do not fit",
      cat(s.word, " gives ", inferred.size(), ", found ", s.results.size()));
  for (size_t i = 0; i < s.results.size(); ++i) {
    Value& value = s.types[i];
    line.check(value.shape == inferred[i].shape() && value.dtype == inferred[i].dtype(),
        "results do not fit",
        cat(s.word, " gives ", name_of(inferred[i].dtype()), inferred[i].shape().str(), ", found ",
            print_type(value)));
    const size_t bytes = size_t(value.shape.numel()) * size_of(value.dtype);
    local_bytes_ += int64_t(bytes);
    line.check(local_bytes_ <= kMaxLocalBytes, "too large",
        cat("all results together take ", local_bytes_, " bytes; at most 2^52"));
    value.buffer = graph_.add_buffer({.bytes = bytes});
    node.out.push_back(int(graph_.values.size()));
    define(line, s.results[i], std::move(value));
  }
  graph_.nodes.push_back(std::move(node));
}

// What the op gives for these operands, once they are what every op asks for.
Tensors Builder::infer(const Line& line, const Node& node) const {
  const OpDef& op = *node.op;
  const int n = int(node.in.size());
  const auto check = [&](bool condition, std::string_view facts) {
    line.check(condition, "operands do not fit", facts);
  };
  check(n >= op.min_inputs && n <= op.most_inputs(),
      cat(op.text(), " takes ", op.min_inputs, "..", op.most_inputs(), ", found ", n));
  for (int i = 0; i < n; ++i) {
    const int in = node.in[i];
    const std::string operand = cat("operand ", i, " of ", op.text());
    // Of ops that work in place any operand may be absent, as far as their shape rule agrees.
    check(in >= 0 || op.in_place() || i >= op.min_inputs, cat(operand, " must not be absent"));
    if (in < 0) continue;
    check(op.takes_strides(i, n) || graph_.values[in].contiguous(), cat(operand, " must be dense"));
    const bool constant = graph_.buffers[graph_.values[in].buffer].kind == Buffer::Kind::constant;
    check(!constant || !op.writes_input(i, n),
        cat(op.text(), " changes operand ", i, ", which is a constant"));
  }
  check(std::ranges::any_of(node.in, [](int in) { return in >= 0; }), cat(op.text(), " has none"));
  try {
    return op.results(graph_.metas(node.in), node.attrs);
  } catch (const Error& error) {
    line.fault("operands do not fit", error.message(), error.hint());
  }
}

}  // namespace

Graph parse(std::string_view text, const std::string& file) {
  Line{"", 1, file}.check(text.size() <= kMaxGraphBytes, "too large",
      cat(text.size(), " bytes, at most ", kMaxGraphBytes));
  Builder builder;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const Line line{text.substr(0, end), ++number, file};
    line.check(end != std::string_view::npos, "cut short", "the last line does not end");
    text.remove_prefix(end + 1);
    if (number == 1) {
      read_header(line);
    } else if (std::optional<Statement> statement = read(line)) {
      builder.add(line, *statement);
    }
  }
  const Line last{"", number, file};
  last.check(number > 0, "not a graph file", "it is empty");
  last.check(builder.finished(), "cut short", "no output line, which is the last");
  return builder.take();
}

}  // namespace sinter::capture
