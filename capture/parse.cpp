// Reads the text of text.h. Whatever the bytes are, the answer is a Graph that holds together or an
// Error of kind data with file and line: sizes are bounded before they are multiplied, every op's
// own shape rule is asked, and nothing recurses.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <unordered_map>

#include "capture/text.h"

namespace sinter::capture {
namespace {

constexpr int64_t kMaxNumber = int64_t{1} << 48, kMaxLocalBytes = int64_t{1} << 52;
constexpr size_t kMaxOperands = 1 << 14, kMaxResults = 16;  // of one op

std::string shown(std::string_view token) {
  return token.empty() ? "the end of the line" : escaped(token.substr(0, 40));
}

// One line, cut into tokens. What follows # outside quotes is not seen.
class Line {
 public:
  Line(std::string_view text, size_t number, const std::string& file)
      : rest_(text), number_(number), file_(file) {
    skip();
  }

  [[noreturn]] void fault(
      std::string_view what, std::string_view facts, std::string hint = "") const {
    throw Error(Error::Kind::data,
        cat("graph: ", what, ": ", file_, " line ", number_, "; ", facts), std::move(hint));
  }
  void check(bool condition, std::string_view what, std::string_view facts) const {
    if (!condition) fault(what, facts);
  }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fault("not understood", cat(shown(token()), " where ", wanted, " is wanted"));
  }

  bool done() const { return rest_.empty(); }
  bool next_is(char c) const { return !rest_.empty() && rest_[0] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    rest_.remove_prefix(1);
    skip();
    return true;
  }
  void expect(char c) {
    if (!take(c)) unexpected(cat("'", c, "'"));
  }
  void expect_end() const {
    if (!done()) unexpected("the end of the line");
  }
  // Letters, digits, _ and . as far as they go; may be empty.
  std::string_view word() {
    size_t n = 0;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) ||
                                   rest_[n] == '_' || rest_[n] == '.'))
      ++n;
    return cut(n);
  }
  // All up to the next blank.
  std::string_view text() { return cut(token().size()); }
  int64_t integer(std::string_view what) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0 || value > kMaxNumber)
      unexpected(cat(what, " (0..2^48)"));
    cut(size_t(end - rest_.data()));
    return value;
  }
  std::string name() {
    if (!next_is('"')) unexpected("a name in quotes");
    std::string out;
    for (size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        check(!out.empty() && out.size() <= 512, "name of a bad length",
            cat(out.size(), " bytes; allowed 1..512"));
        cut(i + 1);
        return out;
      }
      unsigned byte = static_cast<unsigned char>(rest_[i]);
      if (byte == '\\') {
        const std::string_view digits = rest_.substr(i).substr(0, 4);
        if (digits.size() < 4 || digits[1] != 'x' ||
            std::from_chars(digits.data() + 2, digits.data() + 4, byte, 16).ptr !=
                digits.data() + 4)
          fault("not understood", cat(shown(digits), " in a name; allowed \\x00..\\xff"));
        i += 3;
      }
      out += char(byte);
    }
    fault("name does not end", shown(rest_));
  }
  Dims dims(std::string_view what) {
    Dims out;
    expect('[');
    while (!take(']')) {
      if (out.rank() > 0) expect(',');
      check(out.rank() < kMaxRank, cat("too many dims in ", what), cat("at most ", kMaxRank));
      out.push_back(integer("a size"));
    }
    return out;
  }

 private:
  static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  void skip() {
    while (!rest_.empty() && blank(rest_[0])) rest_.remove_prefix(1);
    if (next_is('#')) rest_ = {};
  }
  std::string_view token() const {
    size_t n = 0;
    while (n < rest_.size() && !blank(rest_[n])) ++n;
    return rest_.substr(0, n);
  }
  std::string_view cut(size_t n) {
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    skip();
    return out;
  }
  std::string_view rest_;
  size_t number_;
  const std::string& file_;
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}
  Graph run();

 private:
  void statement(Line& line);
  void define(Line& line);
  void node(Line& line, std::string_view op_name, const std::vector<int64_t>& results);
  void attribute(Line& line, Node& node) const;
  void check_node(const Line& line, const Node& node, const std::vector<Value>& results) const;
  void results(Line& line);
  int64_t number(Line& line) const;  // the N of %N
  int defined(Line& line) const;     // the value that %N is
  void add(const Line& line, int64_t number, Value value);
  Value type(Line& line) const;
  std::optional<int64_t> layout(Line& line, Value& value) const;  // the N of in=sN
  int64_t end_of(const Line& line, const Value& value) const;     // in bytes; checks the layout

  std::string_view text_;
  const std::string& file_;
  Graph graph_;
  std::unordered_map<int64_t, int> values_, storages_;
  std::set<std::string> names_;
  int64_t local_bytes_ = 0;
  bool finished_ = false;
};

Graph Parser::run() {
  Line all("", 1, file_);
  all.check(text_.size() <= kMaxGraphBytes, "too large",
      cat(text_.size(), " bytes, at most ", kMaxGraphBytes));
  size_t number = 0;
  bool first = true;
  while (!text_.empty()) {
    const size_t end = text_.find('\n');
    Line line(text_.substr(0, end), ++number, file_);
    line.check(end != std::string_view::npos, "cut short", "the last line does not end");
    text_.remove_prefix(end + 1);
    if (first) {
      if (line.word() != "sinter" || !line.take('-') || line.word() != "graph")
        line.fault(
            "not a graph file", cat("it does not begin with \"sinter-graph ", kGraphVersion, "\""));
      const int64_t version = line.integer("the version");
      line.check(version == kGraphVersion, "another version",
          cat("sinter-graph ", version, "; this build reads ", kGraphVersion));
      line.expect_end();
      first = false;
    } else if (!line.done()) {
      line.check(!finished_, "not understood", "a line after the output line, which is the last");
      statement(line);
    }
  }
  Line last("", number, file_);
  last.check(!first, "not a graph file", "it is empty");
  last.check(finished_, "cut short", "no output line, which is the last");
  return std::move(graph_);
}

void Parser::statement(Line& line) {
  if (line.next_is('%')) return define(line);
  const std::string_view word = line.word();
  if (word.empty()) line.unexpected("a statement");
  if (word == "output") return results(line);
  if (word != "gradient") return node(line, word, {});
  const int param = defined(line), grad = defined(line);
  line.check(graph_.buffers[graph_.values[param].buffer].kind == Buffer::Kind::external,
      "not a parameter", "gradient wants one");
  graph_.gradients.push_back({param, grad});
  line.expect_end();
}

int64_t Parser::number(Line& line) const {
  line.expect('%');
  return line.integer("the number of a value");
}

int Parser::defined(Line& line) const {
  const int64_t n = number(line);
  const auto it = values_.find(n);
  line.check(
      it != values_.end(), "undefined value", cat("%", n, " is not defined before this line"));
  return it->second;
}

void Parser::add(const Line& line, int64_t number, Value value) {
  line.check(
      graph_.values.size() < kMaxGraphValues, "too many values", cat("at most ", kMaxGraphValues));
  const bool fresh = values_.emplace(number, int(graph_.values.size())).second;
  line.check(fresh, "value defined twice", cat("%", number));
  graph_.add_value(std::move(value));
}

Value Parser::type(Line& line) const {
  Value value;
  const std::string_view dtype = line.word();
  if (!parse_value(dtype, value.dtype))
    line.fault("unknown element type", cat(shown(dtype), "; allowed f32, f64, bf16, i32, i64, u8"));
  value.shape = line.dims("a shape");
  int64_t n = 1;
  for (const int64_t dim : value.shape) {
    line.check(!__builtin_mul_overflow(n, std::max<int64_t>(dim, 1), &n) && n <= kMaxNumber,
        "shape too large", cat(value.shape.str(), "; at most 2^48 elements"));
  }
  value.strides = contiguous_strides(value.shape);
  return value;
}

std::optional<int64_t> Parser::layout(Line& line, Value& value) const {
  std::optional<int64_t> shared;
  while (!line.done()) {
    const std::string_view key = line.word();
    line.expect('=');
    if (key == "strides") {
      value.strides = line.dims("strides");
      line.check(value.strides.rank() == value.shape.rank(), "strides do not fit",
          cat(value.strides.str(), " for ", print_type(value)));
    } else if (key == "offset") {
      value.offset = line.integer("an offset");
    } else if (key == "in") {
      const std::string_view storage = line.word();
      int64_t n = -1;
      if (!storage.starts_with('s') || !parse_value(storage.substr(1), n) || n < 0)
        line.fault("not understood", cat("in=", shown(storage), "; a storage is s0, s1, .."));
      shared = n;
    } else {
      line.fault("not understood", cat(shown(key), " where strides, offset or in is wanted"));
    }
  }
  return shared;
}

int64_t Parser::end_of(const Line& line, const Value& value) const {
  if (value.shape.numel() == 0) return 0;
  int64_t end = value.offset + 1;
  for (int d = 0; d < value.shape.rank(); ++d) {
    int64_t reach = 0;
    const bool fits = !__builtin_mul_overflow(value.shape[d] - 1, value.strides[d], &reach) &&
                      reach <= kMaxNumber && (end += reach) <= 2 * kMaxNumber;
    line.check(fits, "layout too large",
        cat(print_type(value), " strides ", value.strides.str(), " offset ", value.offset));
  }
  return end * int64_t(size_of(value.dtype));
}

void Parser::define(Line& line) {
  std::vector<int64_t> numbers{number(line)};
  while (line.take(',') && numbers.size() < kMaxResults) numbers.push_back(number(line));
  line.expect('=');
  const std::string_view word = line.word();
  const bool input = word == "input", constant = word == "const", view = word == "view";
  if (!input && !constant && !view && word != "param") return node(line, word, numbers);
  line.check(numbers.size() == 1, "too many values", cat(word, " gives one"));

  Value value;
  if (view) {
    line.expect('(');
    const int base = graph_.values[defined(line)].buffer;
    line.expect(')');
    value = type(line);
    value.buffer = base;
    line.check(!layout(line, value), "not understood", "in= of a view; it is where its operand is");
    Buffer& buffer = graph_.buffers[base];
    const int64_t end = end_of(line, value);
    line.check(buffer.kind != Buffer::Kind::constant, "view of a constant",
        "give the constant another shape");
    if (buffer.kind == Buffer::Kind::external)
      buffer.bytes = std::max(buffer.bytes, size_t(end));  // how far it goes, bind() sees
    line.check(size_t(end) <= buffer.bytes, "view out of range",
        cat("it ends at byte ", end, " of ", buffer.bytes));
  } else if (constant) {
    double number = 0;
    const std::string_view text = line.text();
    if (!parse_value(text, number)) line.fault("not a number", shown(text));
    value = type(line);
    line.check(is_float(value.dtype), "unknown element type",
        cat(name_of(value.dtype), " for a constant; allowed f32, f64, bf16"));
    for (int d = 0; d < value.shape.rank(); ++d) value.strides[d] = 0;
    const Tensor cell = Tensor::full({}, number, value.dtype);
    value.buffer = graph_.add_buffer({.kind = Buffer::Kind::constant,
        .bytes = cell.storage()->bytes(),
        .storage = cell.storage(),
        .value = number});
    line.expect_end();
  } else {
    std::string name = line.name();
    line.check(names_.insert(name).second, "name given twice", escaped(name));
    value = type(line);
    value.name = std::move(name);
    const std::optional<int64_t> shared = layout(line, value);
    line.check(
        !input || !shared, "not understood", "in= of an input; only parameters share memory");
    const auto known = shared ? storages_.find(*shared) : storages_.end();
    value.buffer =
        known != storages_.end()
            ? known->second
            : graph_.add_buffer({.kind = input ? Buffer::Kind::input : Buffer::Kind::external});
    if (shared) storages_[*shared] = value.buffer;
    Buffer& buffer = graph_.buffers[value.buffer];
    buffer.bytes = std::max(buffer.bytes, size_t(end_of(line, value)));
    line.check(!input || value.offset == 0, "not understood",
        "offset= of an input; an input begins where it is given");
    if (input) graph_.inputs.push_back(int(graph_.values.size()));
  }
  add(line, numbers[0], std::move(value));
}

void Parser::attribute(Line& line, Node& node) const {
  const std::string_view key = line.word();
  line.expect('=');
  const std::string_view text = line.text();
  if (key == "role") {
    constexpr auto names = names_of(Role::none);
    const auto name = std::ranges::find(names, text);
    if (name == names.end() || text == name_of(Role::none))
      line.fault("not a value of role", shown(text));
    return void(node.role = Role(name - names.begin()));
  }
  int64_t whole = 0;
  Dims dims;
  if (parse_value(text, whole)) dims.push_back(whole);
  if (dims.rank() || parse_value(text, dims)) {
    for (const int64_t n : dims)
      line.check(n >= -kMaxNumber && n <= kMaxNumber, cat(key, " out of range"),
          cat(shown(text), "; at most 2^48"));
  }
  const int result = node.attrs.parse(key, text);
  const std::string_view known = node.op->attrs ? node.op->attrs->field_names : "";
  if (result == 1)
    line.fault("unknown attribute", cat(shown(key), " of ", node.op->text(), "; it has ",
                                        known.empty() ? std::string_view("none") : known));
  if (result == 2) line.fault(cat("not a value of ", key), shown(text));
}

void Parser::node(Line& line, std::string_view op_name, const std::vector<int64_t>& results) {
  Node node;
  node.op = find_op(op_name);
  node.origin = {int(graph_.nodes.size())};
  if (!node.op) {
    std::vector<std::string_view> names{"input", "param", "const", "view", "output", "gradient"};
    for (const OpDef* op : all_ops()) {
      if (!op->view) names.push_back(op->text());
    }
    const std::string nearest = nearest_word(op_name, names);
    line.fault("unknown op", shown(op_name) + (nearest.empty() ? "" : ", nearest is " + nearest));
  }
  line.check(!node.op->view, "a view op",
      cat(op_name, "; a graph file has view(%n) with shape, strides and offset"));
  line.expect('(');
  while (!line.take(')')) {
    if (!node.in.empty()) line.expect(',');
    node.in.push_back(line.take('-') ? -1 : defined(line));
    line.check(node.in.size() <= kMaxOperands, "too many operands", cat("at most ", kMaxOperands));
  }
  std::vector<Value> values;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i) line.expect(',');
    values.push_back(type(line));
  }
  node.attrs = node.op->attrs ? node.op->attrs->defaults() : Attrs();
  while (!line.done()) attribute(line, node);
  check_node(line, node, values);
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t bytes = size_t(values[i].shape.numel()) * size_of(values[i].dtype);
    local_bytes_ += int64_t(bytes);
    line.check(local_bytes_ <= kMaxLocalBytes, "too large",
        cat("all results together take ", local_bytes_, " bytes; at most 2^52"));
    values[i].buffer = graph_.add_buffer({.bytes = bytes});
    node.out.push_back(int(graph_.values.size()));
    add(line, results[i], std::move(values[i]));
  }
  graph_.nodes.push_back(std::move(node));
}

void Parser::check_node(
    const Line& line, const Node& node, const std::vector<Value>& results) const {
  const OpDef& op = *node.op;
  const int n = int(node.in.size());
  line.check(
      graph_.nodes.size() < kMaxGraphValues, "too many ops", cat("at most ", kMaxGraphValues));
  line.check(n >= op.min_inputs && n <= op.most_inputs(), "operands do not fit",
      cat(op.text(), " takes ", op.min_inputs, "..", op.most_inputs(), ", found ", n));
  bool any = false;
  for (int i = 0; i < n; ++i) {
    const int in = node.in[i];
    if (in < 0) {
      // Of ops that work in place any operand may be absent, as far as their shape rule agrees.
      line.check(op.in_place() || i >= op.min_inputs, "operands do not fit",
          cat("operand ", i, " of ", op.text(), " must not be absent"));
      continue;
    }
    any = true;
    line.check(op.takes_strides(i, n) || graph_.meta(in).is_contiguous(), "operands do not fit",
        cat("operand ", i, " of ", op.text(), " must be dense"));
    const bool constant = graph_.buffers[graph_.values[in].buffer].kind == Buffer::Kind::constant;
    line.check(!constant || !op.writes_input(i, n), "operands do not fit",
        cat(op.text(), " changes operand ", i, ", which is a constant"));
  }
  line.check(any, "operands do not fit", cat(op.text(), " has none"));
  Tensors inferred;
  try {
    if (op.infer) inferred = op.infer(graph_.metas(node.in), node.attrs);
  } catch (const Error& error) {
    line.fault("operands do not fit", error.message(), error.hint());
  }
  line.check(inferred.size() == results.size(), "results do not fit",
      cat(op.text(), " gives ", inferred.size(), ", found ", results.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    const bool same =
        results[i].shape == inferred[i].shape() && results[i].dtype == inferred[i].dtype();
    line.check(same, "results do not fit",
        cat(op.text(), " gives ", name_of(inferred[i].dtype()), inferred[i].shape().str(),
            ", found ", print_type(results[i])));
  }
}

void Parser::results(Line& line) {
  while (!line.done()) {
    if (!graph_.outputs.empty()) line.expect(',');
    const std::string name = line.name();
    const int value = defined(line);
    Value& v = graph_.values[value];
    if (graph_.buffers[v.buffer].kind == Buffer::Kind::local)
      v.name = name;  // others have one or are views
    graph_.outputs.push_back(value);
  }
  finished_ = true;
}

}  // namespace

Graph parse(std::string_view text, const std::string& file) { return Parser(text, file).run(); }

}  // namespace sinter::capture
