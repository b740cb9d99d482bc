// Reads the text of text.h. Whatever the bytes are, the answer is a Graph that holds together or an
// Error of kind data with file and line: sizes are bounded before they are multiplied, every op's
// own shape rule is asked, and nothing recurses.
#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_map>

#include "capture/statement.h"
#include "capture/text.h"
#include "core/classic.h"
#include "core/numbers.h"
#include "ops/fused/fused.h"

namespace sinter::capture {
namespace {

constexpr std::string_view kFormat = "sinter-graph";
constexpr std::string_view kWords[] = {"input", "param", "const", "view", "output", "gradient"};
constexpr size_t kMaxItems = 1 << 14;  // of one list
constexpr int64_t kMaxLocalBytes = int64_t{1} << 52;
// Of numbers in a file, so that sums and products of a few of them fit 64 bits.
constexpr int64_t kMaxNumber = int64_t{1} << 48;

std::string shown(std::string_view token) {
  return token.empty() ? "the end of the line" : escaped(token.substr(0, 40));
}

// Cuts a line into its parts (Note [One grammar] of statement.h). What follows # outside quotes is
// not seen. Every part is in its range, but nothing is known of what the numbers stand for.
class Reader {
 public:
  Reader(std::string_view line, size_t number, const std::string& file)
      : rest_(line), number_(number), file_(file) {
    skip();
  }

  // Throws data: "graph: <what>: <file> line <number>; <facts>".
  [[noreturn]] void fault(
      std::string_view what, std::string_view facts, std::string hint = "") const {
    throw Error(Error::Kind::data,
        cat("graph: ", what, ": ", file_, " line ", number_, "; ", facts), std::move(hint));
  }
  void check(bool condition, std::string_view what, std::string_view facts) const {
    if (!condition) fault(what, facts);
  }

  bool done() const { return rest_.empty(); }
  bool begins(char c, bool = false) const { return !done() && rest_[0] == c; }
  template <class T> bool more(std::vector<T>& items, size_t i, char end) {
    if (end ? begins(end) : done()) return false;
    if (i > 0 && !take(',')) unexpected(end ? cat("',' or '", end, "'") : "','");
    check(i < kMaxItems, "too many values", cat("at most ", kMaxItems, " in a list"));
    items.emplace_back();
    return true;
  }
  void mark(std::string_view text) {
    for (const char c : text) {
      if (c != ' ' && !take(c)) unexpected(cat("'", c, "'"));
    }
  }
  void header();
  void word(Statement& s);
  void value(int64_t& number) {
    mark("%");
    number = whole("the number of a value");
  }
  bool absent(int64_t& number) {
    const bool is = take('-');
    if (is) number = -1;
    return is;
  }
  void name(std::string& out);
  void real(double& number) {
    const std::string_view text = cut(token().size());
    if (!parse_value(text, number)) fault("not a number", shown(text));
  }
  void type(Value& value);
  void fields(Statement& s);

 private:
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fault("not understood", cat(shown(token()), " where ", wanted, " is wanted"));
  }
  bool take(char c) {
    if (!begins(c)) return false;
    cut(1);
    return true;
  }
  // Letters, digits, _ . and - as far as they go; may be empty.
  std::string_view letters() {
    const auto is_letter = [](char c) { return is_alnum(c) || c == '_' || c == '.' || c == '-'; };
    return cut(size_t(std::ranges::find_if_not(rest_, is_letter) - rest_.begin()));
  }
  int64_t whole(std::string_view what) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0 || value > kMaxNumber)
      unexpected(cat(what, " (0..2^48)"));
    cut(size_t(end - rest_.data()));
    return value;
  }
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  void skip() {
    while (!done() && is_blank(rest_[0])) rest_.remove_prefix(1);
    if (begins('#')) rest_ = {};
  }
  // All up to the next blank.
  std::string_view token() const { return {rest_.begin(), std::ranges::find_if(rest_, is_blank)}; }
  std::string_view cut(size_t n) {
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    skip();
    return out;
  }

  std::string_view rest_;
  const size_t number_;
  const std::string& file_;
};

void Reader::header() {
  check(letters() == kFormat, "not a graph file",
      cat("it does not begin with \"", kFormat, " ", kGraphVersion, "\""));
  const int64_t version = whole("the version");
  check(version == kGraphVersion, "another version",
      cat(kFormat, " ", version, "; this build reads ", kGraphVersion));
  if (!done()) unexpected("the end of the line");
}

void Reader::word(Statement& s) {
  s.word = letters();
  if (s.word.empty()) unexpected("a statement");
  s.op = find_op(s.word);
  if (const Label* label = find_label(s.word); label && label->op->label) s.op = label->op;
  if (s.op) {
    check(!s.op->view, "a view op",
        cat(s.word, "; a graph file has view(%n) with shape, strides and offset"));
    s.fields = {s.op->attrs ? s.op->attrs->defaults() : Attrs(), NodeFields()};
  } else if (s.word == "input" || s.word == "param" || s.word == "view") {
    s.fields = {Placement()};
  } else if (std::ranges::find(kWords, s.word) == std::end(kWords)) {
    std::vector<std::string_view> names(std::begin(kWords), std::end(kWords));
    for (const OpDef* op : all_ops()) {
      if (!op->view) names.push_back(op->text());
    }
    for (const Label& label : labels()) {
      if (label.op->label) names.push_back(label.text());
    }
    const std::string nearest = nearest_word(s.word, names);
    fault("unknown op", shown(s.word) + (nearest.empty() ? "" : ", nearest is " + nearest));
  }
}

void Reader::name(std::string& out) {
  if (!begins('"')) unexpected("a name in quotes");
  for (size_t i = 1; i < rest_.size(); ++i) {
    if (rest_[i] == '"') {
      check(!out.empty() && out.size() <= 512, "name of a bad length",
          cat(out.size(), " bytes; allowed 1..512"));
      cut(i + 1);
      return;
    }
    unsigned byte = static_cast<unsigned char>(rest_[i]);
    if (byte == '\\') {
      const std::string_view code = rest_.substr(i).substr(0, 4);
      const char* const end = code.data() + code.size();
      if (code.size() < 4 || code[1] != 'x' ||
          std::from_chars(code.data() + 2, end, byte, 16).ptr != end)
        fault("not understood", cat(shown(code), " in a name; allowed \\x00..\\xff"));
      i += 3;
    }
    out += char(byte);
  }
  fault("name does not end", shown(rest_));
}

void Reader::type(Value& value) {
  const std::string_view dtype = letters();
  if (!parse_value(dtype, value.dtype))
    fault("unknown element type", cat(shown(dtype), "; allowed ", join(names_of(value.dtype))));
  double elements = 1;  // in f64, which does not overflow
  for (mark("["); !take(']');) {
    if (value.shape.rank() > 0) mark(",");
    check(value.shape.rank() < kMaxRank, "too many dims", cat("at most ", kMaxRank));
    value.shape.push_back(whole("a size"));
    elements *= double(std::max<int64_t>(value.shape[-1], 1));
  }
  check(elements <= double(kMaxNumber), "shape too large",
      cat(value.shape.str(), "; at most 2^48 elements"));
  value.strides = contiguous_strides(value.shape);
}

void Reader::fields(Statement& s) {
  if (s.fields.empty() && !done()) unexpected("the end of the line");
  while (!done()) {
    const std::string_view key = letters();
    mark("=");
    const std::string_view text = cut(token().size());
    int64_t whole = 0;
    Dims numbers;
    if (parse_value(text, whole)) numbers = {whole};
    if (numbers.rank() > 0 || parse_value(text, numbers)) {
      for (const int64_t n : numbers)
        check(n >= -kMaxNumber && n <= kMaxNumber, cat(key, " out of range"),
            cat(shown(text), "; at most 2^48"));
    }
    int result = 1;
    for (size_t i = 0; result == 1 && i < s.fields.size(); ++i)
      result = s.fields[i].parse(key, text);
    const AttrType* const known = s.fields[0].type();
    if (result == 1)
      fault("unknown attribute",
          cat(shown(key), " of ", s.word, "; it has ",
              known && !known->field_names.empty() ? known->field_names : "none"));
    if (result == 2) fault(cat("not a value of ", key), shown(text));
  }
}

// Adds statements to a graph.
class Builder {
 public:
  void add(const Reader& line, Statement& s);
  bool finished() const { return finished_; }
  Graph take() { return std::move(graph_); }

 private:
  void define(const Reader& line, int64_t number, Value value);
  void add_node(const Reader& line, Statement& s, std::vector<int> operands);
  void add_value(const Reader& line, Statement& s, const std::vector<int>& operands);
  Tensors infer(const Reader& line, const Node& node) const;

  Graph graph_;
  std::unordered_map<int64_t, int> values_;
  std::set<std::string> names_;
  int64_t local_bytes_ = 0;
  bool finished_ = false;
};

void Builder::define(const Reader& line, int64_t number, Value value) {
  line.check(
      graph_.values.size() < kMaxGraphValues, "too many values", cat("at most ", kMaxGraphValues));
  const bool fresh = values_.emplace(number, int(graph_.values.size())).second;
  line.check(fresh, "value defined twice", cat("%", number));
  graph_.add_value(std::move(value));
}

// Puts the value where its line says; the byte where it ends: 0 of an empty one, which needs no
// memory.
size_t place(const Reader& line, const Placement& at, Value& value) {
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
  return value.shape.numel() == 0 ? 0 : size_t(extent_of(value).end);
}

void Builder::add(const Reader& line, Statement& s) {
  line.check(!finished_, "not understood", "a line after the output line, which is the last");
  std::vector<int> operands;
  for (const int64_t n : s.operands) {
    const auto known = values_.find(n);
    line.check(n < 0 || known != values_.end(), "undefined value",
        cat("%", n, " is not defined before this line"));
    operands.push_back(n < 0 ? -1 : known->second);
  }
  if (s.op) return add_node(line, s, std::move(operands));
  const size_t gives = s.word == "gradient" || s.word == "output" ? 0 : 1;
  line.check(s.results.size() == gives, "results do not fit",
      cat(s.word, " gives ", gives, ", found ", s.results.size()));
  if (gives == 1) return add_value(line, s, operands);
  if (s.word == "gradient") {
    line.check(graph_.buffers[graph_.values[operands[0]].buffer].kind == Buffer::Kind::external,
        "not a parameter", "gradient wants one");
    graph_.gradients.push_back({operands[0], operands[1]});
    return;
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    Value& v = graph_.values[operands[i]];
    if (graph_.buffers[v.buffer].kind == Buffer::Kind::local)
      v.name = std::move(s.names[i]);  // others have one or are views
  }
  graph_.outputs = std::move(operands);
  finished_ = true;
}

// Of a line that is no op: an input, a parameter, a constant, a view.
void Builder::add_value(const Reader& line, Statement& s, const std::vector<int>& operands) {
  Value& value = s.types[0];
  Buffer buffer{.kind = s.word == "input"   ? Buffer::Kind::input
                        : s.word == "const" ? Buffer::Kind::constant
                                            : Buffer::Kind::external};
  if (s.word == "const") {
    line.check(is_float(value.dtype), "unknown element type",
        cat(name_of(value.dtype), " for a constant; allowed f32, f64, bf16"));
    for (int d = 0; d < value.shape.rank(); ++d) value.strides[d] = 0;
    buffer.bytes = size_of(value.dtype);
    buffer.value = s.number;
  } else {
    const auto& placement = s.fields[0].as<Placement>();
    buffer.bytes = place(line, placement, value);
    line.check(placement.offset == 0 || s.word == "view", "not understood",
        cat("offset= of ", s.word, "; only views have one"));
  }
  if (s.word == "view") {
    line.check(
        operands.size() == 1 && operands[0] >= 0, "operands do not fit", "view takes one value");
    value.buffer = graph_.values[operands[0]].buffer;
    const Buffer& memory = graph_.buffers[value.buffer];
    line.check(memory.kind != Buffer::Kind::constant, "view of a constant",
        "give the constant another shape");
    line.check(buffer.bytes <= memory.bytes, "view out of range",
        cat("it ends at byte ", buffer.bytes, " of ", memory.bytes));
  } else {
    value.buffer = graph_.add_buffer(buffer);
  }
  if (!s.names.empty()) {
    line.check(names_.insert(s.names[0]).second, "name given twice", escaped(s.names[0]));
    value.name = s.names[0];
  }
  if (s.word == "input") graph_.inputs.push_back(int(graph_.values.size()));
  define(line, s.results[0], std::move(value));
}

void Builder::add_node(const Reader& line, Statement& s, std::vector<int> operands) {
  line.check(
      graph_.nodes.size() < kMaxGraphValues, "too many ops", cat("at most ", kMaxGraphValues));
  Node node{.op = s.op,
      .attrs = s.fields[0],
      .in = std::move(operands),
      .role = s.fields[1].as<NodeFields>().role,
      .origin = {int(graph_.nodes.size())}};
  const Tensors inferred = infer(line, node);
  line.check(s.word == s.op->text() || s.word == node.text(), "another op",
      cat("with these attributes ", s.word, " is ", node.text()));
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
Tensors Builder::infer(const Reader& line, const Node& node) const {
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
    check(op.takes_strides(i, n, node.attrs) || graph_.values[in].contiguous(),
        cat(operand, " must be dense"));
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
  Reader("", 1, file)
      .check(text.size() <= kMaxGraphBytes, "too large",
          cat(text.size(), " bytes, at most ", kMaxGraphBytes));
  Builder builder;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Reader line(text.substr(0, end), ++number, file);
    line.check(end != std::string_view::npos, "cut short", "the last line does not end");
    text.remove_prefix(end + 1);
    if (number == 1) {
      line.header();
    } else if (!line.done()) {
      Statement s;
      statement(line, s);
      builder.add(line, s);
    }
  }
  const Reader last("", number, file);
  last.check(number > 0, "not a graph file", "it is empty");
  last.check(builder.finished(), "cut short", "no output line, which is the last");
  return builder.take();
}

}  // namespace sinter::capture
