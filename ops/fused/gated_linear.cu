// gated_linear: h[b, j] = act(g) u, g = sum_i x[b, i] Wg[j, i], u = sum_i x[b, i] Wu[j, i]. A block
// owns some rows of 32 columns of h: its tile of 64 columns of B is 32 rows of Wg and the same 32
// of Wu, so both sums of an element end in one shared tile. Reads x and the weights once per tile
// that needs them; writes h and, for backward, g and u.
#include "ops/fused/activation.h"
#include "ops/product/gemm_launch.cuh"

// B batch, I in, H hidden
namespace sinter::SINTER_KERNEL_NS {

// The base is Wg[H, I]; column c of a tile is a row of it for c < kHalf, else of Wu. Both are
// dense.
template <class T> struct GatedSide : ProductSide<T> {
  static constexpr int kHalf = kTile / 2, kSums = 2;
  static constexpr bool along_k = true;
  In<T> up;
  int64_t hidden = 0;

  struct Chunk {
    int64_t at, step, left;
    bool of_up;
  };
  SINTER_DEVICE_FN Chunk chunk(bool, int64_t i, int64_t p) const {
    const int c = static_cast<int>(i) & (kTile - 1);
    const int64_t row = ((i - c) >> 1) + (c & (kHalf - 1)), at = row * this->k + p;
    return {at, 1, row < hidden ? this->k - p : 0, c >= kHalf};
  }
  SINTER_DEVICE_FN In<T> source(const Chunk& c) const { return c.of_up ? up : this->data; }
  SINTER_FN int64_t results() const { return hidden; }
};
template <class T> using GatedProduct = Product<T, GatedSide<T>>;

// kIsGelu: the activation is GELU (tanh), which is compiled; any other is looked up.
template <class T, bool kIsGelu> struct GateOfSums {
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
    visit_act(kIsGelu ? Act::gelu_tanh : act, [&](const auto& op) {
      SINTER_UNROLL
      for (int q = 0; q < kGroup; ++q) gate[q] = op.forward(gate[q]) * up[q];
    });
    h.store(i, j, count, gate);
  }
};

SINTER_PRODUCT_KERNELS(gated_linear, GatedProduct)

void gated_linear(const Call& call) {
  const auto& [act, keep] = call.as<GatedLinearAttrs>();
  const Tensor &h = call.out[0], &gate = call.in[1], &up = call.in[2];
  const int64_t hidden = gate.size(0);
  if (h.numel() == 0) return;
  visit_float(h.dtype(), [&]<class T>(T) {
    constexpr Layout kAlong = Layout::along_k;
    const auto half = [&](int64_t first) {
      return keep ? columns_from<T>(call.out[1], first) : Columns<T, Out<T>>();
    };
    GatedProduct<T> product{
        product_side<T>(call.in[0], false), {product_side<T>(gate, false), in<T>(up), hidden}};
    product.b.outer = blocks_for(hidden, kTile / 2) * kTile;
    product.b.vec = gate.size(1) % kVec<T> == 0 && is_aligned(gate) && is_aligned(up);
    const GateOfSums<T, true> gelu{columns_out<T>(h), half(0), half(hidden), act};
    if (act == Act::gelu_tanh && has_layout<kAlong, kAlong>(product, gelu))
      return launch_gated_linear_as<kAlong, kAlong>(product, gelu);
    launch_gated_linear<kAlong, kAlong>(product, GateOfSums<T, false>{gelu.h, gelu.g, gelu.u, act});
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
