#include "capture/rules.h"

#include <algorithm>

#include "capture/pattern.h"
#include "core/numbers.h"
#include "ops/fused/fused.h"

namespace sinter::capture {
namespace {

// Rules with code after their op's patterns, or in place of them.
std::vector<Rule> rules_with_code() {
  using namespace rule;
  return {
      {&kSoftmaxXentOp, {round_loss_gradient}, "Rounding the loss's gradient for all its readers"},
      {&kGatedLinearOp, {gated_linear}, "Linears side by side"},
      {&kMergeLinearOp,
          {merge_products, merge_glu_gradients, merge_products, merge_input_gradients},
          "Linears side by side"},
      {&kGatedLinearBackwardOp, {product_and_gate}, "From a product to its end", true},
      {&kLinearActOp, {product_and_end<kLinearActOp>}, "From a product to its end", true},
      {&kInputGradActOp, {product_and_end<kInputGradActOp>}, "From a product to its end", true},
      {&kConvActOp, {product_and_end<kConvActOp>}, "From a product to its end", true},
      {&kProductChainOp, {product_and_end<kProductChainOp>}, "From a product to its end", true},
      {&kConvActPoolOp, {relu_in_pool, relu_behind_dropout}, "ReLU in a pooling"},
      {&kConvActBackwardOp, {relu_between_convs}, "ReLU between two convolutions"},
      {&kConvNormActOp, {norm_of_batch}, "Folding batch norm into a convolution"},
      {&kRowChainOp, {layer_before_chain}, "Why a chain of rows is no longer"},
      {&kClipNormOp, {clip_norm}, "Lists of updates"},
      {&kWeightGradUpdateOp, {weight_grad_update, join_layers}, "Lists of updates"},
      {&kMultiTensorUpdateOp, {multi_tensor_update}, "Lists of updates"},
      {&kPointwiseChainOp, {pointwise_chain}, "Chains of pointwise ops"},
  };
}

std::vector<Rule>& rule_table() {
  static std::vector<Rule> table = [] {
    const std::vector<Rule> with_code = rules_with_code();
    std::vector<Rule> all;
    for (const OpDef* op : fused_ops()) {
      const auto found = std::ranges::find(with_code, op, &Rule::op);
      all.push_back(found == with_code.end() ? Rule{op} : *found);
    }
    return all;
  }();
  return table;
}

}  // namespace

std::span<const Rule> rules() { return rule_table(); }

void add_rule(const OpDef& op) {
  SINTER_CHECK(op.reference && op.forms && op.infer && op.cost, usage,
      cat("rules: no fused op: ", op.text(), "; it wants .reference, .forms, .infer and .cost"),
      "infer_of and cost_of_reference make the last two: examples/11_own_fusion.cpp");
  for (const Rule& rule : rules())
    SINTER_CHECK(rule.op->text() != op.text(), usage,
        cat("rules: two rules of one name: ", op.text(), "; each op has one"));
  rule_table().insert(rule_table().begin(), Rule{&op});
}

void Rule::apply(Rewriter& r) const {
  if (op->forms && !grows) fuse_patterns(r, *op);
  for (const Code f : code) r.each_node([&](int i) { return r.tried([&] { return f(r, i); }); });
}

bool rule::is_weight_grad(const Node& node) {
  if (node.op != &kMatmulOp) return false;
  const MatmulAttrs& attrs = node.attrs.as<MatmulAttrs>();
  return attrs.trans_a && !attrs.trans_b;
}

RuleSet::RuleSet(std::string_view text) : text_(text) {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name());
  bool first = true;
  for (std::string_view item : parts_of(text, ",")) {
    const bool remove = item.starts_with('-');
    if (remove) item.remove_prefix(1);
    SINTER_CHECK(!item.empty(), usage, cat("rules: empty item: ", escaped(text_)),
        "all, none, or -NAME,NAME");
    if ((first && remove) || item == "all") on_ = names;
    first = false;
    if (item == "none") on_.clear();
    if (item == "all" || item == "none") continue;
    const std::string nearest = nearest_word(item, names);
    SINTER_CHECK(std::ranges::find(names, item) != names.end(), usage,
        cat("rules: unknown rule: ", escaped(item),
            nearest.empty() ? cat("; allowed all, none, ", join(names))
                            : cat("; nearest is ", nearest)));
    std::erase(on_, item);
    if (!remove) on_.emplace_back(item);
  }
}

bool RuleSet::has(std::string_view rule) const { return std::ranges::find(on_, rule) != on_.end(); }

Rewriter rewrite(const Graph& recorded, const RuleSet& set, Device::Type device, Refused refused) {
  Rewriter r(recorded, device, std::move(refused));
  if (set.text() == "none") return r;
  r.eliminate_dead();
  settle_shapes(r);
  r.eliminate_duplicates();
  r.finish("eliminating dead and duplicate ops");
  for (const Rule& rule : rules()) {
    if (!set.has(rule.name()) || !rule.on(device)) continue;
    rule.apply(r);
    r.eliminate_dead();
    r.finish(rule.name());
  }
  return r;
}

}  // namespace sinter::capture
