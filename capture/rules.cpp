#include "capture/rules.h"

#include <algorithm>

#include "capture/pattern.h"
#include "capture/rule_kit.h"

namespace sinter::capture {

namespace {

// Rules with code beside their op's patterns, or in place of them.
const Rule kWithCode[] = {
    {kSoftmaxXentOp, rule::round_loss_gradient},
    {kGatedLinearOp, rule::gated_linear},
    {kMergeLinearOp, rule::merge_linear},
    {kNarrowMlpOp, rule::narrow_mlp},
    {kClipNormOp, rule::clip_norm},
    {kWeightGradUpdateOp, rule::weight_grad_update},
    {kMultiTensorUpdateOp, rule::multi_tensor_update},
    {kPointwiseChainOp, rule::pointwise_chain},
};

Rule rule_of(const OpDef& op) {
  for (const Rule& rule : kWithCode) {
    if (rule.op == &op) return rule;
  }
  return op;
}

std::vector<Rule>& rule_table() {
  static std::vector<Rule> table = [] {
    std::vector<Rule> all;
    for (const OpDef* op : fused_ops()) all.push_back(rule_of(*op));
    return all;
  }();
  return table;
}

}  // namespace

std::span<const Rule> rules() { return rule_table(); }

void add_rule(const OpDef& op) {
  SINTER_ASSERT(op.reference && op.forms, op.text(), " has no reference or no forms");
  for (const Rule& rule : rules())
    SINTER_CHECK(rule.op->text() != op.text(), usage,
        cat("rules: two rules of one name: ", op.text(), "; each op has one"));
  rule_table().insert(rule_table().begin(), Rule(op));
}

void Rule::apply(Rewriter& r) const {
  if (op->forms) fuse_patterns(r, *op);
  if (code) code(r);
}

RuleSet::RuleSet(std::string_view text) : text_(text) {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name());
  if (text == "all") {
    on_ = names;
    return;
  }
  if (text == "none") return;
  bool first = true;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    const bool remove = item.starts_with('-');
    if (remove) item.remove_prefix(1);
    SINTER_CHECK(!item.empty(), usage, cat("rules: empty item: ", escaped(text_)),
        "all, none, or -NAME,NAME");
    if ((first && remove) || item == "all") on_ = names;
    if (item == "none") {
      on_.clear();
    } else if (item != "all") {
      const bool known = std::find(names.begin(), names.end(), item) != names.end();
      const std::string nearest = nearest_word(item, names);
      std::string all;
      for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
      SINTER_CHECK(known, usage,
          cat("rules: unknown rule: ", escaped(item),
              nearest.empty() ? cat("; rules are all, none, ", all)
                              : cat("; nearest is ", nearest)));
      std::erase(on_, item);
      if (!remove) on_.emplace_back(item);
    }
    first = false;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
}

bool RuleSet::has(std::string_view rule) const {
  return std::find(on_.begin(), on_.end(), rule) != on_.end();
}

Rewriter rewrite(const Graph& recorded, const RuleSet& set, Device::Type device,
    std::set<std::pair<std::string, int>> refused) {
  Rewriter r(recorded, device, std::move(refused));
  if (set.text() == "none") return r;
  r.eliminate_dead();
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
