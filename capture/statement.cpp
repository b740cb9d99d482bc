#include "capture/statement.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "capture/text.h"
#include "core/numbers.h"

namespace sinter::capture {
namespace {

constexpr std::string_view kFormat = "sinter-graph";
constexpr std::string_view kWords[] = {"input", "param", "const", "view", "output", "gradient"};
constexpr size_t kMaxItems = 1 << 14;  // of one list

// Note [One grammar]
//   A statement is described once, for both ways. `text` is a Printer, which writes each part that
//   it is given, or a Reader, which takes the part from the line and sets it:
//
//       text.mark("(")      writes "("; or refuses a line that has no "(" here
//       text.value(n)       writes "%7"; or takes %7, and n is 7
//       text.more(list, i, ')')
//                           is there an item i? The list says so; or the line does, whose list
//                           goes on until ')', and then ours grows. With what separates items
//
//   So a part that is added here is both written and read. The blanks of a mark are written as they
//   stand, and any may stand between two parts that are read.
template <class Text> void statement(Text& text, Statement& s) {
  if (text.begins('%', !s.results.empty())) {
    for (size_t i = 0; text.more(s.results, i, '='); ++i) text.value(s.results[i]);
    text.mark(" = ");
  }
  text.word(s);
  if (s.word == "input" || s.word == "param") {
    text.mark(" ");
    text.name(s.name);
  } else if (s.word == "const") {
    text.mark(" ");
    text.real(s.number);
  } else if (s.word == "gradient") {
    s.operands.resize(2);  // the parameter, its gradient
    for (int64_t& value : s.operands) {
      text.mark(" ");
      text.value(value);
    }
  } else if (s.word == "output") {
    for (size_t i = 0; text.more(s.outputs, i, '\0'); ++i) {
      if (i == 0) text.mark(" ");
      text.name(s.outputs[i].name);
      text.mark(" ");
      text.value(s.outputs[i].value);
    }
  } else {
    text.mark("(");
    for (size_t i = 0; text.more(s.operands, i, ')'); ++i) {
      if (!text.absent(s.operands[i])) text.value(s.operands[i]);
    }
    text.mark(")");
  }
  s.types.resize(s.results.size());
  for (size_t i = 0; i < s.types.size(); ++i) {
    text.mark(i ? ", " : " ");
    text.type(s.types[i]);
  }
  text.fields(s);
}

struct Printer {
  std::string out;

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

std::string shown(std::string_view token) {
  return token.empty() ? "the end of the line" : escaped(token.substr(0, 40));
}

// Cuts a line into its parts. What follows # outside quotes is not seen.
class Reader {
 public:
  explicit Reader(const Line& line) : line_(line), rest_(line.text) { skip(); }

  bool done() const { return rest_.empty(); }
  void end() const {
    if (!done()) unexpected("the end of the line");
  }
  bool begins(char c, bool = false) const { return !done() && rest_[0] == c; }
  template <class T> bool more(std::vector<T>& items, size_t i, char end) {
    if (end ? begins(end) : done()) return false;
    if (i > 0 && !take(',')) unexpected(end ? cat("',' or '", end, "'") : "','");
    line_.check(i < kMaxItems, "too many values", cat("at most ", kMaxItems, " in a list"));
    items.emplace_back();
    return true;
  }
  void mark(std::string_view text) {
    for (const char c : text) {
      if (c != ' ' && !take(c)) unexpected(cat("'", c, "'"));
    }
  }
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
    const std::string text = this->text();
    if (!parse_value(text, number)) line_.fault("not a number", shown(text));
  }
  void type(Value& value);
  void fields(Statement& s);

  // Letters, digits, _ . and - as far as they go; may be empty.
  std::string_view letters() {
    const auto is_letter = [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '.' || c == '-';
    };
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

 private:
  [[noreturn]] void unexpected(std::string_view wanted) const {
    line_.fault("not understood", cat(shown(token()), " where ", wanted, " is wanted"));
  }
  bool take(char c) {
    if (!begins(c)) return false;
    cut(1);
    return true;
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
  // The same; of a list in brackets all up to the last one, without its blanks.
  std::string text() {
    const bool list = begins('[');
    std::string out;
    std::string_view part;
    do {
      out += part = cut(token().size());
    } while (list && !done() && !part.ends_with(']'));
    return out;
  }

  const Line& line_;
  std::string_view rest_;
};

void Reader::word(Statement& s) {
  s.word = letters();
  if (s.word.empty()) unexpected("a statement");
  s.op = find_op(s.word);
  if (s.op) {
    line_.check(!s.op->view, "a view op",
        cat(s.word, "; a graph file has view(%n) with shape, strides and offset"));
    s.fields = {s.op->attrs ? s.op->attrs->defaults() : Attrs(), NodeFields()};
  } else if (s.word == "input" || s.word == "param" || s.word == "view") {
    s.fields = {Placement()};
  } else if (std::ranges::find(kWords, s.word) == std::end(kWords)) {
    std::vector<std::string_view> names(std::begin(kWords), std::end(kWords));
    for (const OpDef* op : all_ops()) {
      if (!op->view) names.push_back(op->text());
    }
    const std::string nearest = nearest_word(s.word, names);
    line_.fault("unknown op", shown(s.word) + (nearest.empty() ? "" : ", nearest is " + nearest));
  }
}

void Reader::name(std::string& out) {
  if (!begins('"')) unexpected("a name in quotes");
  for (size_t i = 1; i < rest_.size(); ++i) {
    if (rest_[i] == '"') {
      line_.check(!out.empty() && out.size() <= 512, "name of a bad length",
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
        line_.fault("not understood", cat(shown(code), " in a name; allowed \\x00..\\xff"));
      i += 3;
    }
    out += char(byte);
  }
  line_.fault("name does not end", shown(rest_));
}

void Reader::type(Value& value) {
  const std::string_view dtype = letters();
  if (!parse_value(dtype, value.dtype))
    line_.fault(
        "unknown element type", cat(shown(dtype), "; allowed ", join(names_of(value.dtype))));
  double elements = 1;  // in f64, which does not overflow
  for (mark("["); !take(']');) {
    if (value.shape.rank() > 0) mark(",");
    line_.check(value.shape.rank() < kMaxRank, "too many dims", cat("at most ", kMaxRank));
    value.shape.push_back(whole("a size"));
    elements *= double(std::max<int64_t>(value.shape[-1], 1));
  }
  line_.check(elements <= double(kMaxNumber), "shape too large",
      cat(value.shape.str(), "; at most 2^48 elements"));
  value.strides = contiguous_strides(value.shape);
}

void Reader::fields(Statement& s) {
  if (s.fields.empty()) end();
  while (!done()) {
    const std::string_view key = letters();
    mark("=");
    const std::string text = this->text();
    int64_t whole = 0;
    Dims numbers;
    if (parse_value(text, whole)) numbers = {whole};
    if (numbers.rank() > 0 || parse_value(text, numbers)) {
      for (const int64_t n : numbers)
        line_.check(n >= -kMaxNumber && n <= kMaxNumber, cat(key, " out of range"),
            cat(shown(text), "; at most 2^48"));
    }
    int result = 1;
    for (size_t i = 0; result == 1 && i < s.fields.size(); ++i)
      result = s.fields[i].parse(key, text);
    const AttrType* const known = s.fields[0].type();
    if (result == 1)
      line_.fault("unknown attribute",
          cat(shown(key), " of ", s.word, "; it has ",
              known && !known->field_names.empty() ? known->field_names : "none"));
    if (result == 2) line_.fault(cat("not a value of ", key), shown(text));
  }
}

}  // namespace

std::string print_type(const Value& value) { return cat(name_of(value.dtype), value.shape.str()); }

std::string print(Statement s) {
  Printer printer;
  statement(printer, s);
  return std::move(printer.out);
}

void Line::fault(std::string_view what, std::string_view facts, std::string hint) const {
  throw Error(Error::Kind::data, cat("graph: ", what, ": ", file, " line ", number, "; ", facts),
      std::move(hint));
}

void read_header(const Line& line) {
  Reader reader(line);
  line.check(reader.letters() == kFormat, "not a graph file",
      cat("it does not begin with \"", kFormat, " ", kGraphVersion, "\""));
  const int64_t version = reader.whole("the version");
  line.check(version == kGraphVersion, "another version",
      cat(kFormat, " ", version, "; this build reads ", kGraphVersion));
  reader.end();
}

std::optional<Statement> read(const Line& line) {
  Reader reader(line);
  if (reader.done()) return std::nullopt;
  Statement s;
  statement(reader, s);
  return s;
}

}  // namespace sinter::capture
