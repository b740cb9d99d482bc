#include "capture/rules.h"

#include <algorithm>

#include "capture/rule_kit.h"

namespace sinter::capture {
namespace {

const Rule kRules[] = {
    {"softmax_xent", "log_softmax, nll and their backwards",
        "nothing else reads the log-probabilities or their gradient", &kSoftmaxXentOp,
        rule::softmax_xent},
    {"glu_backward", "mul, mul, act_backward of a gated unit", "nothing else reads dh * u",
        &kGluBackwardOp, rule::glu_backward},
    {"glu", "act(g) * u", "nothing else reads act(g): in training, glu_backward recomputes it",
        &kGluOp, rule::glu},
    {"gated_linear", "two linears of one input, glu",
        "no biases; readers of g and u take strided rows", &kGatedLinearOp, rule::gated_linear},
    {"merge_linear", "two linears of one input, and their backward",
        "no bias; the weights are neighbours in one storage; readers take strided rows",
        &kMergeLinearOp, rule::merge_linear},
    {"gated_linear_backward", "matmul(dgrad), glu_backward", "nothing else reads dh",
        &kGatedLinearBackwardOp, rule::gated_linear_backward},
    {"linear_act", "linear, activation", "under relu nothing else reads the pre-activation",
        &kLinearActOp, rule::linear_act},
    {"gather_linear_act", "gather_batch, linear_act",
        "the batch is drawn inside the step; one type", &kGatherLinearActOp,
        rule::gather_linear_act},
    {"input_grad_act", "matmul(dgrad), activation backward",
        "nothing else reads the gradient between them", &kInputGradActOp, rule::input_grad_act},
    {"narrow_mlp", "linear_act .. linear, softmax_xent, and all gradients",
        "2 to 4 layers of widths up to 128 whose weights and 64 rows fit shared memory; relu, "
        "sigmoid or tanh; nothing else reads what lies "
        "between",
        &kNarrowMlpOp, rule::narrow_mlp},
    {"classifier_head", "linear, softmax_xent, input_grad_act",
        "at most 64 classes; nothing else reads the logits", &kClassifierHeadOp,
        rule::classifier_head},
    {"weight_bias_grad", "matmul(wgrad), sum_rows(bgrad)", "both read the same dy",
        &kWeightBiasGradOp, rule::weight_bias_grad},
    {"clip_norm", "squared norms, their sum, clip_in_place",
        "the clipped tensors are those measured", &kClipNormOp, rule::clip_norm},
    {"weight_grad_update", "weight_bias_grad, optimizer updates",
        "nothing else reads the gradient (clipping, accumulation, a hook); every reader of the old "
        "weight is done; one optimizer for weight "
        "and bias, and for all layers of a launch (one layer on cpu)",
        &kWeightGradUpdateOp, rule::weight_grad_update},
    {"multi_tensor_update", "optimizer updates", "one optimizer, one state", &kMultiTensorUpdateOp,
        rule::multi_tensor_update},
    {"pointwise_chain", "neighbouring pointwise ops",
        "one shape and type; at most 10 steps, 8 inputs, 3 results", &kPointwiseChainOp,
        rule::pointwise_chain},
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

RuleSet::RuleSet(std::string_view text) : text_(text) {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name);
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
    if (!set.has(rule.name) || !rule.on(device)) continue;
    rule.apply(r);
    r.eliminate_dead();
    r.finish(rule.name);
  }
  return r;
}

}  // namespace sinter::capture
