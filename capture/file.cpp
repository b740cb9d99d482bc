// Graph files: JSON made and read by the fields below. Whatever the bytes are, the answer is a
// Graph that holds together or an Error of kind data with file and place: numbers are bounded
// before they are multiplied, every op's own shape rule is asked, and nothing recurses.
#include <algorithm>
#include <map>
#include <set>

#include "capture/text.h"
#include "core/json.h"
#include "ops/fused/fused.h"

namespace sinter::capture {

const char kGraphHint[] = "to_json() of the graph of a prediction writes one that fits";

namespace {

constexpr std::string_view kSchema = "sinter.graph/2";
constexpr size_t kMaxItems = 1 << 15, kMaxName = 512;
constexpr int kMaxDepth = 4;  // of a file: its lists, their items, lists in these, numbers
constexpr int64_t kMaxLocalBytes = int64_t{1} << 52;
// Of numbers in a file, so that sums and products of a few of them fit 64 bits.
constexpr int64_t kMaxNumber = int64_t{1} << 48;

// What a value is in a listing: those of Buffer::Kind, in its order, begin their memory.
enum class Word : uint8_t { input, param, constant, result, view };
constexpr std::string_view kWords[] = {"input", "param", "const", "result", "view"};
constexpr const auto& names_of(Word) { return kWords; }

// Numbers of constants and attributes are texts: JSON has no infinity.
struct FileValue {
  Word is = Word::result;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;
  int of = -1;  // a view: of which value, and where behind its memory's begin
  int64_t offset = 0;
  std::string name, number;
  SINTER_FIELD_LIST(is, dtype, shape, strides, of, offset, name, number)
};
struct FileNode {
  std::string op;
  std::map<std::string, std::string> attrs;
  std::vector<int> in, out;
  Role role = Role::none;
  SINTER_FIELD_LIST(op, attrs, in, out, role)
};
struct FileGraph {
  std::string schema{kSchema};
  std::vector<std::string> listing;  // for people
  std::vector<FileValue> values;
  std::vector<FileNode> nodes;
  std::vector<Graph::Gradient> gradients;
  std::vector<int> outputs;
  SINTER_FIELD_LIST(schema, newer(listing), values, nodes, gradients, outputs)
};

// Reads a file, or throws data: "graph: <what>: <file><place>; <facts>".
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : file_(file) { read(text); }
  Graph graph;

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view facts, std::string hint = "") {
    throw Error(
        Error::Kind::data, str("graph: ", what, ": ", file_, place_, "; ", facts), std::move(hint));
  }
  void check(bool condition, std::string_view what, std::string_view facts) {
    if (!condition) refuse(what, facts);
  }
  Json parsed(std::string_view text);
  void read(std::string_view text);
  void add_value(FileValue from);
  int memory_of(const FileValue& from, const Value& v);
  void add_node(FileNode from);
  Attrs attrs_of(const OpDef& op, const FileNode& from);
  Tensors infer(const Node& node);
  // An operand, or what the graph gives: it is made by now.
  void check_known(int value);

  const std::string& file_;
  std::string place_;       // ".nodes[3]"
  std::vector<int> roots_;  // per buffer: the value that begins it
  std::vector<char> made_;  // per buffer
  std::set<std::string> names_;
  int64_t local_bytes_ = 0;
};

Json Reader::parsed(std::string_view text) {
  check(text.size() <= kMaxGraphBytes, "too large",
      str(text.size(), " bytes, at most ", kMaxGraphBytes));
  if (text.starts_with("sinter-graph "))
    refuse("of an earlier build", str("it is no JSON of schema ", kSchema), kGraphHint);
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    check(depth <= kMaxDepth, "not understood", str("more than ", kMaxDepth, " levels of lists"));
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::exception& error) {
    const std::string_view why = error.what();
    refuse("not a graph file", escaped(why.substr(why.find(']') + 2, 200)), kGraphHint);
  }
}

void Reader::read(std::string_view text) {
  const Json json = parsed(text);
  if (!json.is_object() || !json.contains("schema"))
    refuse("not a graph file", "no JSON object with a schema", kGraphHint);
  check(json["schema"] == kSchema, "another version",
      str("its schema is ", escaped(json_text(json["schema"]).substr(0, 60)), ", this build reads ",
          kSchema));
  FileGraph file;
  try {
    read_json(json, file, file_);
  } catch (const Error& error) {
    throw Error(Error::Kind::data, "graph: not understood: " + escaped(error.message()));
  }
  const size_t most = std::max(file.values.size(), file.nodes.size());
  check(most <= kMaxItems, "too large", str(most, " items in a list, at most ", kMaxItems));
  for (size_t v = 0; v < file.values.size(); ++v) {
    place_ = str(".values[", v, "]");
    add_value(std::move(file.values[v]));
  }
  for (size_t n = 0; n < file.nodes.size(); ++n) {
    place_ = str(".nodes[", n, "]");
    add_node(std::move(file.nodes[n]));
  }
  place_ = ".gradients";
  graph.gradients = std::move(file.gradients);
  for (const Graph::Gradient& g : graph.gradients) {
    check_known(g.param);
    check_known(g.grad);
    check(graph.buffer_of(g.param).kind == Buffer::Kind::external, "not a parameter",
        str("%", g.param));
  }
  place_ = ".outputs";
  graph.outputs = std::move(file.outputs);
  for (const int output : graph.outputs) check_known(output);
}

void Reader::add_value(FileValue from) {
  Value v{.dtype = from.dtype, .shape = from.shape, .strides = from.strides};
  v.offset = from.offset;
  check(v.strides.rank() == v.shape.rank(), "strides do not fit",
      str(v.strides.str(), " for ", print_type(v)));
  double elements = 1, end = double(v.offset);  // in f64, which does not overflow
  for (int d = 0; d < v.shape.rank(); ++d) {
    check(v.shape[d] >= 0 && v.strides[d] >= 0, "layout does not fit", "no number may be negative");
    elements *= double(std::max<int64_t>(v.shape[d], 1));
    end += double(std::max<int64_t>(v.shape[d], 1) - 1) * double(v.strides[d]);
  }
  check(elements <= double(kMaxNumber), "shape too large",
      str(v.shape.str(), "; at most 2^48 elements"));
  check(v.offset >= 0 && end <= double(kMaxNumber), "layout too large",
      str(print_type(v), " strides ", v.strides.str(), " offset ", v.offset));
  v.buffer = memory_of(from, v);
  v.name = std::move(from.name);
  graph.add_value(std::move(v));
}

int Reader::memory_of(const FileValue& from, const Value& v) {
  const int number = int(graph.values.size());
  // An empty value needs no memory.
  const size_t end = v.shape.numel() == 0 ? 0 : size_t(extent_of(v).end);
  if (from.is == Word::view) {
    check(from.of >= 0 && from.of < number, "undefined value",
        str("%", from.of, " is not defined before"));
    const int buffer = graph.values[from.of].buffer;
    const Buffer& memory = graph.buffers[buffer];
    check(memory.kind != Buffer::Kind::constant, "view of a constant",
        "give the constant another shape");
    check(end <= memory.bytes, "view out of range",
        str("it ends at byte ", end, " of ", memory.bytes));
    check(from.name.empty() || memory.kind == Buffer::Kind::local, "name of a view",
        escaped(from.name.substr(0, kMaxName)) + "; of an input or a parameter itself only");
    return buffer;
  }
  Buffer buffer{.kind = Buffer::Kind(from.is), .bytes = end};
  check(v.offset == 0, "not understood", str("offset ", v.offset, "; only views have one"));
  if (from.is == Word::constant) {
    check(is_float(v.dtype), "unknown element type",
        str(name_of(v.dtype), " for a constant; allowed f32, f64, bf16"));
    check(std::ranges::count(v.strides, 0) == v.strides.rank(), "strides do not fit",
        str(v.strides.str(), "; those of a constant are 0"));
    check(
        parse_value(from.number, buffer.value), "not a number", escaped(from.number.substr(0, 40)));
    buffer.bytes = size_of(v.dtype);
  } else if (from.is != Word::result) {
    check(!from.name.empty() && from.name.size() <= kMaxName, "name of a bad length",
        str(from.name.size(), " bytes; allowed 1..", kMaxName));
    check(names_.insert(from.name).second, "name given twice", escaped(from.name));
    if (from.is == Word::input) graph.inputs.push_back(number);
  }
  roots_.push_back(number);
  made_.push_back(from.is != Word::result);
  return graph.add_buffer(std::move(buffer));
}

void Reader::check_known(int value) {
  check(value >= 0 && size_t(value) < graph.values.size() && made_[graph.values[value].buffer],
      "undefined value", str("%", value, " is not made before"));
}

void Reader::add_node(FileNode from) {
  const Label* const label = find_label(from.op);
  const OpDef* const op = label && label->op->label ? label->op : find_op(from.op);
  if (!op) {
    std::vector<std::string_view> names;
    for (const OpDef* known : all_ops()) {
      if (!known->view) names.push_back(known->text());
    }
    for (const Label& known : labels()) {
      if (known.op->label) names.push_back(known.text());
    }
    const std::string nearest = nearest_word(from.op, names);
    refuse("unknown op",
        escaped(from.op.substr(0, 40)) + (nearest.empty() ? "" : ", nearest is " + nearest));
  }
  check(!op->view, "a view op", from.op + "; a graph file has a view as a value");
  Node node{.op = op, .attrs = attrs_of(*op, from), .in = from.in, .out = from.out};
  node.role = from.role;
  node.origin = {int(graph.nodes.size())};
  const Tensors inferred = infer(node);
  check(from.op == op->text() || from.op == node.text(), "another op",
      str("with these attributes ", from.op, " is ", node.text()));
  check(inferred.size() == node.out.size(), "results do not fit",
      str(from.op, " gives ", inferred.size(), ", found ", node.out.size()));
  for (size_t i = 0; i < inferred.size(); ++i) {
    const int out = node.out[i];
    const bool fresh = out >= 0 && size_t(out) < graph.values.size() &&
                       !made_[graph.values[out].buffer] && roots_[graph.values[out].buffer] == out;
    check(fresh, "not a result", str("%", out, "; wanted one of \"result\" that no op gives yet"));
    const Value& v = graph.values[out];
    check(v.shape == inferred[i].shape() && v.dtype == inferred[i].dtype() && v.contiguous(),
        "results do not fit",
        str(from.op, " gives ", name_of(inferred[i].dtype()), inferred[i].shape().str(), ", found ",
            print_type(v), v.contiguous() ? "" : ", not dense"));
    local_bytes_ += int64_t(graph.buffers[v.buffer].bytes);
    check(local_bytes_ <= kMaxLocalBytes, "too large",
        str("all results together take ", local_bytes_, " bytes; at most 2^52"));
    made_[v.buffer] = 1;
  }
  graph.nodes.push_back(std::move(node));
}

Attrs Reader::attrs_of(const OpDef& op, const FileNode& from) {
  Attrs attrs = op.attrs ? op.attrs->defaults() : Attrs();
  for (const auto& [name, text] : from.attrs) {
    const std::string key = escaped(name.substr(0, 40)), found = escaped(text.substr(0, 40));
    int64_t whole = 0;
    Dims numbers;
    if (parse_value(text, whole)) numbers = {whole};
    if (numbers.rank() > 0 || parse_value(text, numbers)) {
      for (const int64_t n : numbers)
        check(n >= -kMaxNumber && n <= kMaxNumber, key + " out of range", found + "; at most 2^48");
    }
    const int result = attrs.parse(name, text);
    const std::string_view known = op.attrs ? op.attrs->field_names : "";
    check(result != 1, "unknown attribute",
        str(key, " of ", from.op, "; it has ", known.empty() ? "none" : known));
    check(result != 2, "not a value of " + key, found);
  }
  return attrs;
}

// What the op gives for these operands, once they are what every op asks for.
Tensors Reader::infer(const Node& node) {
  const OpDef& op = *node.op;
  const int n = int(node.in.size());
  const auto want = [&](bool condition, std::string_view facts) {
    check(condition, "operands do not fit", facts);
  };
  want(n >= op.min_inputs && n <= op.most_inputs(),
      str(op.text(), " takes ", op.min_inputs, "..", op.most_inputs(), ", found ", n));
  for (int i = 0; i < n; ++i) {
    const int in = node.in[i];
    const std::string operand = str("operand ", i, " of ", op.text());
    // Of ops that work in place any operand may be absent, as far as their shape rule agrees.
    want(in != -1 || op.in_place() || i >= op.min_inputs, str(operand, " must not be absent"));
    if (in == -1) continue;
    check_known(in);
    want(op.takes_strides(i, n, node.attrs) || graph.values[in].contiguous(),
        str(operand, " must be dense"));
    want(graph.buffer_of(in).kind != Buffer::Kind::constant || !op.writes_input(i, n),
        str(op.text(), " changes operand ", i, ", which is a constant"));
  }
  want(std::ranges::any_of(node.in, [](int in) { return in >= 0; }), str(op.text(), " has none"));
  try {
    return op.results(graph.metas(node.in), node.attrs);
  } catch (const Error& error) {
    refuse("operands do not fit", error.message(), error.hint());
  }
}

}  // namespace

std::string to_json(const Graph& recorded) {
  const auto [graph, lines, numbers] = listing_of(recorded);
  FileGraph file{.listing = lines, .gradients = graph.gradients, .outputs = graph.outputs};
  std::map<int, int> roots;  // by buffer
  for (const Value& v : graph.values) {
    const Buffer& buffer = graph.buffers[v.buffer];
    const auto [root, fresh] = roots.emplace(v.buffer, int(file.values.size()));
    file.values.push_back({.is = fresh ? Word(buffer.kind) : Word::view,
        .dtype = v.dtype,
        .shape = v.shape,
        .strides = v.strides,
        .of = fresh ? -1 : root->second,
        .offset = v.offset,
        .name = v.name,
        .number = buffer.kind == Buffer::Kind::constant ? print_value(buffer.value) : ""});
  }
  for (const Node& node : graph.nodes) {
    FileNode& to = file.nodes.emplace_back(
        FileNode{std::string(node.text()), {}, node.in, node.out, node.role});
    for (const AttrField& field : node.attrs.fields())
      to.attrs[std::string(field.name)] = field.text();
  }
  std::string text;
  const Json json(file);
  for (const auto& [key, part] : json.items()) {  // the items of each list on lines of their own
    text += str(text.empty() ? "{" : ",\n", json_text(key), ": ");
    std::string items;
    for (const Json& item : part.is_array() ? part : Json::array())
      items += (items.empty() ? "\n  " : ",\n  ") + json_text(item);
    text += part.is_array() ? str("[", items, "]") : json_text(part);
  }
  return text + "}\n";
}

Graph read_graph(std::string_view text, const std::string& file) {
  return Reader(text, file).graph;
}

}  // namespace sinter::capture
