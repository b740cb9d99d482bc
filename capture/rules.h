// The fusion rules: one for each fused op, and for each name of a program (ops/fused/fused.h). Most
// need no more than that: the reference is the pattern that capture looks for (Note [Finding a
// fused op in a step], pattern.h), and the limit what the kernels cannot do. Where a pattern cannot
// say it, a rule has code, and names the Note that tells why. A rule is on where its op has a
// kernel. Each finds all its groups before the next one runs. docs/RULES.md is this table, printed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/rewrite.h"
#include "ops/fused/fused.h"

namespace sinter::capture {

struct Rule {
  // Fuses a group that node i belongs to; true if it changed the graph.
  using Code = std::function<bool(Rewriter& r, int i)>;

  Label label;
  std::vector<Code> code = {};  // after the patterns, if there are any, one after the other
  const char* note = "";        // Note [..] that says why this is code
  bool grows = false;           // the forms are examples of what the code finds

  const char* name() const { return label.name.c_str(); }
  bool on(Device::Type device) const { return label.op->kernel(device) != nullptr; }
  void apply(Rewriter& r) const;
};

std::span<const Rule> rules();
// Adds a row, before all others, for a fused op of the program's own (examples/12_own_fusion.cpp),
// which must live as long as the program. Call it before the first Step is made; not thread-safe.
// Throws usage for a name that a rule has already, and for an op without reference, forms, infer or
// cost.
void add_rule(const OpDef& op);

// Which rules are on: `all`, `none`, or a list read from left to right: NAME adds, -NAME removes,
// from all if the first item is -NAME.
class RuleSet {
 public:
  RuleSet() : RuleSet("all") {}
  // Throws usage: an unknown name (the nearest is named), an empty item.
  explicit RuleSet(std::string_view text);
  bool has(std::string_view rule) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::string> on_;
};

// Note [A value in another shape] (shapes.cpp).
void settle_shapes(Rewriter& r);
// Rewrites a recorded graph for `device`: dead and duplicate nodes go, shapes are settled, then the
// rules. Verified after each pass.
Rewriter rewrite(
    const Graph& recorded, const RuleSet& set, Device::Type device, Refused refused = {});

// The code of rules: rules_attention.cpp, rules_loss.cpp, rules_side_by_side.cpp, rules_conv.cpp,
// rules_update.cpp, rules_pointwise.cpp.
namespace rule {
bool attention(Rewriter& r, int i);
bool attention_by_rows(Rewriter& r, int i);
bool round_loss_gradient(Rewriter& r, int i);
bool layer_before_chain(Rewriter& r, int i);
bool gated_linear(Rewriter& r, int i);
bool merge_products(Rewriter& r, int i);
bool merge_glu_gradients(Rewriter& r, int i);
bool merge_attention_gradients(Rewriter& r, int i);
bool merge_input_gradients(Rewriter& r, int i);
bool relu_in_pool(Rewriter& r, int i);
bool relu_behind_dropout(Rewriter& r, int i);
bool relu_between_convs(Rewriter& r, int i);
bool norm_of_batch(Rewriter& r, int i);
bool clip_norm(Rewriter& r, int i);
bool weight_grad_update(Rewriter& r, int i);
bool join_layers(Rewriter& r, int i);
bool multi_tensor_update(Rewriter& r, int i);
bool pointwise_chain(Rewriter& r, int i);
// Those of this name.
Rule::Code product_and_end(profiler::StaticName label);
bool product_and_gate(Rewriter& r, int i);
// matmul(dy^T, x)
bool is_weight_grad(const Node& node);
}  // namespace rule

}  // namespace sinter::capture
