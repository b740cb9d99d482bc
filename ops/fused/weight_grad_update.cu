// weight_grad_update: dW[o, i] = sum_b dy[b, o] x[b, i] and db[o] = sum_b dy[b, o], in a fixed
// order, applied by the optimizer's formula (ops/optim/optimizers.h) as they are made: no
// gradient in memory. One launch for all layers, whose operands travel as an argument: the blocks
// are a list of tiles, layer after layer. A block owns a tile of W and its state, those of column
// tile 0 the bias and its state, so every parameter has one owner. Reads dy and x once per tile
// that needs them, parameters and state once; writes parameters, state and bf16 copies once. The
// last block to arrive does the tail of a step.
#include "ops/fused/fused.h"
#include "ops/optim/update_kernel.cuh"
#include "ops/product/gemm_launch.cuh"

namespace sinter::SINTER_KERNEL_NS {

template <class V> struct UpdatedParameters {
  Columns<V, InOut<V>> weight, state1, state2;
  Columns<bf16, Out<bf16>> bf16_copy;
  In<double> skipped;  // by the weight
  UpdateOperands<V> bias;
};

template <class V, class Step> struct UpdateFromSums {
  static constexpr bool kSumsRows = true;
  const UpdatedParameters<V>& to;
  const UpdateStep& end;
  const UpdateAttrs& attrs;
  Step step;  // of the weight

  SINTER_DEVICE_FN UpdateFromSums(
      const UpdatedParameters<V>& to, const UpdateStep& end, const UpdateAttrs& attrs)
      : to(to), end(end), attrs(attrs), step(step_of<Step>(to.skipped, end, attrs)) {}

  SINTER_DEVICE_FN void operator()(int64_t i, int64_t j, int count, V (&grad)[kGroup]) const {
    if (count == 0) return;
    V p[kGroup], s1[kGroup] = {}, s2[kGroup] = {};
    to.weight.load(i, j, count, p);
    if (to.state1) to.state1.load(i, j, count, s1);
    if (Step::kStates > 1) to.state2.load(i, j, count, s2);
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q)
      p[q] = update_one(step, p[q], grad[q], s1[q], s2[q], bool(to.state1));
    to.weight.store(i, j, count, p);
    if (to.state1) to.state1.store(i, j, count, s1);
    if (Step::kStates > 1) to.state2.store(i, j, count, s2);
    if (to.bf16_copy) to.bf16_copy.store(i, j, count, p);
  }
  SINTER_DEVICE_FN void row_sum(int64_t i, V grad) const {
    if (!to.bias.param) return;
    // Seldom another step than the weight's, and costly: made where it is one.
    const bool same = value_of(to.bias.skipped) == value_of(to.skipped);
    update_element(same ? step : step_of<Step>(to.bias.skipped, end, attrs), to.bias, i, grad);
  }
};

constexpr int kLayers = 12;  // 4 KB of arguments

template <class T> struct UpdatedLayers {
  int count = 0;
  int32_t first_block[kLayers] = {};
  SplitSums<compute_t<T>> split;  // of the layers of the first one's batch
  Product<T> product[kLayers];
  UpdatedParameters<compute_t<T>> to[kLayers];

  SINTER_FN SplitSums<compute_t<T>> split_of(int i) const {
    if (product[i].a.k == product[0].a.k) return split;
    return {};
  }
};

// f(layer, split, tile) for the tile, or the share of one, of this block.
template <class T, class F>
SINTER_DEVICE_FN void with_tile_of_list(const UpdatedLayers<T>& layers, const F& f) {
  if (layers.count == 0) return;
  int i = 0;
  SINTER_NO_UNROLL
  while (i + 1 < layers.count && block_x() >= layers.first_block[i + 1]) ++i;
  const auto split = layers.split_of(i);
  const int block = static_cast<int>(block_x()), part = block - layers.first_block[i],
            share = part % split.shares,
            columns = static_cast<int>(layers.product[i].column_tiles()),
            tile = part / split.shares;
  f(i, split, TileAt{tile / columns, tile % columns, share, (block - share) / split.shares});
}

template <class V, class O, Layout kDy, Layout kX>
SINTER_KERNEL_BOUNDS(kFfmaThreads<V>, 1)
weight_grad_update_ffma_16x64(UpdatedLayers<V> layers, UpdateStep step, UpdateAttrs attrs) {
  using Step = typename O::template Step<V>;
  with_tile_of_list(layers, [&](int i, const SplitSums<V>& split, const TileAt& tile) {
    ffma_product<kDy, kX>(
        layers.product[i], UpdateFromSums<V, Step>(layers.to[i], step, attrs), split, tile);
  });
  finish_step<Step>(step, attrs);
}

template <class T, class O, Layout kDy, Layout kX>
SINTER_KERNEL_BOUNDS(kMmaThreads, 2)
weight_grad_update_mma_64x64(UpdatedLayers<T> layers, UpdateStep step, UpdateAttrs attrs) {
  using V = float;
  using Step = typename O::template Step<V>;
  with_tile_of_list(layers, [&](int i, const SplitSums<V>& split, const TileAt& tile) {
    mma_product<kDy, kX>(
        layers.product[i], UpdateFromSums<V, Step>(layers.to[i], step, attrs), split, tile);
  });
  finish_step<Step>(step, attrs);
}

namespace {

template <class T> UpdatedParameters<compute_t<T>> updated_parameters(Operands layer) {
  using V = compute_t<T>;
  return {columns_in_out<V>(layer[2]), columns_in_out<V>(layer[3]), columns_in_out<V>(layer[4]),
      columns_out<bf16>(layer[5]), in<double>(layer[6]),
      layer[7].defined() ? update_operands<V>(UpdateGroup{
                               layer[7], Tensor(), layer[8], layer[9], layer[10], layer[11]})
                         : UpdateOperands<V>{}};
}

// The list of blocks where a tile has that many rows: where each layer's begin, and how many there
// are.
template <int kRows, class T> Grid list_blocks(UpdatedLayers<T>& layers) {
  int64_t blocks = 0;
  for (int i = 0; i < layers.count; ++i) blocks += layers.product[i].grid(kRows).blocks();
  if (layers.count > 0)
    layers.split = split_sums<kRows, kTile, compute_t<T>>(blocks, layers.product[0].a.k);
  blocks = 0;
  for (int i = 0; i < layers.count; ++i) {
    layers.first_block[i] = static_cast<int32_t>(blocks);
    blocks += layers.product[i].grid(kRows).blocks() * layers.split_of(i).shares;
  }
  return {std::max<int64_t>(blocks, 1)};  // one for the tail alone
}

template <class T, class O>
void launch_layers(UpdatedLayers<T>& layers, const UpdateStep& step, const UpdateAttrs& attrs) {
  constexpr Layout kOuter = Layout::along_outer, kEither = Layout::either;
  const bool usual = std::all_of(layers.product, layers.product + layers.count,
      [](const Product<T>& p) { return has_layout<kOuter, kOuter>(p); });
  if constexpr (kHasMma<T>) {
    if (on_tensor_cores<T>()) {
      const Grid grid = list_blocks<kTile>(layers);
      if (usual)
        return launch<weight_grad_update_mma_64x64<T, O, kOuter, kOuter>>(
            grid, kMmaThreads, sizeof(MmaTiles<T>), layers, step, attrs);
      return launch<weight_grad_update_mma_64x64<T, O, kEither, kEither>>(
          grid, kMmaThreads, sizeof(MmaTiles<T>), layers, step, attrs);
    }
  }
  if constexpr (kHasFfma<T>) {
    constexpr Layout kUsual = kKnown<T, kOuter>;
    const Grid grid = list_blocks<kFfmaRows>(layers);
    if (usual)
      return launch<weight_grad_update_ffma_16x64<T, O, kUsual, kUsual>>(
          grid, kFfmaThreads<T>, sizeof(FfmaShared<T>), layers, step, attrs);
    launch<weight_grad_update_ffma_16x64<T, O, kEither, kEither>>(
        grid, kFfmaThreads<T>, sizeof(FfmaShared<T>), layers, step, attrs);
  }
}

}  // namespace

void weight_grad_update(const Call& call) {
  const size_t count = call.in.size() / kLayerOperands;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    UpdateAttrs attrs = call.as<UpdateAttrs>();
    const UpdateStep step = update_step(UpdateEnd(call.in));
    const bool tail = attrs.tail;
    size_t at = 0;
    do {
      UpdatedLayers<T> layers;
      for (; layers.count < kLayers && at < count; ++at) {
        const Operands layer = call.in.subspan(at * kLayerOperands, kLayerOperands);
        if (layer[0].size(1) == 0) continue;
        layers.product[layers.count] = {
            product_side<T>(layer[0], true), product_side<T>(layer[1], true)};
        layers.to[layers.count++] = updated_parameters<T>(layer);
      }
      attrs.tail = tail && at == count;
      if (layers.count == 0 && !attrs.tail) return;
      with_optimizer(
          attrs.optimizer, [&]<class O>(O) { launch_layers<T, O>(layers, step, attrs); });
    } while (at < count);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
