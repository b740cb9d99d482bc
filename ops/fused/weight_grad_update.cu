// weight_bias_grad: dW[o, i] = sum_b dy[b, o] x[b, i], db[o] = sum_b dy[b, o], both in a fixed
// order (db tile by tile). A block owns a tile of dW; those of column tile 0 own db and sum it from
// the tiles they have anyway. Reads dy and x once per tile that needs them; writes 4 O I + 4 O
// bytes.
//
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

SINTER_PRODUCT_KERNELS(weight_bias_grad, Product)

void weight_bias_grad(const Call& call) {
  const Tensor &dy = call.in[0], &x = call.in[1], &dw = call.out[0], &db = call.out[1];
  if (db.numel() == 0) return;
  const auto own = [&] {
    visit_float(dy.dtype(), [&]<class T>(T) {
      using V = compute_t<T>;
      // dy may have as many columns as there are classes.
      launch_weight_bias_grad<Layout::ragged_outer, Layout::along_outer>(
          Product<T>{product_side<T>(dy, true), product_side<T>(x, true)},
          StoreGrads<T>{columns_out<V>(dw), out<V>(db)});
    });
  };
  if (dw.numel() == 0) return own();  // db alone
  by_library_or(
      own, dy, true, x, false, Tensor(), dw, GemmEpilogue{GemmEpilogue::bias_grad, db.raw()});
}

template <class V> struct UpdatedParameters {
  Columns<V, InOut<V>> weight, state1, state2;
  Columns<bf16, Out<bf16>> bf16_copy;
  In<double> skipped;  // by the weight
  UpdateOperands<V> bias;

  bool all_whole() const {
    const auto whole = [](const auto& columns) { return !columns || columns.vec; };
    return whole(weight) && whole(state1) && whole(state2) && whole(bf16_copy);
  }
};

template <class V, class Step> struct UpdateFromSums {
  static constexpr bool kSumsRows = true;
  const UpdatedParameters<V>& to;
  const UpdateStep& end;
  const UpdateAttrs& attrs;
  StepScalars scalars;  // of the weight; loaded long before they are needed

  SINTER_DEVICE_FN UpdateFromSums(
      const UpdatedParameters<V>& to, const UpdateStep& end, const UpdateAttrs& attrs)
      : to(to), end(end), attrs(attrs), scalars(scalars_of<Step>(to.skipped, end)) {}

  struct Read : AllOfGroup {
    Group<V> p, s1, s2;
  };
  SINTER_DEVICE_FN void load_columns(int64_t, Read&) const {}
  SINTER_DEVICE_FN void load(int64_t i, int64_t j, Read& read) const {
    read.p = to.weight.load(i, j);
    if (to.state1) read.s1 = to.state1.load(i, j);
    if (Step::kStates > 1) read.s2 = to.state2.load(i, j);
  }
  template <class Count>
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, const Count& count, V (&grad)[kGroup]) const {
    if (count == 0) return;
    V p[kGroup], s1[kGroup] = {}, s2[kGroup] = {};
    if constexpr (kAllOfGroup<Count>) {
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) {
        p[q] = count.p[q];
        if (to.state1) s1[q] = count.s1[q];
        if (Step::kStates > 1) s2[q] = count.s2[q];
      }
    } else {
      to.weight.load(i, j, count, p);
      if (to.state1) to.state1.load(i, j, count, s1);
      if (Step::kStates > 1) to.state2.load(i, j, count, s2);
    }
    const Step step = step_of<Step>(scalars, end, attrs);
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
    const auto of_bias = scalars_of<Step>(to.bias.skipped, end);
    update_element(step_of<Step>(of_bias, end, attrs), to.bias, i, grad);
  }
};

constexpr int kLayers = 12;  // 4 KB of arguments

template <class T> struct UpdatedLayer {
  Product<T> product;
  int columns = 1;      // of tiles
  bool splits = false;  // is its batch the first layer's, whose shares it then has?
  UpdatedParameters<compute_t<T>> to;
};
// The blocks of a launch: layer after layer, of a layer tile after tile, of a tile that is split
// share after share, then perhaps one for the tail of a step.
//   first[0] is 0, first[l + 1] - first[l] = tiles of layer l x its shares: split.shares of a layer
//   that splits, else one. So block b is of the last layer whose first is not behind it.
//   Where split tiles leave their sums: no two get one place, as from tile to tile the block before
//   advances by the shares; and places stay below the number of tiles, by which the sums were
//   split.
template <class V> struct BlockList {
  int layers = 0;
  int32_t first[kLayers] = {};
  SplitSums<V> split;

  // One after the other: by halves, kernels in double spill on 8.0.
  SINTER_DEVICE_FN int layer_of(int64_t block) const {
    int l = 0;
    SINTER_NO_UNROLL
    while (l + 1 < layers && block >= first[l + 1]) ++l;
    return l;
  }
  // What a block of layer l makes, whose result has so many columns of tiles.
  SINTER_DEVICE_FN TileAt tile(int l, int block, int shares, int columns) const {
    const int part = block - first[l], share = part % shares, tile = part / shares;
    return {tile / columns, tile % columns, share, (block - share) / shares};
  }
};
template <class T> struct UpdatedLayers {
  BlockList<compute_t<T>> blocks;
  UpdatedLayer<T> of[kLayers];
  std::span<UpdatedLayer<T>> list() { return {of, static_cast<size_t>(blocks.layers)}; }
};
// A block's own layer is in its shared memory: an argument that is indexed costs a trip to memory
// for each part of it that is met for the first time.
template <class T, class Tiles> struct LayerShared {
  Tiles tiles;
  UpdatedLayer<T> layer;
};

// f(layer, split, tile) for the tile, or the share of one, of this block.
template <class T, class Tiles, class F>
SINTER_DEVICE_FN void with_tile_of_list(const UpdatedLayers<T>& layers, const F& f) {
  const int l = layers.blocks.layer_of(block_x());
  auto& layer = shared<LayerShared<T, Tiles>>().layer;
  share(layer, layers.of[l]);
  block_sync();
  SplitSums<compute_t<T>> split;
  if (layer.splits) split = layers.blocks.split;
  f(layer, split, layers.blocks.tile(l, static_cast<int>(block_x()), split.shares, layer.columns));
}

// What each kernel does, with its core: product(operands, epilogue, split, tile).
template <class O, class Tiles, class T, class F>
SINTER_DEVICE_FN void update_layers(const UpdatedLayers<T>& layers, const UpdateStep& step,
    const UpdateAttrs& attrs, const F& product) {
  using V = compute_t<T>;
  using Step = typename O::template Step<V>;
  wait_for_upstream();
  begin_dependents();
  if (!makes_next_state(attrs))
    with_tile_of_list<T, Tiles>(
        layers, [&](const auto& layer, const SplitSums<V>& split, const TileAt& tile) {
          if (is_idle(step)) return;
          product(Product<T>(layer.product), UpdateFromSums<V, Step>(layer.to, step, attrs), split,
              tile);
        });
  finish_step<Step>(step, attrs);
}
template <class V, class O, Layout kDy, Layout kX>
SINTER_KERNEL_BOUNDS(kFfmaThreads<V>, is_whole(kX) ? 2 : 1)
weight_grad_update_ffma_16x64(UpdatedLayers<V> layers, UpdateStep step, UpdateAttrs attrs) {
  update_layers<O, FfmaShared<V>>(
      layers, step, attrs, [](const auto&... x) { ffma_product<kDy, kX>(x...); });
}
template <class V, class O, Layout kDy, Layout kX>
SINTER_KERNEL_BOUNDS(kFfmaThreads<V>, 1)
weight_grad_update_ffma_64x64(UpdatedLayers<V> layers, UpdateStep step, UpdateAttrs attrs) {
  update_layers<O, FfmaShared<V, kTile>>(
      layers, step, attrs, [](const auto&... x) { ffma_product<kDy, kX, kTile>(x...); });
}
template <class T, class O, Layout kDy, Layout kX>
SINTER_KERNEL_BOUNDS(kMmaThreads, 2)
weight_grad_update_mma_64x64(UpdatedLayers<T> layers, UpdateStep step, UpdateAttrs attrs) {
  update_layers<O, MmaTiles<T>>(
      layers, step, attrs, [](const auto&... x) { mma_product<kDy, kX>(x...); });
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

// Fills the list, where a tile has that many rows. The shares are the first layer's, and of those
// whose batch is as large.
template <int kRows, class T>
Grid list_blocks(UpdatedLayers<T>& layers, bool tail, size_t shared_bytes = 0) {
  auto& list = layers.blocks;
  const auto tiles_of = [](const auto& layer) { return layer.product.grid(kRows).blocks(); };
  int64_t tiles = 0, blocks = 0, at = 0;
  for (const auto& layer : layers.list()) tiles += tiles_of(layer);
  const int64_t batch = layers.of[0].product.a.k;
  if (list.layers > 0) list.split = split_sums<kRows, compute_t<T>>(tiles, batch, shared_bytes);
  for (auto& layer : layers.list()) {
    layer.columns = static_cast<int>(layer.product.column_tiles());
    layer.splits = layer.product.a.k == batch;
    list.first[at++] = static_cast<int32_t>(blocks);
    blocks += tiles_of(layer) * (layer.splits ? list.split.shares : 1);
  }
  return {blocks + tail};
}

template <class T, class O>
void launch_layers(UpdatedLayers<T>& layers, const UpdateStep& step, const UpdateAttrs& attrs) {
  // dy of the last layer has as many columns as there are classes.
  constexpr Layout kRagged = Layout::ragged_outer, kOuter = Layout::along_outer,
                   kEither = Layout::either;
  const bool usual = std::ranges::all_of(layers.list(), [](const UpdatedLayer<T>& layer) {
    return has_layout<kRagged, kOuter>(layer.product, layer.to);
  });
  if constexpr (kHasMma<T>) {
    if (on_tensor_cores<T>()) {
      constexpr size_t kBytes = sizeof(LayerShared<T, MmaTiles<T>>);
      const Grid grid = list_blocks<kTile>(layers, attrs.tail, kBytes);
      if (usual)
        return launch_waiting<weight_grad_update_mma_64x64<T, O, kRagged, kOuter>>(
            grid, kMmaThreads, kBytes, layers, step, attrs);
      return launch_waiting<weight_grad_update_mma_64x64<T, O, kEither, kEither>>(
          grid, kMmaThreads, kBytes, layers, step, attrs);
    }
  }
  if constexpr (kHasFfma<T>) {
    if constexpr (std::is_same_v<T, float>) {
      const Grid grid = list_blocks<kTile>(layers, attrs.tail);
      int64_t small = 0;
      for (const auto& layer : layers.list())
        small += layer.product.grid(kFfmaRows).blocks() * layers.blocks.split.shares;
      if (usual && large_tiles_pay(small, grid.blocks() - attrs.tail))
        return launch_waiting<weight_grad_update_ffma_64x64<T, O, kRagged, kOuter>>(grid,
            kFfmaThreads<T>, sizeof(LayerShared<T, FfmaShared<T, kTile>>), layers, step, attrs);
    }
    constexpr size_t kBytes = sizeof(LayerShared<T, FfmaShared<T>>);
    const Grid grid = list_blocks<kFfmaRows>(layers, attrs.tail);
    if (usual)
      return launch_waiting<
          weight_grad_update_ffma_16x64<T, O, kKnown<T, kRagged>, kKnown<T, kOuter>>>(
          grid, kFfmaThreads<T>, kBytes, layers, step, attrs);
    launch_waiting<weight_grad_update_ffma_16x64<T, O, kEither, kEither>>(
        grid, kFfmaThreads<T>, kBytes, layers, step, attrs);
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
      for (; layers.blocks.layers < kLayers && at < count; ++at) {
        const Operands layer = call.in.subspan(at * kLayerOperands, kLayerOperands);
        if (layer[0].size(1) == 0) continue;
        auto& of = layers.of[layers.blocks.layers++];
        of.product = {product_side<T>(layer[0], true), product_side<T>(layer[1], true)};
        of.to = updated_parameters<T>(layer);
      }
      attrs.tail = tail && at == count;
      if (layers.blocks.layers == 0 && !attrs.tail) return;
      with_optimizer(
          attrs.optimizer, [&]<class O>(O) { launch_layers<T, O>(layers, step, attrs); });
    } while (at < count);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
