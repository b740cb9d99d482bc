// weight_grad_update: dW[o, i] = sum_b dy[b, o] x[b, i] and db[o] = sum_b dy[b, o], in a fixed
// order, applied by the optimizer's formula (ops/update_formulas.h) as they are made: no gradient
// in memory. One launch for all layers, whose operands travel as an argument: the blocks are a list
// of tiles, layer after layer. A block owns a tile of W and its state, those of column tile 0 the
// bias and its state, so every parameter has one owner. Reads dy and x once per tile that needs
// them, parameters and state once; writes parameters, state and bf16 copies once. The last block to
// arrive does the tail of a step.
#include "ops/fused/fused.h"
#include "ops/gemm_launch.cuh"
#include "ops/update_kernel.cuh"

namespace sinter::SINTER_KERNEL_NS {

template <class V> struct UpdatedParameters {
  Columns<V, InOut<V>> weight, state1, state2;
  Columns<bf16, Out<bf16>> bf16_copy;
  UpdateOperands<V> bias;
};

template <class V, class Step> struct UpdateFromSums {
  static constexpr bool kSumsRows = true;
  const UpdatedParameters<V>& to;
  Step step;

  SINTER_DEVICE_FN void operator()(int64_t i, int64_t j, int count, V (&grad)[kGroup]) const {
    if (count == 0) return;
    V p[kGroup], s1[kGroup] = {}, s2[kGroup] = {};
    to.weight.load(i, j, count, p);
    if (to.state1) to.state1.load(i, j, count, s1);
    if (Step::kAdam) to.state2.load(i, j, count, s2);
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q)
      p[q] = update_one(step, p[q], grad[q], s1[q], s2[q], bool(to.state1));
    to.weight.store(i, j, count, p);
    if (to.state1) to.state1.store(i, j, count, s1);
    if (Step::kAdam) to.state2.store(i, j, count, s2);
    if (to.bf16_copy) to.bf16_copy.store(i, j, count, p);
  }
  SINTER_DEVICE_FN void row_sum(int64_t i, V grad) const {
    if (to.bias.param) update_element(step, to.bias, i, grad);
  }
};

constexpr int kLayers = 12;  // 4 KB of arguments

template <class T> struct UpdatedLayers {
  int count = 0;
  int32_t first_block[kLayers] = {};
  Product<T> product[kLayers];
  UpdatedParameters<compute_t<T>> to[kLayers];
};

// f(layer, tile) for the tile of this block.
template <class T, class F>
SINTER_DEVICE_FN void with_tile_of_list(const UpdatedLayers<T>& layers, const F& f) {
  if (layers.count == 0) return;
  int i = 0;
  SINTER_NO_UNROLL
  while (i + 1 < layers.count && block_x() >= layers.first_block[i + 1]) ++i;
  const int64_t tile = block_x() - layers.first_block[i],
                columns = layers.product[i].column_tiles();
  f(i, TileAt{tile / columns, tile % columns});
}

template <class V, template <class> class Step>
SINTER_KERNEL_BOUNDS(kFfmaThreads<V>, 1)
weight_grad_update_ffma_16x64(UpdatedLayers<V> layers, UpdateStep step, UpdateAttrs attrs) {
  const Step<V> apply(step_scalars(step), attrs);
  with_tile_of_list(layers, [&](int i, const TileAt& tile) {
    ffma_product(layers.product[i], UpdateFromSums<V, Step<V>>{layers.to[i], apply}, tile);
  });
  finish_step<Step<V>>(step, attrs);
}

template <class T, template <class> class Step, Layout kDy, Layout kX>
SINTER_KERNEL_BOUNDS(kMmaThreads)
weight_grad_update_mma_64x64(UpdatedLayers<T> layers, UpdateStep step, UpdateAttrs attrs) {
  using V = float;
  const Step<V> apply(step_scalars(step), attrs);
  with_tile_of_list(layers, [&](int i, const TileAt& tile) {
    mma_product<kDy, kX>(layers.product[i], UpdateFromSums<V, Step<V>>{layers.to[i], apply}, tile);
  });
  finish_step<Step<V>>(step, attrs);
}

namespace {

template <class T> UpdatedParameters<compute_t<T>> updated_parameters(Operands layer) {
  using V = compute_t<T>;
  return {columns_in_out<V>(layer[2]), columns_in_out<V>(layer[3]), columns_in_out<V>(layer[4]),
      columns_out<bf16>(layer[5]),
      layer[6].defined()
          ? update_operands<V>(UpdateGroup{layer[6], Tensor(), layer[7], layer[8], layer[9]})
          : UpdateOperands<V>{}};
}

// The list of blocks where a tile has that many rows: where each layer's begin, and how many there
// are.
template <class T> int64_t list_blocks(UpdatedLayers<T>& layers, int rows) {
  int64_t blocks = 0;
  for (int i = 0; i < layers.count; ++i) {
    layers.first_block[i] = static_cast<int32_t>(blocks);
    blocks += layers.product[i].grid(rows).blocks();
  }
  return blocks;
}

template <class T, template <class> class Step>
void launch_layers(UpdatedLayers<T>& layers, const UpdateStep& step, const UpdateAttrs& attrs) {
  const auto grid_of = [&](int rows) {
    return Grid{std::max<int64_t>(list_blocks(layers, rows), 1)};  // one for the tail alone
  };
  if constexpr (kHasMma<T>) {
    constexpr Layout kOuter = Layout::along_outer, kEither = Layout::either;
    const bool usual = std::all_of(layers.product, layers.product + layers.count,
        [](const Product<T>& p) { return has_layout<kOuter, kOuter>(p); });
    const Grid grid = grid_of(kTile);
    if (on_tensor_cores<T>() && usual)
      return launch<weight_grad_update_mma_64x64<T, Step, kOuter, kOuter>>(
          grid, kMmaThreads, sizeof(MmaTiles<T>), layers, step, attrs);
    if (on_tensor_cores<T>())
      return launch<weight_grad_update_mma_64x64<T, Step, kEither, kEither>>(
          grid, kMmaThreads, sizeof(MmaTiles<T>), layers, step, attrs);
  }
  if constexpr (kHasFfma<T>) {
    const Grid grid = grid_of(kFfmaRows);
    launch<weight_grad_update_ffma_16x64<T, Step>>(
        grid, kFfmaThreads<T>, sizeof(FfmaShared<T>), layers, step, attrs);
  }
}

}  // namespace

void weight_grad_update(const Call& call) {
  const size_t count = call.in.size() / kLayerOperands;
  visit_float(call.in[0].dtype(), [&]<class T>(T) {
    UpdateAttrs attrs = call.as<UpdateAttrs>();
    const UpdateStep step = update_step(UpdateEnd(call.in));
    const bool tail = attrs.tail, adam = call.in[kLayerState2].defined();
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
      if (adam) {
        launch_layers<T, AdamStep>(layers, step, attrs);
      } else {
        launch_layers<T, SgdStep>(layers, step, attrs);
      }
    } while (at < count);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
