#include "capture/rules.h"

#include <algorithm>

#include "capture/pattern.h"
#include "core/numbers.h"
#include "ops/fused/fused.h"

namespace sinter::capture {
namespace {

// In the order in which they run: what is found first is no other rule's any more.
std::vector<Rule>& rule_table() {
  using namespace rule;
  constexpr const char *kEnd = "From a product to its end", *kBeside = "Linears side by side",
                       *kLists = "Lists of updates";
  const auto named = [](std::string_view name) { return *find_label(name); };
  static std::vector<Rule> table{
      {label_of(kAttentionOp), {attention, attention_by_rows}, "Attention in a step"},
      {label_of(kEmbeddingAddOp)},
      {label_of(kNormBackwardAddOp)},
      {label_of(kSoftmaxXentOp), {round_loss_gradient},
          "Rounding the loss's gradient for all its readers"},
      {named("glu_backward")},
      {named("glu")},
      {label_of(kGatedLinearOp), {gated_linear}, kBeside},
      {named("merge_linear"),
          {merge_products, merge_glu_gradients, merge_attention_gradients, merge_products,
              merge_input_gradients},
          kBeside},
      {named("gated_linear_backward"), {product_and_gate}, kEnd, true},
      {named("linear_act"), {product_and_end("linear_act")}, kEnd, true},
      {named("input_grad_act"), {product_and_end("input_grad_act")}, kEnd, true},
      {label_of(kConvActPoolOp), {relu_in_pool, relu_behind_dropout}, "ReLU in a pooling"},
      {named("conv_act"), {product_and_end("conv_act")}, kEnd, true},
      {named("conv_norm_act"), {norm_of_batch}, "Folding batch norm into a convolution"},
      {label_of(kProductChainOp), {product_and_end("product_chain")}, kEnd, true},
      {label_of(kConvActPoolBackwardOp)},
      {label_of(kConvActBackwardOp), {relu_between_convs}, "ReLU between two convolutions"},
      {label_of(kRowChainOp), {layer_before_chain}, "Why a chain of rows is no longer"},
      {label_of(kWeightBiasGradOp)},
      {label_of(kClipNormOp), {clip_norm}, kLists},
      {label_of(kWeightGradUpdateOp), {weight_grad_update, join_layers}, kLists},
      {label_of(kMultiTensorUpdateOp), {multi_tensor_update}, kLists},
      {label_of(kPointwiseChainOp), {pointwise_chain}, "Chains of pointwise ops"},
  };
  return table;
}

}  // namespace

std::span<const Rule> rules() { return rule_table(); }

void add_rule(const OpDef& op) {
  SINTER_CHECK(op.reference && op.forms && op.infer && op.cost, usage,
      str("rules: no fused op: ", op.text(), "; it wants .reference, .forms, .infer and .cost"),
      "infer_of and cost_of_reference make the last two: examples/12_own_fusion.cpp");
  for (const Rule& rule : rules())
    SINTER_CHECK(rule.label.text() != op.text(), usage,
        str("rules: two rules of one name: ", op.text(), "; each op has one"));
  rule_table().insert(rule_table().begin(), Rule{label_of(op)});
}

void Rule::apply(Rewriter& r) const {
  if (label.forms && !grows) fuse_patterns(r, label);
  for (const Code& f : code) r.each_node([&](int i) { return r.tried([&] { return f(r, i); }); });
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
    SINTER_CHECK(!item.empty(), usage, str("rules: empty item: ", escaped(text_)),
        "all, none, or -NAME,NAME");
    if ((first && remove) || item == "all") on_ = names;
    first = false;
    if (item == "none") on_.clear();
    if (item == "all" || item == "none") continue;
    const std::string nearest = nearest_word(item, names);
    SINTER_CHECK(std::ranges::find(names, item) != names.end(), usage,
        str("rules: unknown rule: ", escaped(item),
            nearest.empty() ? str("; allowed all, none, ", join(names))
                            : str("; nearest is ", nearest)));
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
