// The rule of narrow_mlp: it joins what linear_act, softmax_xent and input_grad_act made of a small
// chain of layers with its weights' gradients. Code, since a chain has any number of layers, and
// the longest part of it that fits is wanted; and since it reads no mask: the kernel makes relu's
// again from the layer's input, which a traced reference cannot know to be what the step kept.
#include <algorithm>

#include "capture/rule_kit.h"
#include "ops/fused/activation.h"

namespace sinter::capture::rule {
namespace {

struct Layer {
  int forward, weight_grad, bias_grad, input_grad;  // nodes; bias_grad, input_grad: or -1
  int rows, weight, bias, result, dw, db;
};

// What narrow_mlp needs of the activation that made `value`: its node, or -1. Its backward reads
// the result, or a bit mask of it.
int made_by_activation(const Rewriter& r, int value, Act act) {
  const int n = r.producer(value);
  if (n < 0 || r.graph.nodes[n].op != &kLinearActOp) return -1;
  const LinearActAttrs& a = r.graph.nodes[n].attrs.as<LinearActAttrs>();
  const bool of_result = act_saves(a.act) != pointwise::Saves::inputs;  // none is as if it were
  return r.graph.nodes[n].out[0] == value && of_result && a.keep != Keep::pre &&
                 (act == Act::none || a.act == act)
             ? n
             : -1;
}

// The layer behind whose result the gradient dz stands, or false.
bool find_layer(const Rewriter& r, int forward, int dz, Layer& layer) {
  const Node& node = r.graph.nodes[forward];
  layer = {forward, -1, -1, -1, node.in[0], node.in[1], node.in.size() > 2 ? node.in[2] : -1,
      node.out[0], -1, -1};
  std::vector<int> known;
  for (const int n : r.readers(dz)) {
    const Node& reader = r.graph.nodes[n];
    if (is_weight_grad(reader) && reader.in[0] == dz && reader.in[1] == layer.rows) {
      layer.weight_grad = n;
      layer.dw = reader.out[0];
    } else if (reader.op == &kSumRowsOp && layer.bias >= 0) {
      layer.bias_grad = n;
      layer.db = reader.out[0];
    } else if (reader.op == &kInputGradActOp && reader.in[0] == dz &&
               reader.in[1] == layer.weight) {
      layer.input_grad = n;
    } else {
      continue;
    }
    known.push_back(n);
  }
  return layer.weight_grad >= 0 && (layer.bias >= 0) == (layer.db >= 0) &&
         others(r, dz, known).empty();
}

std::vector<int64_t> widths_of(const Rewriter& r, const std::vector<Layer>& chain) {
  std::vector<int64_t> widths{r.graph.values[chain[0].rows].shape[1]};
  for (const Layer& layer : chain) widths.push_back(r.graph.values[layer.weight].shape[0]);
  return widths;
}

std::vector<int> members_of(const std::vector<Layer>& chain, int xent) {
  std::vector<int> members{xent};
  for (const Layer& layer : chain) {
    for (const int n : {layer.forward, layer.weight_grad, layer.bias_grad, layer.input_grad}) {
      if (n >= 0) members.push_back(n);
    }
  }
  std::sort(members.begin(), members.end());
  return members;
}

// Who outside reads what would be in no memory: an activation or its mask. In words, or "".
std::string outside_reader(
    const Rewriter& r, const std::vector<Layer>& chain, const std::vector<int>& members) {
  for (size_t l = 0; l + 1 < chain.size(); ++l) {
    for (const int out : r.graph.nodes[chain[l].forward].out) {
      if (const std::string other = others(r, out, members); !other.empty()) return other;
    }
  }
  return others(r, chain.back().result, members);
}

}  // namespace

void narrow_mlp(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node xent = r.node(i);
    if (xent.op != &kSoftmaxXentOp || !xent.attrs.as<SoftmaxXentAttrs>().grad) return false;
    std::vector<Layer> chain(1);
    const int logits = r.producer(xent.in[0]);
    if (logits < 0 || r.node(logits).op != &kLinearOp ||
        !find_layer(r, logits, xent.out[1], chain[0]))
      return false;
    // From the last layer to the front, as long as there is a gradient and one activation. Then the
    // longest chain that fits.
    Act act = Act::none;
    while (chain[0].input_grad >= 0) {
      const int forward = made_by_activation(r, chain[0].rows, act);
      Layer layer{};
      if (forward < 0 || !find_layer(r, forward, r.node(chain[0].input_grad).out[0], layer)) break;
      act = r.node(forward).attrs.as<LinearActAttrs>().act;
      chain.insert(chain.begin(), layer);
    }
    std::string why;
    while (chain.size() >= 2) {
      const std::vector<int64_t> widths = widths_of(r, chain);
      why = narrow_mlp_limit(widths, r.graph.values[chain[0].rows].dtype);
      if (why.empty() && chain[0].input_grad >= 0 && made_by_activation(r, chain[0].rows, act) < 0)
        why = "the gradient of its input goes on otherwise";
      const std::vector<int> members = members_of(chain, i);
      if (why.empty()) {
        if (const std::string other = outside_reader(r, chain, members); !other.empty())
          why = cat("what lies between is read by ", other);
      }
      if (why.empty()) {
        const bool input_grad = chain[0].input_grad >= 0;
        Node fused{.op = &kNarrowMlpOp,
            .attrs =
                NarrowMlpAttrs{act, xent.attrs.as<SoftmaxXentAttrs>().label_smoothing, input_grad},
            .in = {chain[0].rows, xent.in[1], xent.in[2]},
            .out = {xent.out[0]}};
        if (input_grad) fused.out.push_back(r.node(chain[0].input_grad).out[0]);
        for (const Layer& layer : chain) {
          fused.in.insert(fused.in.end(), {layer.weight, layer.bias});
          fused.out.push_back(layer.dw);
          if (layer.db >= 0) fused.out.push_back(layer.db);
        }
        const int before = input_grad ? r.producer(chain[0].rows) : -1,
                  mask = before >= 0 && r.node(before).out.size() > 1 ? r.node(before).out[1] : -1;
        if (!r.fuse("narrow_mlp", members, fused)) return false;
        if (mask >= 0 && others(r, mask, {}).empty()) {  // backward no longer reads it
          Node maker = r.node(r.producer(mask));
          LinearActAttrs attrs = maker.attrs.as<LinearActAttrs>();
          attrs.keep = Keep::nothing;
          maker.attrs = attrs;
          maker.out.resize(1);
          r.replace(r.producer(mask), std::move(maker));
        }
        return true;
      }
      // Nearly: no layer is too wide, yet something else is in the way.
      if (*std::max_element(widths.begin(), widths.end()) <= 128)
        r.miss("narrow_mlp", members, why, static_cast<int>(members.size()) - 1);
      chain.erase(chain.begin());
    }
    return false;
  });
}

}  // namespace sinter::capture::rule
