// Saved graphs: what is read is a graph that holds its own rules, its file is the file of what that
// reads back as, and a small one runs inside its buffers: once with each buffer in a block of its
// own, where the sanitizer sees every step beyond it, and once by the Executor, whose memory plan
// must give the same bits.
//
// Bytes that do not begin as a file do are a recipe for one: ops, operands and attributes are drawn
// from them, and one that read_graph() refuses is left out. So whatever a shape rule lets through
// is run.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "capture/bind.h"
#include "capture/executor.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "ops/optim/step_state.h"
#include "tests/capture/graph_file.h"
#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {
namespace {

using capture::Buffer, capture::Graph, capture::GraphFile, capture::Node, capture::Value;

constexpr size_t kMaxAttempts = 64, kMaxParts = 20, kMaxNodes = 64;
constexpr int64_t kMaxElements = 4096;  // of a value that is run

[[noreturn]] void fail(const std::string& what, const std::string& text) {
  std::fprintf(stderr, "%s\nin\n%s", what.c_str(), text.c_str());
  std::abort();
}

// ---- recipes

class Recipe {
 public:
  explicit Recipe(Bytes bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  size_t below(size_t n) {
    if (bytes_.empty()) return 0;
    const size_t byte = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return byte % n;
  }
  template <class T, size_t N> const T& one_of(const T (&choices)[N]) { return choices[below(N)]; }

 private:
  Bytes bytes_;
};

Dims dims(Recipe& r, size_t rank) {
  static constexpr int64_t kSizes[] = {1, 2, 3, 4, 0, 5, 8, 16, 17, 33, 48, 130};
  Dims out;
  for (size_t i = 0; i < rank; ++i) out.push_back(r.one_of(kSizes));
  return out;
}

std::optional<Strides> strides(Recipe& r, bool given, size_t rank) {
  return given ? std::optional<Strides>(dims(r, rank)) : std::nullopt;
}

void add_outside(Recipe& r, GraphFile& file, size_t number) {
  static constexpr DType kTypes[] = {
      DType::f32, DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8};
  const bool input = r.below(2);
  const DType type = r.one_of(kTypes);
  const size_t rank = r.below(4);
  const Shape shape = dims(r, rank);
  const std::optional<Strides> laid = strides(r, r.below(6) == 1, rank);
  if (input) {
    file.input(str("v", number), name_of(type), shape, laid);
  } else {
    file.param(str("v", number), name_of(type), shape, laid);
  }
}

void add_view(Recipe& r, GraphFile& file, const Graph& graph) {
  const size_t base = r.below(graph.values.size()), rank = r.below(4);
  const Shape shape = dims(r, rank);
  const std::optional<Strides> laid = strides(r, r.below(2), rank);
  const int64_t offset = r.below(2) ? int64_t(r.below(8)) : 0;
  file.view(int(base), name_of(graph.values[base].dtype), shape, laid, offset);
}

Attrs attributes(Recipe& r, const OpDef& op) {
  static constexpr const char* kTexts[] = {"1", "0", "2", "-1", "3", "0.5", "1e300", "nan", "f32",
      "f64", "bf16", "i32", "relu", "gelu", "tanh", "none", "[1]", "[0]", "[]", "[0,1]",
      "2;mul(0,1);tanh(2);3", "1;exp(0);1"};
  if (!op.attrs) return {};
  Attrs attrs = op.attrs->defaults();
  std::istringstream names{std::string(op.attrs->field_names)};
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    if (r.below(2)) attrs.parse(name, r.one_of(kTexts));
  }
  return attrs;
}

// Adds nothing if the op refuses the operands.
void add_op(Recipe& r, GraphFile& file, const Graph& graph) {
  const std::span<const OpDef* const> ops = all_ops();
  const OpDef& op = *ops[r.below(ops.size())];
  if (op.view) return;
  const size_t most = std::min<size_t>(size_t(op.most_inputs()), 24), least = size_t(op.min_inputs);
  const size_t n = least + r.below(most - least + 1);
  std::vector<int> in;
  for (size_t i = 0; i < n; ++i) {
    const bool may_be_absent = op.in_place() || i >= least;
    in.push_back(may_be_absent && r.below(3) == 1 ? -1 : int(r.below(graph.values.size())));
  }
  const Attrs attrs = attributes(r, op);
  std::map<std::string, std::string> texts;
  for (const AttrField& field : attrs.fields()) texts[std::string(field.name)] = field.text();
  std::vector<GraphFile::Result> results;
  try {
    for (const Tensor& t : op.results(graph.metas(in), attrs))
      results.push_back({name_of(t.dtype()), t.shape()});
  } catch (const Error& error) {
    if (error.kind() == Error::Kind::internal) fail(error.what(), capture::dump(graph));
    return;
  }
  file.op(op.text(), in, results, texts);
}

std::string file_of(Recipe r) {
  GraphFile file;
  file.param("step_state", "u8", {112});
  file.param("rng", "i64", {3});
  Graph graph = file.graph();
  size_t parts = 0;
  for (size_t i = 0; i < kMaxAttempts && parts < kMaxParts && !r.done(); ++i) {
    const size_t what = i < 2 ? 0 : r.below(8);
    GraphFile longer = file;
    if (what == 0) {
      add_outside(r, longer, graph.values.size());
    } else if (what == 1) {
      add_view(r, longer, graph);
    } else {
      add_op(r, longer, graph);
    }
    try {
      graph = longer.graph();
      parts += longer.json != file.json;
      file = longer;
    } catch (const Error& error) {
      check_error(error);
    }
  }
  for (size_t i = 0; i < graph.values.size(); ++i) {  // all that a graph may give: an input is none
    if (graph.buffers[graph.values[i].buffer].kind != Buffer::Kind::input) file.output(int(i));
  }
  return file.text();
}

// ---- running

bool is_small(const Graph& graph) {
  for (const Value& v : graph.values) {
    if (v.shape.numel() > kMaxElements) return false;
  }
  for (const Buffer& buffer : graph.buffers) {
    if (buffer.bytes > size_t(8 * kMaxElements)) return false;
  }
  return graph.nodes.size() <= kMaxNodes;
}

// Numbers in [-2, 2), small whole numbers (so that most labels and indices are in range), a step
// state of zeros.
Tensor contents(const Value& v, uint64_t seed) {
  if (v.dtype == DType::u8 && v.shape == Shape{sizeof(StepState)})
    return Tensor::zeros(v.shape, v.dtype);
  const Tensor t = Tensor::empty(v.shape, v.dtype);
  visit_all(v.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < t.numel(); ++i) {
      const uint32_t word = philox_word(seed, 5, uint64_t(i));
      if constexpr (std::is_integral_v<T>) {
        t.data<T>()[i] = static_cast<T>(sizeof(T) == 1 ? word : word % 64 == 0 ? -1 : word % 3);
      } else {
        t.data<T>()[i] = static_cast<T>(float(word) * 0x1p-30f - 2);
      }
    }
  });
  return t;
}

// The inputs, as the graph wants them laid out.
Tensors inputs_of(const Graph& graph) {
  Tensors inputs;
  for (const int in : graph.inputs) {
    const Value& v = graph.values[in];
    const auto storage = std::make_shared<Storage>(graph.buffers[v.buffer].bytes, kCpu);
    if (storage->bytes()) std::memset(storage->data(), 1, storage->bytes());
    const Tensor t = Tensor::view_of(storage, v.dtype, v.shape, v.strides, 0),
                 from = contents(v, uint64_t(in));
    if (v.contiguous() && t.numel()) std::memcpy(t.raw(), from.raw(), from.storage()->bytes());
    inputs.push_back(t);
  }
  return inputs;
}

Graph bound(const Graph& graph) {
  return capture::bind(graph, [&](const std::string& name) {
    for (const Value& v : graph.values) {
      if (v.name == name) return contents(v, name.size());
    }
    return Tensor();
  });
}

// Node by node, each buffer in a block of its own.
Tensors run_apart(const Graph& graph, const Tensors& inputs) {
  std::vector<std::shared_ptr<Storage>> storages;
  for (const Buffer& b : graph.buffers)
    storages.push_back(b.storage ? b.storage : std::make_shared<Storage>(b.bytes, b.device));
  for (size_t i = 0; i < inputs.size(); ++i)
    storages[graph.values[graph.inputs[i]].buffer] = inputs[i].storage();
  const auto tensor = [&](int id) {
    if (id < 0) return Tensor();
    const Value& v = graph.values[id];
    return Tensor::view_of(storages[v.buffer], v.dtype, v.shape, v.strides, v.offset);
  };
  for (const Node& node : graph.nodes) {
    Tensors in, out;
    for (const int id : node.in) in.push_back(tensor(id));
    for (const int id : node.out) out.push_back(tensor(id));
    launch_op({*node.op, in, out, node.attrs, node.role});
  }
  Tensors outputs;
  for (const int id : graph.outputs) outputs.push_back(tensor(id));
  return outputs;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(kCpu), y = b.to(kCpu);
  return x.numel() == 0 || std::memcmp(x.raw(), y.raw(), x.storage()->bytes()) == 0;
}

void run_both_ways(const Graph& graph) {
  try {
    const Graph apart = bound(graph), planned = bound(graph);
    const Tensors outputs = run_apart(apart, inputs_of(graph)), inputs = inputs_of(graph);
    capture::Executor executor(planned);
    executor.run(inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!same_bits(outputs[i], executor.outputs()[i]))
        fail(str("output ", i, " differs"), capture::dump(graph));
    }
  } catch (const Error& error) {
    // A label out of range; parameters that cannot be bound as the file wants them; an op without a
    // kernel here.
    const Error::Kind kind = error.kind();
    const bool expected =
        kind == Error::Kind::data || kind == Error::Kind::state || kind == Error::Kind::not_built;
    if (!expected) fail(error.what(), capture::dump(graph));
  }
}

}  // namespace

void one(Bytes bytes) {
  set_num_threads(1);
  std::string text(text_of(bytes));
  if (!text.starts_with('{') && !text.starts_with("sinter")) text = file_of(Recipe(bytes));
  const Graph graph = capture::read_graph(text, "F");
  graph.verify("read_graph");
  const std::string written = capture::to_json(graph);
  try {
    if (capture::to_json(capture::read_graph(written, "F")) != written)
      fail("not the same file again", written);
  } catch (const std::exception& error) {
    fail(error.what(), written);
  }
  if (is_small(graph)) run_both_ways(graph);
}

}  // namespace sinter::fuzz
