#include "capture/rule_kit.h"

#include <algorithm>

namespace sinter::capture::rule {

const OpDef& op_named(const std::string& name) {
  const OpDef* op = find_op(name);
  SINTER_ASSERT(op, "no op ", name);
  return *op;
}

namespace {

const std::vector<Activation>& activations() {
  static const std::vector<Activation> list = [] {
    std::vector<Activation> all;
    for (const auto& [act, keep] :
        {std::pair{Act::relu, Keep::mask}, {Act::gelu, Keep::pre}, {Act::gelu_tanh, Keep::pre},
            {Act::silu, Keep::pre}, {Act::sigmoid, Keep::nothing}, {Act::tanh, Keep::nothing}}) {
      const std::string name = print_value(act);
      all.push_back({act, &op_named(name), &op_named(name + "_backward"), keep});
    }
    return all;
  }();
  return list;
}

}  // namespace

const Activation* activation_of(const OpDef* op, bool backward) {
  for (const Activation& a : activations()) {
    if (op == (backward ? a.backward : a.forward)) return &a;
  }
  return nullptr;
}

int find_reader(const Rewriter& r, int value, const OpDef* op) {
  for (const int n : r.readers(value)) {
    if (r.graph.nodes[n].op == op && r.graph.nodes[n].reads(value)) return n;
  }
  return -1;
}

std::string others(const Rewriter& r, int value, const std::vector<int>& expected) {
  if (r.is_output(value)) return "a result of the step";
  for (const int n : r.readers(value)) {
    if (std::find(expected.begin(), expected.end(), n) == expected.end())
      return print_node(r.graph, r.graph.nodes[n]);
  }
  return "";
}

bool is_weight_grad(const Node& node) {
  return node.op == &kMatmulOp && node.attrs.as<MatmulAttrs>().trans_a &&
         !node.attrs.as<MatmulAttrs>().trans_b;
}

}  // namespace sinter::capture::rule
