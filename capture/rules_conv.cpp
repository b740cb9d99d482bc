#include "capture/pattern.h"
#include "capture/rules.h"
#include "ops/fused/fused.h"

namespace sinter::capture {

// Note [Pooling before ReLU]
//   relu(max(z)) is max(relu(z)): ReLU keeps the order. So a net that says relu, pool may pool
//   first, and ReLU and its gradient then have a quarter of the elements, and backward keeps the
//   small y in place of the large one:
//
//       z -> relu -> max_pool2d -> y               z -> max_pool2d -> relu -> y
//       dy -> max_pool2d_backward                  dy -> relu_backward
//          -> relu_backward -> dz                     -> max_pool2d_backward -> dz
//
//   The index of a maximum may differ where ReLU has made a whole window 0; no gradient passes
//   there. conv_act_pool needs this order: it pools what is still in a tile. Without a convolution
//   in front and without backward nothing is gained, and ReLU may fuse with what is before it.
//   Code, since it puts nothing in place of the ops: it changes their places.
bool rule::pool_before_relu(Rewriter& r, int i) {
  Node pool = r.node(i);
  if (pool.op != &kMaxPool2dOp) return false;
  const int relu_at = r.producer(pool.in[0]);
  if (relu_at < 0 || r.node(relu_at).op->text() != "relu") return false;
  Node relu = r.node(relu_at);
  const int rectified = relu.out[0], result = pool.out[0], conv_at = r.producer(relu.in[0]);
  const bool of_conv = conv_at >= 0 && r.node(conv_at).op == &kConv2dOp;
  // Backward, if there is one. The small y must still be there when it is read.
  const int relu_back_at = r.find_reader(rectified, *find_op("relu_backward")),
            pool_back_at = relu_back_at < 0 ? -1 : r.producer(r.node(relu_back_at).in[0]);
  const bool back = pool_back_at >= 0 && r.node(pool_back_at).op == &kMaxPool2dBackwardOp &&
                    r.node(pool_back_at).in[1] == pool.out[1] &&
                    r.only_reader(r.node(pool_back_at).out[0]) == relu_back_at &&
                    !r.written_between(result, i + 1, relu_back_at);
  if (!of_conv && !back) return false;
  const std::vector<int> ours = back ? std::vector{i, relu_back_at} : std::vector{i};
  if (Obstacle other = r.other_reader("what relu gives", rectified, ours))
    return of_conv && r.miss(kConvActPoolOp.name.c_str(), {relu_at, i}, std::move(other));

  const Value y = r.graph.values[result];
  const auto small = [&] { return r.add_local(y.shape, y.dtype, r.graph.device_of(result)); };
  pool.out[0] = small();
  pool.in = {relu.in[0]};
  relu.in = {pool.out[0]};
  relu.out[0] = result;
  r.replace(relu_at, std::move(pool));
  r.replace(i, std::move(relu));
  if (back) {
    Node relu_back = r.node(relu_back_at), pool_back = r.node(pool_back_at);
    relu_back.in = {pool_back.in[0], result};
    pool_back.out[0] = std::exchange(relu_back.out[0], small());
    pool_back.in[0] = relu_back.out[0];
    r.replace(pool_back_at, std::move(relu_back));
    r.replace(relu_back_at, std::move(pool_back));
  }
  fuse_patterns(r, kConvActPoolOp);
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
  return r.miss(kConvNormActOp.name.c_str(), {conv_at, i},
      {"batch_norm2d takes the moments of this batch, which the convolution must give first",
          "call eval(): it then takes the running ones"});
}

}  // namespace sinter::capture
