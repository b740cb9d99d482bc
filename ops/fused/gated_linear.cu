// gated_linear: h[b, j] = act(g) u, g = sum_i x[b, i] Wg[j, i], u = sum_i x[b, i] Wu[j, i]. A block
// owns some rows of 32 columns of h: its tile of 64 columns of B is 32 rows of Wg and the same 32
// of Wu, so both sums of an element end in one shared tile. Reads x and the weights once per tile
// that needs them; writes h and, for backward, g and u.
//
// Where that is measured to be faster, libraries make a large one in two launches, of which the
// second reads what the first wrote: u by cuBLASLt, then g with the gate as its end by cuDNN (Note
// [What a graph of cuDNN's can say], ops/product/fast/cudnn_product.h). So u is rounded to its type
// before it is multiplied, as in plain ops, and act(g) is not.
#include "ops/fused/product_chain.h"
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
  const auto own = [&] {
    visit_float(h.dtype(), [&]<class T>(T) {
      constexpr Layout kAlong = Layout::along_k;
      const auto half = [&](int64_t first) {
        return keep ? columns_from<T>(call.out[1], first) : Columns<T, Out<T>>();
      };
      GatedProduct<T> product{
          product_side<T>(call.in[0], false), {product_side<T>(gate, false), in<T>(up), hidden}};
      product.b.outer = blocks_for(hidden, kTile / 2) * kTile;
      product.b.vec = gate.size(1) % kVec<T> == 0 && is_aligned(gate) && is_aligned(up);
      const GateOfSums<T, false> any{columns_out<T>(h), half(0), half(hidden), act};
      if constexpr (!std::is_same_v<T, double>) {
        if (act == Act::gelu_tanh && has_layout<kAlong, kAlong>(product, any))
          return launch_gated_linear_as<kAlong, kAlong>(
              product, GateOfSums<T, true>{any.h, any.g, any.u, act});
      }
      launch_gated_linear<kAlong, kAlong>(product, any);
    });
  };
  ChainProgram program = gate_program(act);
  if (keep) program.outputs[size_t(program.n_outputs++)] = 0;
  const Tensor u = keep ? half_of(call.out[1], 1)
                        : Tensor::view_of(std::make_shared<Storage>(nullptr,
                                              size_t(h.numel()) * size_of(h.dtype()), kDevice),
                              h.dtype(), h.shape(), h.strides(), 0);
  const Tensor results[] = {h, keep ? half_of(call.out[1], 0) : Tensor()};
  const ProductSteps steps{&program, {&u, 1}, {results, keep ? 2u : 1u}, &up};
  by_library_or(own, call.in[0], false, gate, true, Tensor(), h,
      GemmEpilogue{GemmEpilogue::other, nullptr, &steps});
}

}  // namespace sinter::SINTER_KERNEL_NS
