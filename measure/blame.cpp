#include "measure/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "capture/text.h"
#include "core/device/memory.h"
#include "core/numbers.h"
#include "core/text_grid.h"
#include "measure/step_walk.h"
#include "ops/ops.h"

namespace sinter::measure {
namespace {

using capture::Graph, capture::Node;

// With its strides.
Tensor copied_to(const Tensor& t, Device device) {
  if (!t.defined()) return {};
  const Storage& from = *t.storage();
  auto to = std::make_shared<Storage>(from.bytes(), device);
  copy_between(to->data(), device, from.data(), from.device(), from.bytes());
  return Tensor::view_of(std::move(to), t.dtype(), t.shape(), t.strides(), t.offset());
}

// A call by itself: its operands are on the host.
struct SingleCall {
  const OpDef& op;
  Attrs attrs;
  Role role;
  Tensors in;
};

// The list of exact_results(), as the device's kernel gives it.
Tensors found_results(const SingleCall& call, Device device, const BlameOptions& options) {
  Tensors in, out;
  for (const Tensor& t : call.in) in.push_back(copied_to(t, device));
  for (const Tensor& t : call.op.results(in, call.attrs)) {
    out.push_back(Tensor::empty(t.shape(), t.dtype(), device));
    fill_bytes(out.back().raw(), device, 0xff, out.back().storage()->bytes());  // NaN
  }
  options.launch({call.op, in, out, call.attrs, call.role});
  synchronize(device);
  const Tensors changed = changed_operands(call.op, in);
  out.insert(out.end(), changed.begin(), changed.end());
  for (Tensor& t : out) t = t.to(kCpu);
  return out;
}

// Sizes that are equal shrink together.
Tensor shrunk(const Tensor& t, int64_t from, int64_t to) {
  if (!t.defined()) return t;
  Tensor part = t;
  for (int d = 0; d < t.rank(); ++d) {
    if (t.size(d) == from) part = slice(part, d, 0, to);
  }
  return t.is_contiguous() ? contiguous(part) : part;
}

bool still_wrong(const SingleCall& call, Device device, const BlameOptions& options) {
  try {
    call.op.results(call.in, call.attrs);  // refuses most of them, and soon
    if (call.op.limit && !call.op.limit(call.in, call.attrs).empty()) return false;
    const Tensors found = found_results(call, device, options);
    return worst_deviation(found, exact_results(call.op, call.in, call.attrs)).exceeds();
  } catch (const Error&) {
    return false;  // no operands for this op
  }
}

// Sizes to try for one of n: 1, 2, 3, 4, 6, 9, .., and n - 1.
std::vector<int64_t> smaller_sizes(int64_t n) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size < n - 1; size += std::max<int64_t>(size / 2, 1))
    sizes.push_back(size);
  if (n > 1) sizes.push_back(n - 1);
  return sizes;
}

// Operands that show it, of which no size can be one less: each size in turn, the largest first,
// becomes the first one that shows it, until none gets smaller.
Tensors smallest_operands(SingleCall call, Device device, const BlameOptions& options) {
  for (bool changed = true; changed;) {
    changed = false;
    std::set<int64_t, std::greater<>> sizes;
    for (const Tensor& t : call.in) {
      for (int d = 0; t.defined() && d < t.rank(); ++d) {
        sizes.insert(t.size(d));
      }
    }
    for (const int64_t size : sizes) {
      for (const int64_t n : smaller_sizes(size)) {
        SingleCall smaller = call;
        for (Tensor& t : smaller.in) t = shrunk(t, size, n);
        if (!still_wrong(smaller, device, options)) continue;
        call.in = smaller.in;
        changed = true;
        break;
      }
    }
  }
  return call.in;
}

std::string described(const Tensors& operands) {
  std::string all;
  for (const Tensor& t : operands) {
    if (t.defined()) all += str(all.empty() ? "" : ", ", name_of(t.dtype()), t.shape().str());
  }
  return all;
}

std::string mode_of(const CheckedOp& op) {
  return str(op.device.str(), op.fused ? " fused" : " eager");
}

// Checks the ops of a graph, on one device.
void check_graph(Blame& blame, const Graph& graph, const Tensors& inputs, Device device, bool fused,
    const BlameOptions& options) {
  StepWalk walk(graph, inputs, StepWalk::Memory::apart);
  const std::vector<int> numbers = capture::file_numbers(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const SingleCall call{*node.op, node.attrs, node.role, walk.in(n)};
    const std::vector<ExactResult> exact = exact_results(call.op, call.in, call.attrs);
    const std::string number = node.out.empty() ? "" : str("%", numbers[node.out[0]], " ");
    blame.ops.push_back({device, fused, str(number, node.text()), node.rule, node.module,
        worst_deviation(found_results(call, device, options), exact)});
    const Deviation& worst = blame.ops.back().worst;
    if (worst.exceeds() && !blame.first) {
      blame.first = blame.ops.size() - 1;
      blame.element = str("result ", worst.result, " ",
          index_of(worst.at, exact[worst.result].value.shape()).str());
      blame.smallest = described(smallest_operands(call, device, options));
    }
    for (size_t r = 0; r < exact.size() && !blame.first_nan; ++r) {
      const std::string found = not_finite(exact[r].value);
      if (!found.starts_with("nan")) continue;
      for (size_t i = 0; i < call.in.size(); ++i) {
        if (node.in[i] >= 0) call.in[i].autograd().name = graph.values[node.in[i]].name;
      }
      blame.first_nan = blame.ops.size() - 1;
      blame.nan = str(found, " of result ", r, "; operands ", described(call.in), "; ",
          finiteness(call.op, call.in));
    }
    Tensors values;
    for (const ExactResult& result : exact) values.push_back(result.value);
    walk.put(n, values);
  }
}

}  // namespace

Blame blame(const Graph& recorded, const Tensors& inputs, const BlameOptions& options) {
  Blame blame;
  for (const Device device : options.devices) {
    Graph graph = recorded;
    for (capture::Buffer& buffer : graph.buffers) buffer.device = device;
    check_graph(blame, graph, inputs, device, false, options);
    const capture::Rewriter fused = capture::rewrite(graph, options.rules, device.type);
    check_graph(blame, fused.graph, inputs, device, true, options);
  }
  return blame;
}

std::string Blame::table(size_t width) const {
  std::string out;
  for (size_t i = 0; i < ops.size();) {
    const std::string mode = mode_of(ops[i]);
    TextGrid grid({"<" + mode, "Error", "Bound", "Of bound", "<Module"});
    for (; i < ops.size() && mode_of(ops[i]) == mode; ++i) {
      const CheckedOp& op = ops[i];
      grid.add({op.op, fmt::format("{:.1e}", op.worst.error), fmt::format("{:.1e}", op.worst.bound),
          fmt::format("{:.3g} %", 100 * op.worst.share()),
          (op.worst.exceeds() ? "EXCEEDS  " : "") + op.module});
    }
    grid.fit(width);
    out += "\n" + grid.text();
  }
  return out;
}

std::string Blame::verdict() const {
  const auto name = [](const CheckedOp& op) { return str(mode_of(op), ": ", op.op); };
  std::string text = fmt::format("none of {} exceeds its bound", count_of(std::ssize(ops), "op"));
  if (first) {
    const CheckedOp& op = ops[*first];
    text = fmt::format(
        "{} is wrong: {}, error {:.1e}, bound {:.1e}; {}; smallest operands that "
        "show it: {}",
        name(op), element, op.worst.error, op.worst.bound,
        op.rule ? str("rule ", op.rule) : "no rule, a plain op", smallest);
  }
  if (!first_nan) return text;
  const CheckedOp& op = ops[*first_nan];
  return str(text, "; the first nan, in f64 as well, is that of ", name(op),
      op.module.empty() ? "" : str(" in ", op.module), ": ", nan);
}

}  // namespace sinter::measure
