// gated_linear: h[b, j] = act(g) u, g = sum_i x[b, i] Wg[j, i], u = sum_i x[b, i] Wu[j, i]. A block
// owns some rows of 32 columns of h: its tile of 64 columns of B is 32 rows of Wg and the same 32
// of Wu (of large grids twice as many), so both sums of an element end in one shared tile. Reads x
// and the weights once per tile that needs them; writes h and, for backward, g and u.
#include "ops/fused/activation.h"
#include "ops/product/gemm_launch.cuh"

// B batch, I in, H hidden
namespace sinter::SINTER_KERNEL_NS {

// The base is Wg[H, I]; column c of a tile of kCols is a row of it for c < kHalf, else of Wu. Both
// are dense.
template <class T, int kCols> struct GatedSide : ProductSide<T> {
  static constexpr int kHalf = kCols / 2, kSums = 2;
  static constexpr bool along_k = true;
  In<T> up;
  int64_t hidden = 0;

  struct Chunk {
    int64_t at, step, left;
    bool of_up;
  };
  SINTER_DEVICE_FN Chunk chunk(bool, int64_t i, int64_t p) const {
    const int c = static_cast<int>(i) & (kCols - 1);
    const int64_t row = ((i - c) >> 1) + (c & (kHalf - 1)), at = row * this->k + p;
    return {at, 1, row < hidden ? this->k - p : 0, c >= kHalf};
  }
  SINTER_DEVICE_FN In<T> source(const Chunk& c) const { return c.of_up ? up : this->data; }
  SINTER_FN int64_t results() const { return hidden; }
};
template <class T> using GatedProduct = Product<T, GatedSide<T, kTile>>;
template <class T> using LargeGatedProduct = Product<T, GatedSide<T, LargeMma::kResults>>;

template <class T> struct GateOfSums {
  static constexpr bool kSumsRows = false;
  Columns<T, Out<T>> h, g, u;
  Act act;
  bool all_whole() const { return h.vec && (!g || (g.vec && u.vec)); }
  using Read = AllOfGroup;
  SINTER_DEVICE_FN void load_columns(int64_t, Read&) const {}
  SINTER_DEVICE_FN void load(int64_t, int64_t, Read&) const {}
  template <class Count>
  SINTER_DEVICE_FN void operator()(int64_t i, int64_t j, const Count& count,
      compute_t<T> (&gate)[kGroup], const compute_t<T> (&up)[kGroup]) const {
    if (g) {
      g.store(i, j, count, gate);
      u.store(i, j, count, up);
    }
    visit_act(act, [&](const auto& op) {
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) gate[q] = op.forward(gate[q]) * up[q];
    });
    h.store(i, j, count, gate);
  }
};

SINTER_PRODUCT_KERNELS(gated_linear, GatedProduct)

template <class T, class Epilogue>
SINTER_KERNEL_BOUNDS(LargeMma::kThreads, 2)
gated_linear_mma_128x128(LargeGatedProduct<T> product, Epilogue epilogue) {
  mma_product<Layout::ragged_k, Layout::ragged_k, LargeMma>(
      product, epilogue, SplitSums<float>{}, tile_of_block(product.is_turned(LargeMma::kResults)));
}

namespace {

template <int kCols, class T>
Product<T, GatedSide<T, kCols>> gated_product(
    const Tensor& x, const Tensor& gate, const Tensor& up) {
  const int64_t hidden = gate.size(0);
  Product<T, GatedSide<T, kCols>> product{
      product_side<T>(x, false), {product_side<T>(gate, false), in<T>(up), hidden}};
  product.b.outer = blocks_for(hidden, kCols / 2) * kCols;
  product.b.vec = gate.size(1) % kVec<T> == 0 && is_aligned(gate) && is_aligned(up);
  return product;
}

// Four small tiles make a large one, which reads half as much per product and so takes the time of
// two: it pays unless it leaves more of the card idle. Whole waves count.
bool large_tiles_pay(int64_t small, int64_t large) {
  const int64_t cores = multiprocessors();
  return 2 * blocks_for(large, cores) < blocks_for(small, cores);
}

}  // namespace

void gated_linear(const Call& call) {
  const auto& [act, keep] = call.as<GatedLinearAttrs>();
  const Tensor &h = call.out[0], &x = call.in[0], &gate = call.in[1], &up = call.in[2];
  if (h.numel() == 0) return;
  visit_float(h.dtype(), [&]<class T>(T) {
    constexpr Layout kAlong = Layout::along_k, kRagged = Layout::ragged_k;
    const GateOfSums<T> epilogue{columns_out<T>(h),
        keep ? columns_from<T>(call.out[1], 0) : Columns<T, Out<T>>(),
        keep ? columns_from<T>(call.out[1], h.size(1)) : Columns<T, Out<T>>(), act};
    const auto small = gated_product<kTile, T>(x, gate, up);
    if constexpr (kHasMma<T>) {
      constexpr int kResults = LargeMma::kResults;
      constexpr size_t kBytes = sizeof(MmaTiles<T, LargeMma>);
      const auto large = gated_product<kResults, T>(x, gate, up);
      const Grid grid = large.grid(kResults, kResults);
      if (on_tensor_cores<T>() && has_layout<kRagged, kRagged>(large, epilogue) &&
          large_tiles_pay(small.grid(kTile).blocks(), grid.blocks()) &&
          shared_memory_limit(h.device()) >= kBytes)
        return launch<gated_linear_mma_128x128<T, GateOfSums<T>>>(
            grid, LargeMma::kThreads, kBytes, large, epilogue);
    }
    launch_gated_linear<kAlong, kAlong>(small, epilogue);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
