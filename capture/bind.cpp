#include "capture/bind.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "capture/text.h"
#include "core/classic.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

constexpr size_t kMaxLines = 10;  // of one kind in a message

std::string lines(const std::vector<std::string>& all) {
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), kMaxLines); ++i) out += "\n    " + all[i];
  return all.size() > kMaxLines ? str(out, "\n    and ", all.size() - kMaxLines, " more") : out;
}

// Binds the buffer of a parameter to the tensor, or to a copy of it in the parameter's layout.
void bind_buffer(Graph& graph, int parameter, Tensor tensor) {
  const Value v = graph.values[parameter];
  Buffer& buffer = graph.buffers[v.buffer];
  const bool writes = graph.changes_in_place(v.buffer);
  if (tensor.strides() != v.strides && !(v.contiguous() && tensor.is_contiguous())) {
    SINTER_CHECK(v.contiguous() && !writes, state,
        str("graph: cannot bind: ", escaped(v.name), " ", tensor.describe(), " strides ",
            tensor.strides().str(), "; the graph ", writes ? "changes it where it lies, and " : "",
            "wants strides ", v.strides.str()));
    tensor = tensor.to(tensor.device());
  }
  buffer.storage = tensor.storage();
  buffer.bytes = buffer.storage->bytes();
  const int64_t shift = tensor.offset() * int64_t(size_of(v.dtype));
  for (Value& view : graph.values) {
    if (view.buffer != v.buffer) continue;
    const int64_t size = int64_t(size_of(view.dtype));
    // What else of bytes is changed in place?
    const bool is_step_state = view.dtype == DType::u8 && writes;
    SINTER_CHECK(shift % (is_step_state ? int64_t{alignof(StepState)} : size) == 0, state,
        str("graph: cannot bind: ", escaped(v.name), "; it begins between two elements of ",
            print_type(view)));
    view.offset += shift / size;
  }
}

}  // namespace

Graph load(const std::string& file) {
  ClassicStream<std::ifstream> in(file, std::ios::binary);
  SINTER_CHECK(in, data, str("graph: cannot read: ", escaped(file), "; ", error_text(errno)));
  std::string text(kMaxGraphBytes + 1, '\0');
  in.read(text.data(), std::streamsize(text.size()));
  SINTER_CHECK(
      !in.bad(), data, str("graph: cannot read: ", escaped(file), "; ", error_text(errno)));
  text.resize(size_t(in.gcount()));
  return read_graph(text, escaped(file));
}

Graph bind(Graph graph, const FindTensor& find) {
  std::vector<std::pair<int, Tensor>> found;
  std::vector<std::string> missing, different;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& v = graph.values[i];
    if (graph.buffers[v.buffer].kind != Buffer::Kind::external || v.name.empty()) continue;
    const Tensor t = find(v.name);
    if (!t.defined()) {
      missing.push_back(str("missing ", escaped(v.name), " ", print_type(v)));
    } else if (t.shape() != v.shape || t.dtype() != v.dtype) {
      different.push_back(str("shape ", escaped(v.name), ": found ", name_of(t.dtype()),
          t.shape().str(), ", graph ", print_type(v)));
    } else {
      SINTER_CHECK(found.empty() || t.device() == found[0].second.device(), device,
          str("graph: cannot bind: ", escaped(v.name), " ", t.describe(), "; others are on ",
              found[0].second.device().str()));
      found.emplace_back(i, t);
    }
  }
  SINTER_CHECK(missing.empty() && different.empty(), checkpoint,
      str("graph: parameters do not match: ", missing.size(), " missing, ", different.size(),
          " of another shape or type", lines(missing), lines(different)));
  const Device device = found.empty() ? kCpu : found[0].second.device();
  for (const Value& v : graph.values) {
    Buffer& buffer = graph.buffers[v.buffer];
    buffer.device = device;
    if (buffer.kind == Buffer::Kind::constant)
      buffer.storage = Tensor::full({}, buffer.value, v.dtype, device).storage();
  }
  for (const auto& [value, tensor] : found) bind_buffer(graph, value, tensor);
  return graph;
}

void check_forward(const Graph& graph, const std::string& file) {
  const auto require = [&](bool condition, const std::string& what) {
    SINTER_CHECK(
        condition, data, str("graph: not for predict: ", escaped(file), "; ", what), kGraphHint);
  };
  const auto changed = [&](const Buffer& buffer) {
    return buffer.kind != Buffer::Kind::local &&
           graph.changes_in_place(int(&buffer - graph.buffers.data()));
  };
  const auto changes = std::ranges::count_if(graph.buffers, changed);
  require(changes == 0, str("it changes ", changes, " tensors in place"));
  require(graph.inputs.size() == 1 && graph.outputs.size() == 1,
      str("it has ", graph.inputs.size(), " inputs and ", graph.outputs.size(),
          " outputs, wanted one of each"));
  const auto is_row = [&](const char* what, int value, const char* wanted) {
    const Value& v = graph.values[value];
    require(v.dtype == DType::f32 && v.shape.rank() == 2 && v.shape[0] == 1,
        str("its ", what, " is ", print_type(v), ", wanted ", wanted));
    require(v.contiguous() || value != graph.inputs[0],
        str("its ", what, " has strides ", v.strides.str(), ", wanted a dense one"));
  };
  is_row("input", graph.inputs[0], "f32[1, N]");
  is_row("output", graph.outputs[0], "f32[1, C]");
}

}  // namespace sinter::capture
