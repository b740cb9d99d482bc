#include "capture/rules.h"

#include <algorithm>

#include "ops/fused/fused.h"
#include "ops/structured.h"

namespace sinter::capture {
namespace {

const OpDef& op_named(const std::string& name) {
  const OpDef* op = find_op(name);
  SINTER_ASSERT(op, "no op ", name);
  return *op;
}

struct Activation {
  Act act;
  const OpDef *forward, *backward;
  Keep keep;  // what its backward reads besides y
};

const std::vector<Activation>& activations() {
  static const std::vector<Activation> list = [] {
    std::vector<Activation> all;
    for (const auto& [act, keep] : {std::pair{Act::relu, Keep::mask}, {Act::gelu, Keep::pre}, {Act::gelu_tanh, Keep::pre}, {Act::silu, Keep::pre},
                                    {Act::sigmoid, Keep::nothing}, {Act::tanh, Keep::nothing}}) {
      const std::string name = print_value(act);
      all.push_back({act, &op_named(name), &op_named(name + "_backward"), keep});
    }
    return all;
  }();
  return list;
}

const Activation* activation_of(const OpDef* op, bool backward) {
  for (const Activation& a : activations()) {
    if (op == (backward ? a.backward : a.forward)) return &a;
  }
  return nullptr;
}

// Calls f(i) for every node, again from the start after each change, until f changes nothing.
template <class F>
void each_node(Rewriter& r, F&& f) {
  for (size_t i = 0; i < r.graph.nodes.size();) {
    if (f(static_cast<int>(i))) {
      i = 0;
    } else {
      ++i;
    }
  }
}

int find_reader(const Rewriter& r, int value, const OpDef* op) {
  for (const int n : r.graph.readers(value)) {
    if (r.graph.nodes[n].op == op && r.graph.nodes[n].reads(value)) return n;
  }
  return -1;
}

std::string others(const Rewriter& r, int value, const std::vector<int>& expected) {
  if (r.graph.is_output(value)) return "a result of the step";
  for (const int n : r.graph.readers(value)) {
    if (std::find(expected.begin(), expected.end(), n) == expected.end()) return print_node(r.graph, r.graph.nodes[n]);
  }
  return "";
}

// ---- linear_act: y = linear(x, W, b); a = act(y)
void linear_act(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node linear = r.node(i);
    if (linear.op != &kLinearOp) return false;
    const int y = linear.out[0];
    for (const int n : r.graph.readers(y)) {
      const Node act = r.node(n);
      const Activation* a = activation_of(act.op, false);
      if (!a || act.in[0] != y) continue;
      const std::string other = others(r, y, {n});
      LinearActAttrs attrs{.act = a->act, .keep = Keep::nothing, .out = r.graph.values[y].dtype};
      Node fused{.op = &op_named("linear_act"), .in = linear.in, .out = act.out};
      fused.in.resize(3, -1);
      if (act.out.size() > 1) attrs.keep = Keep::mask;
      if (!other.empty()) {
        if (attrs.keep == Keep::mask) {
          r.miss("linear_act", {i, n}, cat("the pre-activation is read by ", other), 1);
          continue;
        }
        attrs.keep = Keep::pre;
        fused.out.push_back(y);
      }
      fused.attrs = attrs;
      if (r.fuse("linear_act", {i, n}, fused)) return true;
    }
    return false;
  });
}

// ---- input_grad_act: d = matmul(dy, W); dx = act_backward(d, saved)
void input_grad_act(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node product = r.node(i);
    if (product.op != &kMatmulOp) return false;
    const MatmulAttrs& m = product.attrs.as<MatmulAttrs>();
    if (m.trans_a || m.trans_b) return false;
    const int d = product.out[0];
    for (const int n : r.graph.readers(d)) {
      const Node back = r.node(n);
      const Activation* a = activation_of(back.op, true);
      if (!a || back.in[0] != d) continue;
      if (const std::string other = others(r, d, {n}); !other.empty()) {
        r.miss("input_grad_act", {i, n}, cat("the input gradient before the activation is read by ", other), 1);
        continue;
      }
      Node fused{.op = &op_named("input_grad_act"), .attrs = InputGradActAttrs{a->act}, .in = {product.in[0], product.in[1], back.in[1]}, .out = back.out,
                 .role = Role::dgrad};
      if (r.fuse("input_grad_act", {i, n}, fused)) return true;
    }
    return false;
  });
}

bool is_weight_grad(const Node& node) {
  return node.op == &kMatmulOp && node.attrs.as<MatmulAttrs>().trans_a && !node.attrs.as<MatmulAttrs>().trans_b;
}

// ---- weight_bias_grad: dW = matmul(dy^T, x); db = sum_rows(dy)
void weight_bias_grad(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node product = r.node(i);
    if (!is_weight_grad(product)) return false;
    const int n = find_reader(r, product.in[0], &kSumRowsOp);
    if (n < 0) return false;
    Node fused{.op = &op_named("weight_bias_grad"), .in = {product.in[0], product.in[1]}, .out = {product.out[0], r.node(n).out[0]}, .role = Role::wgrad};
    return r.fuse("weight_bias_grad", {i, n}, fused);
  });
}

// ---- optimizer updates
bool is_update(const Node& node) { return node.op == &kSgdUpdateOp || node.op == &kAdamUpdateOp; }

UpdateAttrs update_attrs(const Node& node) {
  if (node.op == &kSgdUpdateOp) {
    const SgdAttrs& a = node.attrs.as<SgdAttrs>();
    return {.adam = false, .momentum = a.momentum, .weight_decay = a.weight_decay, .nesterov = a.nesterov, .tail = a.tail};
  }
  const AdamAttrs& a = node.attrs.as<AdamAttrs>();
  return {.adam = true, .weight_decay = a.weight_decay, .beta1 = a.beta1, .beta2 = a.beta2, .eps = a.eps, .decoupled = a.decoupled, .tail = a.tail};
}

// The operands of an update in one order, whatever the optimizer.
struct UpdateOperands {
  int param, grad, state1, state2, low, step_state, losses, rng;
  explicit UpdateOperands(const Node& n) {
    const auto at = [&](size_t i) { return i < n.in.size() ? n.in[i] : -1; };
    const bool adam = n.op == &kAdamUpdateOp;
    param = at(0), grad = at(1), state1 = at(2), state2 = adam ? at(3) : -1;
    const size_t rest = adam ? 4 : 3;
    low = at(rest), step_state = at(rest + 1), losses = at(rest + 2), rng = at(rest + 3);
  }
};

bool same_but_tail(UpdateAttrs a, UpdateAttrs b) {
  a.tail = b.tail = false;
  return a == b;
}

// Parameters whose .grad() the fused node makes no more.
void take_gradient(Rewriter& r, int grad, const char* rule) {
  std::erase_if(r.graph.gradients, [&](const Graph::Gradient& g) {
    if (g.grad != grad) return false;
    r.graph.taken.emplace_back(g.param, rule);
    return true;
  });
}

// ---- weight_grad_update: dW (and db) made and applied at once
void weight_grad_update(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node made = r.node(i);
    const bool with_bias = made.op->text() == "weight_bias_grad";
    if (!with_bias && !is_weight_grad(made)) return false;
    std::vector<int> members{i};
    std::vector<UpdateOperands> operands;
    UpdateAttrs attrs;
    for (const int grad : made.out) {
      int update = -1;
      for (const int n : r.graph.readers(grad)) {
        if (is_update(r.node(n)) && r.node(n).in[1] == grad) update = n;
      }
      if (update < 0) return false;
      if (const std::string other = others(r, grad, {update}); !other.empty()) {
        r.miss("weight_grad_update", {i, update}, cat("the gradient of ", r.graph.values[r.node(update).in[0]].name, " is also read by ", other), 1);
        return false;
      }
      const UpdateAttrs a = update_attrs(r.node(update));
      const UpdateOperands o(r.node(update));
      if (!operands.empty() && (!same_but_tail(a, attrs) || o.step_state != operands[0].step_state)) {
        r.miss("weight_grad_update", {i, update}, "weight and bias have different optimizers", 2);
        return false;
      }
      const bool tail = attrs.tail || a.tail;
      attrs = a;
      attrs.tail = tail;
      operands.push_back(o);
      members.push_back(update);
    }
    Node fused{.op = &op_named("weight_grad_update"), .attrs = attrs, .in = std::vector<int>(kWeightGradUpdateInputs, -1), .role = Role::update};
    fused.in[0] = made.in[0], fused.in[1] = made.in[1];
    for (size_t k = 0; k < operands.size(); ++k) {
      const UpdateOperands& o = operands[k];
      const size_t at = k == 0 ? 2 : 6;
      fused.in[at] = o.param, fused.in[at + 1] = o.state1, fused.in[at + 2] = o.state2, fused.in[at + 3] = o.low;
      fused.in[10] = o.step_state;
      if (o.losses >= 0) fused.in[11] = o.losses;
      if (o.rng >= 0) fused.in[12] = o.rng;
    }
    if (!r.fuse("weight_grad_update", members, fused)) return false;
    for (const int grad : made.out) take_gradient(r, grad, "weight_grad_update");
    return true;
  });
}

// ---- multi_tensor_update: all that is left of the optimizer's updates
void multi_tensor_update(Rewriter& r) {
  each_node(r, [&](int i) {
    if (!is_update(r.node(i))) return false;
    const UpdateAttrs attrs = update_attrs(r.node(i));
    const int state = UpdateOperands(r.node(i)).step_state;
    std::vector<int> members;
    for (size_t n = static_cast<size_t>(i); n < r.graph.nodes.size(); ++n) {
      const Node& other = r.graph.nodes[n];
      if (other.op == r.node(i).op && same_but_tail(update_attrs(other), attrs) && UpdateOperands(other).step_state == state) members.push_back(static_cast<int>(n));
    }
    if (members.size() < 2) return false;
    Node fused{.op = &op_named("multi_tensor_update"), .role = Role::update};
    UpdateAttrs all = attrs;
    int losses = -1, rng = -1;
    for (const int m : members) {
      const UpdateOperands o(r.node(m));
      fused.in.insert(fused.in.end(), {o.param, o.grad, o.state1, o.state2, o.low});
      all.tail = all.tail || update_attrs(r.node(m)).tail;
      losses = std::max(losses, o.losses), rng = std::max(rng, o.rng);
    }
    fused.in.insert(fused.in.end(), {state, losses, rng});
    fused.attrs = all;
    return r.fuse("multi_tensor_update", members, fused);
  });
}

// ---- softmax_xent: log_softmax, nll and both backwards in one pass over the rows
void softmax_xent(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node log_softmax = r.node(i);
    if (log_softmax.op != &kLogSoftmaxOp) return false;
    const int logp = log_softmax.out[0];
    const int nll = find_reader(r, logp, &kNllOp);
    if (nll < 0 || r.node(nll).in[0] != logp) return false;
    const Node loss = r.node(nll);
    const double smoothing = loss.attrs.as<NllAttrs>().label_smoothing;
    const int back = find_reader(r, logp, &kLogSoftmaxBackwardOp);
    std::vector<int> members{i, nll};
    Node fused{.op = &op_named("softmax_xent"), .in = {log_softmax.in[0], loss.in[1], -1}, .out = loss.out};
    SoftmaxXentAttrs attrs{.label_smoothing = smoothing, .grad = false};
    if (back >= 0) {
      const int dlogp = r.node(back).in[0];
      const int nll_back = r.graph.producer(dlogp);
      if (nll_back < 0 || r.node(nll_back).op != &kNllBackwardOp || r.node(nll_back).in[1] != loss.in[1] ||
          r.node(nll_back).attrs.as<NllBackwardAttrs>().label_smoothing != smoothing) {
        r.miss("softmax_xent", {i, nll, back}, "the gradient of log_softmax does not come from this loss alone", 3);
        return false;
      }
      members.insert(members.end(), {nll_back, back});
      if (const std::string other = others(r, dlogp, {back}); !other.empty()) {
        r.miss("softmax_xent", members, cat("the gradient of the log-probabilities is read by ", other), 3);
        return false;
      }
      fused.in[2] = r.node(nll_back).in[0];
      fused.out.push_back(r.node(back).out[0]);
      attrs.grad = true;
    }
    if (const std::string other = others(r, logp, members); !other.empty()) {
      r.miss("softmax_xent", members, cat("the log-probabilities are read by ", other), static_cast<int>(members.size()) - 1);
      return false;
    }
    // Rounded for bf16 products, and read otherwise by the bias gradient alone: made bf16 at once, for both.
    const int dz = attrs.grad ? fused.out[1] : -1, rounding = attrs.grad ? find_reader(r, dz, &kCastOp) : -1;
    const int bias = rounding < 0 ? -1 : find_reader(r, dz, &kSumRowsOp);
    if (rounding >= 0 && r.graph.values[r.node(rounding).out[0]].dtype == DType::bf16 && others(r, dz, {rounding, bias}).empty()) {
      attrs.low = true;
      const int rounded = fused.out[1] = r.node(rounding).out[0];
      fused.attrs = attrs;
      members.push_back(rounding);
      const int bias_sum = bias < 0 ? -1 : r.node(bias).out[0];
      if (!r.fuse("softmax_xent", members, fused)) return false;
      if (bias >= 0) r.node(r.graph.producer(bias_sum)).in[0] = rounded;
      return true;
    }
    fused.attrs = attrs;
    return r.fuse("softmax_xent", members, fused);
  });
}

// ---- glu: h = mul(act(g), u)
bool is_gate(const Activation* a) { return a && (a->act == Act::gelu || a->act == Act::gelu_tanh || a->act == Act::silu); }
const OpDef* mul_op() {
  static const OpDef* op = &op_named("mul");
  return op;
}

void glu(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node gate = r.node(i);
    const Activation* a = activation_of(gate.op, false);
    if (!is_gate(a) || r.graph.values[gate.in[0]].shape.rank() != 2) return false;
    const int n = find_reader(r, gate.out[0], mul_op());
    if (n < 0) return false;
    const Node product = r.node(n);
    const int u = product.in[0] == gate.out[0] ? product.in[1] : product.in[0];
    if (u == gate.out[0] || r.graph.values[u].shape != r.graph.values[gate.in[0]].shape) return false;
    if (const std::string other = others(r, gate.out[0], {n}); !other.empty()) {
      r.miss("glu", {i, n}, cat("act(g) is also read by ", other), 1);
      return false;
    }
    return r.fuse("glu", {i, n}, {.op = &op_named("glu"), .attrs = GluAttrs{.act = a->act}, .in = {gate.in[0], u}, .out = product.out});
  });
}

// ---- glu_backward: t = mul(dh, u); du = mul(dh, act(g)); dg = act_backward(t, g)
void glu_backward(Rewriter& r) {
  each_node(r, [&](int i) {
    const Node back = r.node(i);
    const Activation* a = activation_of(back.op, true);
    if (!is_gate(a) || r.graph.values[back.in[1]].shape.rank() != 2) return false;
    const int t = back.in[0], g = back.in[1], first = r.graph.producer(t);
    if (first < 0 || r.node(first).op != mul_op()) return false;
    // Which operand of t is dh? The one that is also multiplied by act(g).
    for (const int which : {0, 1}) {
      const int dh = r.node(first).in[which], u = r.node(first).in[1 - which];
      for (const int n : r.graph.readers(dh)) {
        const Node& second = r.node(n);
        if (n == first || second.op != mul_op() || !second.reads(dh)) continue;
        const int gated = second.in[0] == dh ? second.in[1] : second.in[0];
        const int maker = r.graph.producer(gated);
        if (maker < 0 || r.node(maker).op != a->forward || r.node(maker).in[0] != g) continue;
        const Shape& shape = r.graph.values[g].shape;
        if (r.graph.values[u].shape != shape || r.graph.values[dh].shape != shape) continue;
        if (const std::string other = others(r, t, {i}); !other.empty()) {
          r.miss("glu_backward", {first, n, i}, cat("dh * u is also read by ", other), 2);
          continue;
        }
        Node fused{.op = &op_named("glu_backward"), .attrs = GluAttrs{.act = a->act}, .in = {dh, g, u}, .out = {back.out[0], second.out[0]}};
        if (r.fuse("glu_backward", {first, n, i}, fused)) return true;
      }
    }
    return false;
  });
}

// ---- merge_linear: two linears of one input, whose weights are neighbours in one storage, as one product; with their backward.
// `b` begins where `a` ends, row by row, in one buffer: the value that holds both, or -1.
int joined_rows(Graph& g, int a, int b) {
  const Value &x = g.values[a], &y = g.values[b];
  if (x.buffer != y.buffer || x.dtype != y.dtype || x.shape != y.shape || x.shape.rank() != 2 || !x.contiguous() || !y.contiguous()) return -1;
  if (y.offset != x.offset + x.shape.numel()) return -1;
  const Value whole{.buffer = x.buffer, .dtype = x.dtype, .shape = {2 * x.shape[0], x.shape[1]}, .strides = x.strides, .offset = x.offset};
  for (size_t v = 0; v < g.values.size(); ++v) {
    Value other = g.values[v];
    other.name.clear();
    if (other == whole) return static_cast<int>(v);
  }
  return g.add_value(whole);
}
// Makes a and b the column halves (dim 1) or row halves (dim 0) of `whole`.
void place_halves(Graph& g, int whole, int a, int b, int dim) {
  const Value w = g.values[whole];
  for (const int half : {0, 1}) {
    Value& v = g.values[half ? b : a];
    v.buffer = w.buffer;
    v.strides = w.strides;
    v.offset = w.offset + half * w.strides[dim] * v.shape[dim];
  }
}
// May `value` be moved to memory where its rows are not dense? `who` is the reader that forbids it.
bool takes_strides(const Rewriter& r, int value, std::string* who) {
  for (size_t v = 0; v < r.graph.values.size(); ++v) {
    if (static_cast<int>(v) == value || r.graph.values[v].buffer != r.graph.values[value].buffer) continue;
    *who = "a view of it";
    return false;
  }
  for (const int n : r.graph.readers(value)) {
    for (size_t i = 0; i < r.graph.nodes[n].in.size(); ++i) {
      if (r.graph.nodes[n].in[i] == value && (i >= 32 || !(r.graph.nodes[n].op->strided >> i & 1))) {
        *who = print_node(r.graph, r.graph.nodes[n]);
        return false;
      }
    }
  }
  return !r.graph.is_output(value);
}

void merge_linear(Rewriter& r) {
  each_node(r, [&](int i) {  // forward
    const Node first = r.node(i);
    if (first.op != &kLinearOp) return false;
    for (const int n : r.graph.readers(first.in[0])) {
      const Node second = r.node(n);
      if (n == i || second.op != &kLinearOp || second.in[0] != first.in[0] || !(second.attrs == first.attrs)) continue;
      const bool bias = (first.in.size() > 2 && first.in[2] >= 0) || (second.in.size() > 2 && second.in[2] >= 0);
      const int weight = bias ? -1 : joined_rows(r.graph, first.in[1], second.in[1]);
      if (weight < 0) {
        if (i < n && r.graph.values[first.in[1]].shape == r.graph.values[second.in[1]].shape)
          r.miss("merge_linear", {i, n}, bias ? "they have biases" : "their weights are not neighbours in one storage", 1);
        continue;
      }
      std::string who;
      if (!takes_strides(r, first.out[0], &who) || !takes_strides(r, second.out[0], &who)) {
        r.miss("merge_linear", {i, n}, cat("halves of a row cannot be read by ", who), 1);
        continue;
      }
      const Value y = r.graph.values[first.out[0]];
      const int whole = r.graph.add_local({y.shape[0], 2 * y.shape[1]}, y.dtype, r.graph.device_of(first.out[0]));
      if (r.fuse("merge_linear", {i, n}, {.op = &op_named("merge_linear"), .attrs = first.attrs, .in = {first.in[0], weight}, .out = {whole}})) {
        place_halves(r.graph, whole, first.out[0], second.out[0], 1);
        return true;
      }
    }
    return false;
  });
  each_node(r, [&](int i) {  // dg and du side by side, so that one product reads both
    Node& node = r.node(i);
    if (node.op->text() != "glu_backward" || node.attrs.as<GluAttrs>().merged) return false;
    const int dg = node.out[0], du = node.out[1];
    std::string who;
    if (!takes_strides(r, dg, &who) || !takes_strides(r, du, &who)) return false;
    const Value half = r.graph.values[dg];
    const int whole = r.graph.add_local({half.shape[0], 2 * half.shape[1]}, half.dtype, r.graph.device_of(dg));
    GluAttrs attrs = node.attrs.as<GluAttrs>();
    attrs.merged = true;
    node.attrs = attrs;
    node.out = {whole};
    place_halves(r.graph, whole, dg, du, 1);
    return true;
  });
  // The value of which a and b are the column halves, or -1.
  const auto joined_cols = [&](int a, int b) {
    const Value &x = r.graph.values[a], &y = r.graph.values[b];
    for (size_t v = 0; v < r.graph.values.size() && x.buffer == y.buffer; ++v) {
      const Value& w = r.graph.values[v];
      const bool fits = w.buffer == x.buffer && w.shape.rank() == 2 && w.contiguous() && w.shape[0] == x.shape[0] && w.shape[1] == 2 * x.shape[1] &&
                        x.shape == y.shape && x.strides == w.strides && y.strides == w.strides && x.offset == w.offset && y.offset == x.offset + x.shape[1];
      if (fits) return static_cast<int>(v);
    }
    return -1;
  };
  each_node(r, [&](int i) {  // dW of both: matmul(dg^T, x), matmul(du^T, x)
    const Node first = r.node(i);
    if (!is_weight_grad(first)) return false;
    for (const int n : r.graph.readers(first.in[1])) {
      const Node second = r.node(n);
      if (n == i || !is_weight_grad(second) || second.in[1] != first.in[1] || !(second.attrs == first.attrs)) continue;
      const int whole_dy = joined_cols(first.in[0], second.in[0]);
      if (whole_dy < 0 || r.graph.is_output(first.out[0]) || r.graph.is_output(second.out[0])) continue;
      const Value dw = r.graph.values[first.out[0]];
      const int whole = r.graph.add_local({2 * dw.shape[0], dw.shape[1]}, dw.dtype, r.graph.device_of(first.out[0]));
      if (r.fuse("merge_linear", {i, n}, {.op = &kMatmulOp, .attrs = first.attrs, .in = {whole_dy, first.in[1]}, .out = {whole}, .role = Role::wgrad})) {
        place_halves(r.graph, whole, first.out[0], second.out[0], 0);
        return true;
      }
    }
    return false;
  });
  each_node(r, [&](int i) {  // dx = matmul(dg, Wg) + matmul(du, Wu)
    const Node sum = r.node(i);
    if (sum.op->text() != "add") return false;
    for (const int which : {0, 1}) {
      const int a = r.graph.producer(sum.in[which]), b = r.graph.producer(sum.in[1 - which]);
      if (a < 0 || b < 0 || a == b || r.node(a).op != &kMatmulOp || r.node(b).op != &kMatmulOp || !(r.node(a).attrs == r.node(b).attrs)) continue;
      const MatmulAttrs& m = r.node(a).attrs.as<MatmulAttrs>();
      if (m.trans_a || m.trans_b || r.only_reader(sum.in[0]) != i || r.only_reader(sum.in[1]) != i) continue;
      const int dy = joined_cols(r.node(a).in[0], r.node(b).in[0]);
      const int weight = dy < 0 ? -1 : joined_rows(r.graph, r.node(a).in[1], r.node(b).in[1]);
      if (weight < 0) continue;
      if (r.fuse("merge_linear", {a, b, i}, {.op = &kMatmulOp, .attrs = r.node(a).attrs, .in = {dy, weight}, .out = sum.out, .role = Role::dgrad})) return true;
    }
    return false;
  });
}

// ---- clip_norm: the squared norms of all gradients, their sum, and the scaling
void clip_norm(Rewriter& r) {
  each_node(r, [&](int i) {
    if (r.node(i).op != &kClipInPlaceOp) return false;
    const int total = r.node(i).in[1];
    std::vector<int> members, grads;
    for (size_t n = 0; n < r.graph.nodes.size(); ++n) {
      const Node& node = r.graph.nodes[n];
      if (node.op == &kClipInPlaceOp && node.in[1] == total && node.attrs == r.node(i).attrs) {
        members.push_back(static_cast<int>(n));
        grads.push_back(node.in[0]);
      }
    }
    size_t norms = 0;
    for (size_t n = 0; n < r.graph.nodes.size(); ++n) {
      const Node& node = r.graph.nodes[n];
      if (node.op == &kAccumulateOp && node.in[0] == total) members.push_back(static_cast<int>(n));
      if (node.op != &kSquaredNormOp || std::find(grads.begin(), grads.end(), node.in[0]) == grads.end()) continue;
      members.push_back(static_cast<int>(n));
      ++norms;
    }
    if (norms != grads.size() || members.size() != 3 * grads.size() - 1) {
      r.miss("clip_norm", members, "the clipped gradients are not those whose norm was taken", static_cast<int>(members.size()) - 1);
      return false;
    }
    for (const int m : members) {
      for (const int out : r.node(m).out) {
        if (const std::string other = others(r, out, members); !other.empty()) {
          r.miss("clip_norm", members, cat("the norm is also read by ", other), static_cast<int>(members.size()) - 1);
          return false;
        }
      }
    }
    return r.fuse("clip_norm", members, {.op = &op_named("clip_norm"), .attrs = r.node(i).attrs, .in = grads});
  });
}

// ---- pointwise_chain: neighbours among the pointwise ops, as one pass over tiles
// What a node adds to a chain: one step per result.
bool chainable(const Rewriter& r, const Node& n) { return chain_op_number(n.op) >= 0 && n.out.size() == 1 && r.graph.values[n.out[0]].shape.numel() > 0; }

// The chain of `members` (pointwise nodes or chains, in order), or false if it does not fit.
bool make_chain(const Rewriter& r, const std::vector<int>& members, Node& fused) {
  ChainProgram c;
  std::vector<int> known;  // graph value of each input, then of each step
  const Shape& shape = r.graph.values[r.graph.nodes[members[0]].out[0]].shape;
  const DType dtype = r.graph.values[r.graph.nodes[members[0]].out[0]].dtype;
  for (const int m : members) {
    for (const int in : r.graph.nodes[m].in) {
      const bool inside = std::any_of(members.begin(), members.end(), [&](int k) { return r.graph.nodes[k].out[0] == in; });
      if (inside || std::find(known.begin(), known.end(), in) != known.end()) continue;
      if (c.n_inputs == kChainInputs || r.graph.values[in].dtype != dtype || !chain_takes(shape, r.graph.meta(in))) return false;
      known.push_back(in);
      ++c.n_inputs;
    }
  }
  for (const int m : members) {
    const Node& n = r.graph.nodes[m];
    if (c.n_steps == kChainSteps || r.graph.values[n.out[0]].shape != shape || r.graph.values[n.out[0]].dtype != dtype) return false;
    ChainProgram::Step& step = c.steps[c.n_steps++];
    step.op = static_cast<int16_t>(chain_op_number(n.op));
    step.param = chain_param(n.op, n.attrs);
    for (size_t i = 0; i < n.in.size(); ++i) step.in[i] = static_cast<int8_t>(std::find(known.begin(), known.end(), n.in[i]) - known.begin());
    known.push_back(n.out[0]);
  }
  fused = Node{.op = &op_named("pointwise_chain"), .in = std::vector<int>(known.begin(), known.begin() + c.n_inputs)};
  for (int s = 0; s < c.n_steps; ++s) {
    const int value = known[c.n_inputs + s];
    const bool grad = std::any_of(r.graph.gradients.begin(), r.graph.gradients.end(), [&](const Graph::Gradient& g) { return r.graph.overlap(g.grad, value); });
    if (!grad && others(r, value, members).empty()) continue;
    if (c.n_outputs == kChainOutputs) return false;
    c.outputs[c.n_outputs++] = static_cast<int8_t>(c.n_inputs + s);
    fused.out.push_back(value);
  }
  fused.attrs = ChainAttrs{c};
  return c.n_outputs > 0;
}

void pointwise_chain(Rewriter& r) {
  each_node(r, [&](int i) {
    if (!chainable(r, r.node(i))) return false;
    // Grow from i over readers of what the chain makes, as long as it fits and the order allows.
    std::vector<int> members{i};
    Node best;
    for (size_t k = 0; k < members.size(); ++k) {
      for (const int n : r.graph.readers(r.node(members[k]).out[0])) {
        if (n <= members.back() || !chainable(r, r.node(n)) || !r.node(n).reads(r.node(members[k]).out[0])) continue;
        std::vector<int> longer = members;
        longer.push_back(n);
        Node fused;
        if (make_chain(r, longer, fused)) members = std::move(longer), best = std::move(fused);
      }
    }
    return members.size() > 1 && r.fuse("pointwise_chain", members, best);
  });
}

const Rule kRules[] = {
    {"softmax_xent", "log_softmax, nll and their backwards", "nothing else reads the log-probabilities or their gradient", &kSoftmaxXentOp,
     softmax_xent},
    {"glu_backward", "mul, mul, act_backward of a gated unit", "nothing else reads dh * u", &kGluBackwardOp, glu_backward},
    {"glu", "act(g) * u", "nothing else reads act(g): in training, glu_backward recomputes it", &kGluOp, glu},
    {"merge_linear", "two linears of one input, and their backward",
     "no bias; the weights are neighbours in one storage; readers take strided rows", &kMergeLinearOp, merge_linear},
    {"linear_act", "linear, activation", "under relu nothing else reads the pre-activation", &kLinearActOp, linear_act},
    {"input_grad_act", "matmul(dgrad), activation backward", "nothing else reads the gradient between them", &kInputGradActOp,
     input_grad_act},
    {"weight_bias_grad", "matmul(wgrad), sum_rows(bgrad)", "both read the same dy", &kWeightBiasGradOp, weight_bias_grad},
    {"clip_norm", "squared norms, their sum, clip_in_place", "the clipped tensors are those measured", &kClipNormOp, clip_norm},
    {"weight_grad_update", "weight_bias_grad, optimizer updates",
     "nothing else reads the gradient (clipping, accumulation, a hook); every reader of the old weight is done; one optimizer for weight "
     "and bias",
     &kWeightGradUpdateOp, weight_grad_update},
    {"multi_tensor_update", "optimizer updates", "one optimizer, one state", &kMultiTensorUpdateOp, multi_tensor_update},
    {"pointwise_chain", "neighbouring pointwise ops", "one shape and type; at most 10 steps, 8 inputs, 3 results", &kPointwiseChainOp,
     pointwise_chain},
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
    SINTER_CHECK(!item.empty(), usage, cat("--rules has an empty item: ", escaped(text_)), "--rules all, --rules none, --rules=-NAME,NAME");
    if ((first && remove) || item == "all") on_ = names;
    if (item == "none") {
      on_.clear();
    } else if (item != "all") {
      const bool known = std::find(names.begin(), names.end(), item) != names.end();
      const std::string nearest = nearest_word(item, names);
      std::string all;
      for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
      SINTER_CHECK(known, usage, cat("unknown rule: ", escaped(item), nearest.empty() ? cat("; rules are all, none, ", all) : cat("; nearest is ", nearest)));
      std::erase(on_, item);
      if (!remove) on_.emplace_back(item);
    }
    first = false;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
}

bool RuleSet::has(std::string_view rule) const { return std::find(on_.begin(), on_.end(), rule) != on_.end(); }

Rewriter rewrite(const Graph& recorded, const RuleSet& set, Device::Type device, std::set<std::pair<std::string, int>> refused) {
  Rewriter r(recorded, std::move(refused));
  if (set.text() == "none") return r;
  r.graph.eliminate_dead();
  r.graph.eliminate_duplicates();
  r.graph.verify("eliminating dead and duplicate ops");
  for (const Rule& rule : rules()) {
    if (!set.has(rule.name) || !rule.on(device)) continue;
    rule.apply(r);
    r.graph.eliminate_dead();
    r.graph.verify(rule.name);
  }
  return r;
}

}  // namespace sinter::capture
