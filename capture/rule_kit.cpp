#include "capture/rule_kit.h"

#include <algorithm>

namespace sinter::capture::rule {

const OpDef& op_named(const std::string& name) {
  const OpDef* op = find_op(name);
  SINTER_ASSERT(op, "no op ", name);
  return *op;
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
