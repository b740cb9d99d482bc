#include "capture/rules.h"
#include "ops/fused/fused.h"

#include "ops/fused/activation.h"

namespace sinter::capture {
namespace {

// Note [Joining the layers of a narrow chain]
//   narrow_mlp runs forward, loss and backward of a chain of narrow layers in one launch. When it
//   is its turn, other rules have made of the step, for two layers:
//
//       a1, mask = linear_act(x, W1, b1)      dz2 -> dW2, db2 = dz2^T a1, sums of dz2
//       z2       = linear(a1, W2, b2)         dz1 = input_grad_act(dz2, W2, mask)
//       loss, dz2 = softmax_xent(z2, ..)      dz1 -> dW1, db1 = dz1^T x, sums of dz1
//
//   We begin at the loss and go to the front: a layer is a product whose result's gradient dz we
//   know, and find_layer() looks among the readers of dz for what belongs to it: dz^T times its
//   input, the sums of dz, the gradient of its input. That last one is the dz of the layer before,
//   and so on while one activation lies between. Nobody else may read a dz, an activation or a
//   mask, since none of them will be in memory. Of the chain we keep the longest end that the
//   kernel takes.
//
//   Code, since a chain has any number of layers; and since the kernel reads no mask: it makes
//   relu's again from the layer's input, which a traced reference cannot know to be what the step
//   kept.
//   Cost: the readers of each dz, once.
struct Layer {
  int forward, weight_grad, bias_grad, input_grad;  // nodes; bias_grad, input_grad: or -1
  int rows, weight, bias, result, dw, db;
};
using Chain = std::vector<Layer>;

// What narrow_mlp needs of the activation that made `value`: its node, or -1. Its backward reads
// the result, or a bit mask of it. `act`: the activation of the chain, or none while unknown.
int made_by_activation(const Rewriter& r, int value, Act act) {
  const int n = r.producer(value);
  if (n < 0 || r.node(n).op != &kLinearActOp || r.node(n).out[0] != value) return -1;
  const LinearActAttrs& a = r.node(n).attrs.as<LinearActAttrs>();
  const bool of_result = act_saves(a.act) != pointwise::Saves::inputs;  // none is as if it were
  const bool same = act == Act::none || a.act == act;
  return of_result && same && a.keep != Keep::pre ? n : -1;
}

// The layer behind whose result the gradient dz stands; see Note [Joining the layers of a narrow
// chain].
std::optional<Layer> find_layer(const Rewriter& r, int forward, int dz) {
  const Node& node = r.node(forward);
  Layer layer{forward, -1, -1, -1, node.in[0], node.in[1], node.in.size() > 2 ? node.in[2] : -1,
      node.out[0], -1, -1};
  std::vector<int> known;
  for (const int n : r.readers(dz)) {
    const Node& reader = r.node(n);
    if (rule::is_weight_grad(reader) && reader.in[0] == dz && reader.in[1] == layer.rows) {
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
  const bool whole = layer.weight_grad >= 0 && (layer.bias >= 0) == (layer.db >= 0);
  if (!whole || r.read_elsewhere(dz, known)) return std::nullopt;
  return layer;
}

// The chain that ends at the loss, from the last layer to the front, as long as there is a gradient
// and one activation, `act`.
Chain find_chain(const Rewriter& r, const Node& loss, Act* act) {
  const int logits = r.producer(loss.in[0]);
  if (logits < 0 || r.node(logits).op != &kLinearOp) return {};
  const std::optional<Layer> last = find_layer(r, logits, loss.out[1]);
  if (!last) return {};
  Chain chain{*last};
  while (chain[0].input_grad >= 0) {
    const int forward = made_by_activation(r, chain[0].rows, *act);
    if (forward < 0) break;
    const std::optional<Layer> layer = find_layer(r, forward, r.node(chain[0].input_grad).out[0]);
    if (!layer) break;
    *act = r.node(forward).attrs.as<LinearActAttrs>().act;
    chain.insert(chain.begin(), *layer);
  }
  return chain;
}

std::vector<int64_t> widths_of(const Rewriter& r, const Chain& chain) {
  std::vector<int64_t> widths{r.graph.values[chain[0].rows].shape[1]};
  for (const Layer& layer : chain) widths.push_back(r.graph.values[layer.weight].shape[0]);
  return widths;
}

std::vector<int> members_of(const Chain& chain, int loss) {
  std::vector<int> members{loss};
  for (const Layer& layer : chain) {
    for (const int n : {layer.forward, layer.weight_grad, layer.bias_grad, layer.input_grad}) {
      if (n >= 0) members.push_back(n);
    }
  }
  std::ranges::sort(members);
  return members;
}

// What forbids the chain: the kernel's limit, or a reader of what would be in no memory.
Obstacle forbidden(
    const Rewriter& r, const Chain& chain, Act act, const std::vector<int>& members) {
  const DType dtype = r.graph.values[chain[0].rows].dtype;
  const std::string limit =
      narrow_mlp_limit(widths_of(r, chain), dtype, r.graph.device_of(chain[0].rows));
  if (!limit.empty()) return over_limit(limit);
  if (chain[0].input_grad >= 0 && made_by_activation(r, chain[0].rows, act) < 0)
    return {"the gradient of its input goes on otherwise", "use one activation for all layers"};
  for (size_t l = 0; l + 1 < chain.size(); ++l) {
    for (const int out : r.node(chain[l].forward).out) {
      if (Obstacle other = r.other_reader("what lies between", out, members)) return other;
    }
  }
  return r.other_reader("what lies between", chain.back().result, members);
}

Node fused_node(const Rewriter& r, const Node& loss, const Chain& chain, Act act) {
  const bool input_grad = chain[0].input_grad >= 0;
  Node fused{.op = &kNarrowMlpOp,
      .attrs = NarrowMlpAttrs{act, loss.attrs.as<SoftmaxXentAttrs>().label_smoothing, input_grad},
      .in = {chain[0].rows, loss.in[1], loss.in[2]},
      .out = {loss.out[0]}};
  if (input_grad) fused.out.push_back(r.node(chain[0].input_grad).out[0]);
  for (const Layer& layer : chain) {
    fused.in.insert(fused.in.end(), {layer.weight, layer.bias});
    fused.out.push_back(layer.dw);
    if (layer.db >= 0) fused.out.push_back(layer.db);
  }
  return fused;
}

// The mask that the layer before the chain kept for its backward, which is inside now.
void drop_mask(Rewriter& r, int mask) {
  if (mask < 0 || r.read_elsewhere(mask, {})) return;
  const int n = r.producer(mask);
  Node maker = r.node(n);
  LinearActAttrs attrs = maker.attrs.as<LinearActAttrs>();
  attrs.keep = Keep::nothing;
  maker.attrs = attrs;
  maker.out.resize(1);
  r.replace(n, std::move(maker));
}

}  // namespace

bool rule::narrow_mlp(Rewriter& r, int i) {
  constexpr int64_t kNear = 128;  // a wider layer is no near miss
  const Node loss = r.node(i);
  if (loss.op != &kSoftmaxXentOp || !loss.attrs.as<SoftmaxXentAttrs>().grad) return false;
  Act act = Act::none;
  for (Chain chain = find_chain(r, loss, &act); chain.size() >= 2; chain.erase(chain.begin())) {
    const std::vector<int> members = members_of(chain, i);
    if (Obstacle obstacle = forbidden(r, chain, act, members)) {
      const std::vector<int64_t> widths = widths_of(r, chain);
      if (*std::ranges::max_element(widths) <= kNear)
        r.miss("narrow_mlp", members, std::move(obstacle));
      continue;
    }
    const int before = chain[0].input_grad >= 0 ? r.producer(chain[0].rows) : -1;
    const int mask = before >= 0 && r.node(before).out.size() > 1 ? r.node(before).out[1] : -1;
    if (!r.fuse("narrow_mlp", members, fused_node(r, loss, chain, act))) return false;
    drop_mask(r, mask);
    return true;
  }
  return false;
}

}  // namespace sinter::capture
