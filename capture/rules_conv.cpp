#include "capture/pattern.h"
#include "capture/rules.h"
#include "ops/fused/fused.h"

namespace sinter::capture {

// Note [ReLU in a pooling]
//   relu(max(z)) is max(relu(z)): ReLU keeps the order. So a net may say relu, pool or pool, relu:
//   one op does both, no tensor lies between them, and backward reads no y. Where ReLU lets nothing
//   pass the index has no place (MaxPool2dAttrs::relu), so pooling's gradient is that of both:
//
//       z -> relu -> max_pool2d -> y                  z -> max_pool2d relu -> y
//                        | index                             | index
//       dy -> max_pool2d_backward                     dy -> max_pool2d_backward -> dz
//          -> relu_backward -> dz
//
//   The place of a maximum may differ where ReLU has made a whole window 0; no gradient passes
//   there. conv_act_pool needs this op: it pools what is still in a tile. Without a convolution in
//   front and without backward nothing is gained, and ReLU may fuse with what is before it.
//   Code, since forward and backward change together or not at all: the one would be wrong with the
//   other's plain index.
bool rule::relu_in_pool(Rewriter& r, int i) {
  const auto is_relu = [](const Node& node) { return node.op->text() == "relu"; };
  const auto is_pool = [](const Node& node) {
    return node.op == &kMaxPool2dOp && !node.attrs.as<MaxPool2dAttrs>().relu;
  };
  const Node second = r.node(i);
  const bool relu_first = is_pool(second);
  const int first_at = relu_first || is_relu(second) ? r.producer(second.in[0]) : -1;
  if (first_at < 0) return false;
  const Node first = r.node(first_at);
  if (!(relu_first ? is_relu(first) : is_pool(first))) return false;
  const Node &relu = relu_first ? first : second, &pool = relu_first ? second : first;
  const int index = pool.out[1];

  // Their gradients, if there are any, come in the other order, nothing between them.
  const int relu_back = r.find_reader(relu.out[0], *find_op("relu_backward")),
            pool_back = r.find_reader(index, kMaxPool2dBackwardOp),
            back_first = relu_first ? pool_back : relu_back,
            back_second = relu_first ? relu_back : pool_back;
  const bool back = relu_back >= 0 && pool_back >= 0 && r.node(relu_back).in[1] == relu.out[0] &&
                    r.only_reader(r.node(back_first).out[0]) == back_second;
  const int conv_at = r.producer(first.in[0]);
  const bool of_conv = conv_at >= 0 && r.node(conv_at).op == &kConv2dOp;
  if (!of_conv && !back) return false;
  const char* const name = kConvActPoolOp.name.c_str();
  Obstacle other = r.other_reader(
      str("what ", first.op->text(), " gives"), first.out[0], {first_at, i, back ? relu_back : i});
  if (other) return of_conv && r.miss(name, {first_at, i}, std::move(other));
  if (r.read_elsewhere(index, {back ? pool_back : i})) return false;

  Node forward = pool;
  forward.attrs.set("relu", true);
  forward.in = first.in;
  forward.out = {second.out[0], index};
  Node backward;
  std::vector<int> back_at;
  if (back) {
    backward = r.node(pool_back);
    backward.in[0] = r.node(back_first).in[0];
    backward.out = r.node(back_second).out;
    back_at = {back_first, back_second};
  }
  if (!r.fuse_pair(name, {first_at, i}, std::move(forward), back_at, std::move(backward)))
    return false;
  fuse_patterns(r, label_of(kConvActPoolOp));
  return true;
}

// Behind a dropout the next layer keeps what dropout gives, and y would be kept for ReLU alone.
// Dropout gives 0 where y is 0 or dropped, and what is dropped has no gradient: so ReLU's gradient
// reads what dropout gives.
bool rule::relu_behind_dropout(Rewriter& r, int i) {
  Node back = r.node(i);
  if (back.op->text() != "relu_backward") return false;
  const int drop_at = r.find_reader(back.in[1], kDropoutOp), drop_back_at = r.producer(back.in[0]);
  if (drop_at < 0 || drop_back_at < 0) return false;
  const Node &drop = r.node(drop_at), &drop_back = r.node(drop_back_at);
  const bool one_draw = drop_back.op == &kDropoutOp && drop.in[0] == back.in[1] &&
                        drop.in[1] == drop_back.in[1] && drop.attrs == drop_back.attrs;
  if (!one_draw || r.written_between(drop.out[0], drop_at + 1, i)) return false;
  back.in[1] = drop.out[0];
  r.replace(i, std::move(back));
  return true;
}

// Note [ReLU between two convolutions]
//   conv_act_backward reads y to know where ReLU let dy pass. If y is the x of the convolution
//   behind it, that one's gradients read the same x for dW anyway, so they give what ReLU took
//   where they give dx, and y is read once less.
//   Code, since two groups change together, each of which is whole without the other.
bool rule::relu_between_convs(Rewriter& r, int i) {
  Node back = r.node(i);
  if (back.op != &kConvActBackwardOp || back.in[2] < 0) return false;
  const int behind_at = r.producer(back.in[0]);
  if (behind_at < 0 || r.read_elsewhere(back.in[0], {i})) return false;
  Node behind = r.node(behind_at);
  const bool of_conv = behind.op == &kConvActBackwardOp || behind.op == &kConvActPoolBackwardOp;
  if (!of_conv || behind.in[1] != back.in[2]) return false;
  behind.attrs.set("relu", true);
  back.in[2] = -1;
  r.replace(behind_at, std::move(behind));
  r.replace(i, std::move(back));
  return true;
}

// Note [Folding batch norm into a convolution]
//   In evaluation batch norm is scale and shift of a channel by numbers that do not depend on x.
//   The convolution in front of it can have them in its weights and bias; the pattern finds that.
//   In training the numbers are the moments of what the convolution gives, so it must be done
//   first. Code, which fuses nothing, to say so in explain().
bool rule::norm_of_batch(Rewriter& r, int i) {
  const Node& norm = r.node(i);
  if (norm.op != &kBatchNorm2dOp) return false;
  const int conv_at = r.producer(norm.in[0]);
  if (conv_at < 0 || r.node(conv_at).op != &kConv2dOp) return false;
  return r.miss("conv_norm_act", {conv_at, i},
      {"batch_norm2d takes the moments of this batch, which the convolution must give first",
          "call eval(): it then takes the running ones"});
}

}  // namespace sinter::capture
