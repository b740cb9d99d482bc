#include "capture/bind.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "capture/text.h"
#include "ops/ops.h"

namespace sinter::capture {
namespace {

constexpr size_t kMaxLines = 10;  // of one kind in a message

std::string lines(const std::vector<std::string>& all) {
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), kMaxLines); ++i) out += "\n    " + all[i];
  return all.size() > kMaxLines ? cat(out, "\n    and ", all.size() - kMaxLines, " more") : out;
}

struct Bound {
  int value;
  Tensor tensor;
};

// By how many bytes the tensors lie further back in one storage than the values in their buffer;
// nothing if they lie otherwise.
std::optional<int64_t> shift_of(const Graph& graph, const std::vector<Bound>& parts) {
  std::optional<int64_t> shift;
  for (const auto& [value, tensor] : parts) {
    const Value& v = graph.values[value];
    const int64_t here = (tensor.offset() - v.offset) * int64_t(size_of(v.dtype));
    const bool same_layout =
        (v.contiguous() && tensor.is_contiguous()) || tensor.strides() == v.strides;
    if (!same_layout || here < 0 || tensor.storage() != parts[0].tensor.storage() ||
        shift.value_or(here) != here)
      return std::nullopt;
    shift = here;
  }
  return shift;
}

void bind_buffer(Graph& graph, int buffer, const std::vector<Bound>& parts) {
  Buffer& b = graph.buffers[buffer];
  const std::string& name = graph.values[parts[0].value].name;
  std::optional<int64_t> shift = shift_of(graph, parts);
  std::shared_ptr<Storage> storage = parts[0].tensor.storage();
  if (!shift || *shift + b.bytes > storage->bytes()) {
    SINTER_CHECK(!graph.changes_in_place(buffer), state,
        cat("graph: cannot bind: ", escaped(name), " ", parts[0].tensor.describe(),
            "; the graph changes it, and it must lie in one storage",
            parts.size() > 1 ? " with " + escaped(graph.values[parts[1].value].name) : "",
            " as it did when the graph was saved"));
    storage = Tensor::zeros({int64_t(b.bytes)}, DType::u8, parts[0].tensor.device()).storage();
    for (const Bound& part : parts) {
      const Value& v = graph.values[part.value];
      SINTER_CHECK(v.contiguous(), state,
          cat("graph: cannot bind: ", escaped(v.name), " ", part.tensor.describe(),
              "; the graph wants strides ", v.strides.str()));
      Tensor to = Tensor::view_of(storage, v.dtype, v.shape, v.strides, v.offset);
      launch_op({kCopyOp, {&part.tensor, 1}, {&to, 1}, Attrs(), Role::none});
    }
    shift = 0;
  }
  b.storage = std::move(storage);
  b.bytes = b.storage->bytes();
  for (Value& v : graph.values) {
    if (v.buffer != buffer) continue;
    const int64_t size = int64_t(size_of(v.dtype));
    const bool is_step_state =
        v.dtype == DType::u8 &&
        graph.changes_in_place(buffer);  // what else of bytes is changed in place
    SINTER_CHECK(*shift % (is_step_state ? int64_t{alignof(StepState)} : size) == 0, state,
        cat("graph: cannot bind: ", escaped(name), "; it begins between two elements of ",
            print_type(v)));
    v.offset += *shift / size;
  }
}

}  // namespace

Graph load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  SINTER_CHECK(in, data, cat("graph: cannot read: ", escaped(file), "; ", std::strerror(errno)));
  std::string text(kMaxGraphBytes + 1, '\0');
  in.read(text.data(), std::streamsize(text.size()));
  SINTER_CHECK(
      !in.bad(), data, cat("graph: cannot read: ", escaped(file), "; ", std::strerror(errno)));
  text.resize(size_t(in.gcount()));
  return parse(text, escaped(file));
}

Graph bind(Graph graph, const FindTensor& find) {
  std::vector<std::vector<Bound>> parts(graph.buffers.size());
  std::vector<std::string> missing, different;
  Device device = kCpu;
  bool any = false;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& v = graph.values[i];
    if (graph.buffers[v.buffer].kind != Buffer::Kind::external || v.name.empty()) continue;
    const Tensor t = find(v.name);
    if (!t.defined()) {
      missing.push_back(cat("missing ", escaped(v.name), " ", print_type(v)));
    } else if (t.shape() != v.shape || t.dtype() != v.dtype) {
      different.push_back(cat("shape ", escaped(v.name), ": found ", name_of(t.dtype()),
          t.shape().str(), ", graph ", print_type(v)));
    } else {
      SINTER_CHECK(!any || t.device() == device, device,
          cat("graph: cannot bind: ", escaped(v.name), " ", t.describe(), "; others are on ",
              device.str()));
      device = t.device();
      any = true;
      parts[v.buffer].push_back({int(i), t});
    }
  }
  SINTER_CHECK(missing.empty() && different.empty(), checkpoint,
      cat("graph: parameters do not match: ", missing.size(), " missing, ", different.size(),
          " of another shape or type", lines(missing), lines(different)));
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    Buffer& buffer = graph.buffers[b];
    buffer.device = device;
    if (buffer.kind == Buffer::Kind::constant) {
      const auto v = std::ranges::find_if(
          graph.values, [&](const Value& value) { return value.buffer == int(b); });
      buffer.storage =
          Tensor::full({}, buffer.value, v == graph.values.end() ? DType::f32 : v->dtype, device)
              .storage();
    }
    if (!parts[b].empty()) bind_buffer(graph, int(b), parts[b]);
  }
  return graph;
}

void check_forward(const Graph& graph, const std::string& file) {
  const auto require = [&](bool condition, const std::string& what) {
    SINTER_CHECK(condition, data, cat("graph: not for predict: ", escaped(file), "; ", what),
        "dump() of the graph of a prediction writes one that fits");
  };
  const auto changed = [&](const Buffer& buffer) {
    return buffer.kind != Buffer::Kind::local &&
           graph.changes_in_place(int(&buffer - graph.buffers.data()));
  };
  const auto changes = std::ranges::count_if(graph.buffers, changed);
  require(changes == 0, cat("it changes ", changes, " tensors in place"));
  require(graph.inputs.size() == 1 && graph.outputs.size() == 1,
      cat("it has ", graph.inputs.size(), " inputs and ", graph.outputs.size(),
          " outputs, wanted one of each"));
  const auto is_row = [&](const char* what, int value, const char* wanted) {
    const Value& v = graph.values[value];
    require(v.dtype == DType::f32 && v.shape.rank() == 2 && v.shape[0] == 1,
        cat("its ", what, " is ", print_type(v), ", wanted ", wanted));
    require(v.contiguous() || value != graph.inputs[0],
        cat("its ", what, " has strides ", v.strides.str(), ", wanted a dense one"));
  };
  is_row("input", graph.inputs[0], "f32[1, N]");
  is_row("output", graph.outputs[0], "f32[1, C]");
}

}  // namespace sinter::capture
