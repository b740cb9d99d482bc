// A captured step as data: buffers (memory), values (views of buffers), nodes (ops in execution
// order). It knows no device and runs nothing: rules rewrite it, plan.h lays out its memory,
// executor.h runs it, text.h prints it, file.cpp writes and reads it.
//
// Views are values, not nodes: they launch nothing. Ops that work in place name the same value as
// before, so order is told by reads and writes of buffers (Graph::conflict), never by values alone.
// verify() holds after every pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/op.h"

namespace sinter::capture {

struct Buffer {
  enum class Kind : uint8_t {
    input,     // given at each call
    external,  // parameters, optimizer state, run-time scalars: memory that lives across steps
    constant,  // one resident number
    local,     // made and used up inside the step: the memory plan's
  };
  Kind kind = Kind::local;
  Device device;
  size_t bytes = 0;
  std::shared_ptr<Storage>
      storage;  // external and constant: what it is bound to; null in a loaded graph until bind()
  double value = 0;  // constant
  // external, and the host made it while the step ran, as Tensor::zeros() in the function does:
  // its bytes when the step ended. See Note [Constants of a step].
  Tensor constant;
};

struct Value {
  int buffer = -1;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;     // elements
  int64_t offset = 0;  // elements
  std::string name;    // inputs and externals: "x", "0.weight"
  bool contiguous() const { return strides == contiguous_strides(shape) || shape.numel() <= 1; }
  bool operator==(const Value&) const = default;
};

// The bytes of its memory that a tensor or value reaches.
struct Extent {
  int64_t begin = 0, end = 0;
  bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
  bool holds(const Extent& other) const { return begin <= other.begin && other.end <= end; }
};
Extent extent_of(const Tensor& t);
Extent extent_of(const Value& v);
// The same memory without what autograd hangs on the tensor.
inline Tensor off_tape(const Tensor& t) {
  return Tensor::view_of(t.storage(), t.dtype(), t.shape(), t.strides(), t.offset());
}

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<int> in, out;  // values; -1: an absent input
  Role role = Role::none;
  std::string module;  // path of the module that ran it, or whose gradient it makes; of a fused
                       // node "PATH + PATH"; for the reader, as are:
  uint8_t phases = 0;  // bit i: Phase(i)
  int forward = -1;    // number of the recorded node whose backward ran it
  std::vector<int> origin;     // numbers of the recorded nodes that it stands for
  const char* rule = nullptr;  // the rule that made it
  // What it is called: its op, or the label of its program.
  std::string_view text() const { return op->label_of(attrs); }
  bool reads(int value) const;
  // Does it write its operand i? Of a step's updates only the last one writes the step's state.
  bool writes_operand(size_t i) const;
  // Is f(value) true for one of the operands that it writes?
  template <class F> bool any_written(F&& f) const {
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] >= 0 && writes_operand(i) && f(in[i])) return true;
    }
    return false;
  }
};

// "forward + backward"
std::string text_of_phases(const Node& node);
// Does the node stand for nothing but recorded nodes of `origin`, which is sorted?
bool stands_for(const Node& node, const std::vector<int>& origin);

class Graph {
 public:
  std::vector<Buffer> buffers;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<int> inputs, outputs;  // values, in the order of the call
  struct Gradient {
    int param, grad;
    SINTER_FIELD_LIST(param, grad)
  };
  std::vector<Gradient>
      gradients;  // what param.grad() was at the end of the step; a rule may take it
  std::vector<std::pair<int, const char*>>
      taken;  // (param value, rule) whose gradient no longer exists

  int add_buffer(Buffer buffer);
  int add_value(Value value);
  // A dense value in a new local buffer.
  int add_local(const Shape& shape, DType dtype, Device device);
  const Buffer& buffer_of(int value) const { return buffers[values[value].buffer]; }
  Device device_of(int value) const { return buffer_of(value).device; }
  // Of its nodes, which Recording holds to one; inputs that none of them reads may lie elsewhere.
  Device device() const;
  // Without storage, for shape rules and costs; undefined for -1.
  Tensor meta(int value) const;
  Tensors metas(const std::vector<int>& ids) const;
  Cost cost(const Node& node) const;
  Cost cost() const;  // of all nodes
  // "%20 linear, %21 relu, sgd_update of 0.weight": those nodes; more than three alike as one,
  // "adam_update x6".
  std::string names(const std::vector<int>& members) const;
  // Of the step: without nodes of role data, which fetch its batch.
  size_t launches() const;

  // True if the memory of two values may overlap. An empty value overlaps all of its buffer: it has
  // a producer and readers too.
  bool overlap(int a, int b) const;
  bool writes(const Node& node, int value) const;  // writes memory of `value`
  bool reads(const Node& node, int value) const;   // reads memory of `value`
  bool changes_in_place(int buffer) const;         // does any node?
  // True if a and b may not change places.
  bool conflict(const Node& a, const Node& b) const;
  // Throws internal: every operand exists and was written before it is read; shapes are those of
  // the ops' shape rules. `unchanged`: per node, is its shape known to be right?
  void verify(const char* after, const std::vector<char>& unchanged = {}) const;
};

// How a message calls two recordings: "factor is 2 in the first recording, 3 in the second".
struct Sides {
  const char *a = "in the first recording", *b = "in the second";
};
// "" if the two recordings agree, else the first difference in words: which op it is of, where that
// stands, and what differs.
std::string difference(const Graph& a, const Graph& b, const Sides& sides = {});

// For people (text.cpp): one line per node; after '#' what is no part of the graph.
std::string dump(const Graph& graph);
std::string print_node(const Graph& graph, const Node& node);

// Graph files (file.cpp): JSON, in which dump() stands as "listing". It reads back, unless a rule
// has joined parameters.
std::string to_json(const Graph& graph);
// Whatever the text is, a graph that holds together. Throws data, naming file and place.
Graph read_graph(std::string_view text, const std::string& file);

}  // namespace sinter::capture
