#include "capture/pattern.h"
#include "capture/rules.h"
#include "ops/fused/fused.h"
#include "ops/pointwise/relu_mask.h"

namespace sinter::capture {

// Note [Pooling before ReLU]
//   relu(max(z)) is max(relu(z)): ReLU keeps the order. So a net that says conv, relu, pool may
//   pool first, and ReLU, its mask and its gradient then have a quarter of the elements:
//
//       z -> relu -> max_pool2d -> y               z -> max_pool2d -> relu -> y
//       dy -> max_pool2d_backward                  dy -> relu_backward
//          -> relu_backward -> dz                     -> max_pool2d_backward -> dz
//
//   The index of a maximum may differ where ReLU has made a whole window 0; no gradient passes
//   there. conv_act_pool needs this order: it pools what is still in a tile, and keeps one mask, of
//   the small result. Code, since it puts nothing in place of the ops: it changes their places.
bool rule::pool_before_relu(Rewriter& r, int i) {
  Node pool = r.node(i);
  if (pool.op != &kMaxPool2dOp) return false;
  const int relu_at = r.producer(pool.in[0]);
  if (relu_at < 0 || r.node(relu_at).op->text() != "relu") return false;
  Node relu = r.node(relu_at);
  const int conv_at = r.producer(relu.in[0]);
  if (conv_at < 0 || r.node(conv_at).op != &kConv2dOp) return false;
  const int rectified = relu.out[0], mask = relu.out.size() > 1 ? relu.out[1] : -1;
  const auto miss = [&](Obstacle obstacle) {
    return r.miss(kConvActPoolOp.name.c_str(), {relu_at, i}, std::move(obstacle));
  };
  if (Obstacle other = r.other_reader("what relu gives", rectified, {i})) return miss(other);
  // Backward, if there is one: the only reader of the mask, and what makes its operand.
  const int relu_back_at = mask < 0 ? -1 : r.only_reader(mask);
  const int pool_back_at = relu_back_at < 0 ? -1 : r.producer(r.node(relu_back_at).in[0]);
  if (mask >= 0 && !r.readers(mask).empty()) {
    const bool ours = pool_back_at >= 0 && r.node(pool_back_at).op == &kMaxPool2dBackwardOp &&
                      r.node(pool_back_at).in[1] == pool.out[1] &&
                      r.only_reader(r.node(pool_back_at).out[0]) == relu_back_at;
    if (!ours) return miss({"relu's mask is read by more than its gradient", "pool before relu"});
  }

  const Value y = r.graph.values[pool.out[0]];
  const Device device = r.graph.device_of(pool.out[0]);
  const int pooled = r.add_local(y.shape, y.dtype, device);
  const int small_mask = r.add_local(relu_mask_shape(y.shape), DType::u8, device);
  const int result = pool.out[0];
  pool.in = {relu.in[0]};
  pool.out[0] = pooled;
  relu.in = {pooled};
  relu.out[0] = result;
  if (mask >= 0) relu.out[1] = small_mask;
  r.replace(relu_at, std::move(pool));
  r.replace(i, std::move(relu));
  if (relu_back_at >= 0) {
    Node relu_back = r.node(relu_back_at), pool_back = r.node(pool_back_at);
    const int dpooled = r.add_local(y.shape, y.dtype, device);
    const int dz = relu_back.out[0];
    relu_back.in = {pool_back.in[0], small_mask};
    relu_back.out[0] = dpooled;
    pool_back.in[0] = dpooled;
    pool_back.out[0] = dz;
    r.replace(pool_back_at, std::move(relu_back));
    r.replace(relu_back_at, std::move(pool_back));
  }
  fuse_patterns(r, kConvActPoolOp);
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
