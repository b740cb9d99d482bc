// How an op launches its product: by cuBLASLt, on tensor cores, or by ordinary multiply-adds. An op
// gives its epilogue and the names of its kernels:
//
//   SINTER_PRODUCT_KERNELS(matmul, Product)   // matmul_ffma_16x64, matmul_mma_64x64 and larger
//   by_library_or([&] {                       // inside its host function
//     launch_matmul<Layout::along_k, Layout::along_k>(product, epilogue);
//   }, x, false, weight, true, bias, y);
#pragma once

#include "ops/product/fast/gemm_ffma.cuh"
#include "ops/product/fast/gemm_mma.cuh"

namespace sinter::SINTER_KERNEL_NS {

// Which cores the products of a type are compiled for; and do they run on this one? f32 does if
// cutting it to TF32 is allowed.
template <class T> inline constexpr bool kHasMma = !std::is_same_v<T, double>;
template <class T> inline constexpr bool kHasFfma = !std::is_same_v<T, bf16>;
// f64 is for tests: of it there is one kernel, for any layout.
template <class T, Layout kLayout>
inline constexpr Layout kKnown = std::is_same_v<T, double> ? Layout::either : kLayout;
template <class T> bool on_tensor_cores() { return std::is_same_v<T, bf16> || allow_tf32(); }
// f(Y{}): the type of a result of products of T, which for bf16 may be f32.
template <class T, class F> void with_result(DType result, F&& f) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (result == DType::bf16) return f(bf16{});
    f(float{});
  } else {
    f(T{});
  }
}

// Do operands lie as a kernel for <kA, kB> takes them, and their results?
template <Layout kLayout, class Side> bool lies(const Side& side) {
  constexpr bool along_k = is_along_k(kLayout);
  return side.along_k == along_k && (!is_whole(kLayout) || side.is_whole(along_k, true));
}
// The same of which nothing is known but where its chunks lie.
inline constexpr Layout ragged(Layout layout) {
  return is_along_k(layout) ? Layout::ragged_k : Layout::ragged_outer;
}
// An operand as a kernel for kLayout takes it: one that lies otherwise goes element by element.
template <Layout kLayout, class T> void take_as(ProductSide<T>& side) {
  if (kLayout == Layout::either || side.along_k == is_along_k(kLayout)) return;
  side.along_k = !side.along_k;
  side.vec = false;
}
template <Layout kA, Layout kB, class T, class B, class A, class Epilogue>
bool has_layout(const Product<T, B, A>& product, const Epilogue& epilogue) {
  return lies<kA>(product.a) && lies<kB>(product.b) &&
         (!is_whole(kB) || (product.b.results() % kGroup == 0 && epilogue.all_whole()));
}

// The blocks of a product in tiles of kRows x 64, and of each tile's shares.
template <class V> struct SplitGrid {
  Grid grid;
  SplitSums<V> split;
};
template <int kRows, class V, class Product>
SplitGrid<V> split_grid(const Product& product, size_t shared_bytes = 0) {
  SplitGrid<V> s{.grid = product.grid(kRows), .split = {}};
  s.split = split_sums<kRows, V>(s.grid.blocks(), product.a.k, shared_bytes);
  s.grid.z = s.split.shares;
  return s;
}

// Do `large` blocks take less time than `small` ones, of a fourth of their results? What bounds
// both is what they read of L2 (an H100's gives 5.6 TB/s): for a multiply-add in f32 5/16 byte in
// tiles of 16 x 64 and 1/8 in 64 x 64, in bf16 1/16 in 64 x 64 and 1/32 in 128 x 128. So small ones
// are fed for 18 of the 33 10^12 that the units of f32 do in a second, and in bf16 for half of what
// large ones are. These pay where their whole waves have at least three fifths of their work to do.
inline bool large_tiles_pay(int64_t small, int64_t large) {
  const int64_t at_once = multiprocessors();
  return 5 * small >= 3 * 4 * blocks_for(large, at_once) * at_once;
}

// The kernels of an op, a core each, and launch_OP<kA, kB>(product, epilogue), by the core that T
// runs on: two kernels, for operands of the layout <kA, kB> that the op usually gets, and for any
// others, which are expected to lie as <kElseA, kElseB>; of launch_OP_as the one for <kA, kB>.
// Operands is Product, which launch_OP makes in large tiles, too, or another template of that kind.
#define SINTER_PRODUCT_KERNELS(op, Operands)                                                       \
  template <class T, Layout kA, Layout kB, class Epilogue>                                         \
  SINTER_KERNEL_BOUNDS(kFfmaThreads<T>, 1)                                                         \
  op##_ffma_16x64(Operands<T> product, Epilogue epilogue, SplitSums<T> split) {                    \
    wait_for_upstream();                                                                           \
    begin_dependents();                                                                            \
    ffma_product<kA, kB>(product, epilogue, split, tile_of_block(product.is_turned()));            \
  }                                                                                                \
  template <class T, Layout kA, Layout kB, class Epilogue>                                         \
  SINTER_KERNEL_BOUNDS(kFfmaThreads<T>, 2)                                                         \
  op##_ffma_64x64(Operands<T> product, Epilogue epilogue) {                                        \
    wait_for_upstream();                                                                           \
    begin_dependents();                                                                            \
    ffma_product<kA, kB, kTile>(                                                                   \
        product, epilogue, SplitSums<T>{}, tile_of_block(product.is_turned()));                    \
  }                                                                                                \
  template <class T, Layout kA, Layout kB, class Epilogue>                                         \
  SINTER_KERNEL_BOUNDS(kMmaThreads, 2)                                                             \
  op##_mma_64x64(Operands<T> product, Epilogue epilogue, SplitSums<float> split) {                 \
    wait_for_upstream();                                                                           \
    begin_dependents();                                                                            \
    mma_product<kA, kB>(product, epilogue, split, tile_of_block(product.is_turned()));             \
  }                                                                                                \
  template <class T, Layout kA, Layout kB, class Epilogue>                                         \
  SINTER_KERNEL_BOUNDS(kMmaThreads, 2)                                                             \
  op##_mma_128x128(Operands<T> product, Epilogue epilogue) {                                       \
    wait_for_upstream();                                                                           \
    begin_dependents();                                                                            \
    mma_product<kA, kB, kLargeTile>(                                                               \
        product, epilogue, SplitSums<float>{}, tile_of_block(product.is_turned()));                \
  }                                                                                                \
  template <Layout kA, Layout kB, class T, class Epilogue>                                         \
  void launch_##op##_as(const Operands<T>& product, const Epilogue& epilogue) {                    \
    if constexpr (kHasMma<T>) {                                                                    \
      if (on_tensor_cores<T>()) {                                                                  \
        const auto [grid, split] = split_grid<kTile, float>(product, sizeof(MmaTiles<T>));         \
        return launch_waiting<op##_mma_64x64<T, kA, kB, Epilogue>>(                                \
            grid, kMmaThreads, sizeof(MmaTiles<T>), product, epilogue, split);                     \
      }                                                                                            \
    }                                                                                              \
    if constexpr (kHasFfma<T>) {                                                                   \
      const auto [grid, split] = split_grid<kFfmaRows, T>(product);                                \
      launch_waiting<op##_ffma_16x64<T, kKnown<T, kA>, kKnown<T, kB>, Epilogue>>(                  \
          grid, kFfmaThreads<T>, sizeof(FfmaShared<T>), product, epilogue, split);                 \
    }                                                                                              \
  }                                                                                                \
  template <Layout kA, Layout kB, Layout kElseA = ragged(kA), Layout kElseB = ragged(kB), class T, \
      class Epilogue>                                                                              \
  void launch_##op(const Operands<T>& product, const Epilogue& epilogue) {                         \
    if (!has_layout<kA, kB>(product, epilogue)) {                                                  \
      Operands<T> any = product;                                                                   \
      take_as<kElseA>(any.a);                                                                      \
      take_as<kElseB>(any.b);                                                                      \
      return launch_##op##_as<kElseA, kElseB>(any, epilogue);                                      \
    }                                                                                              \
    if constexpr (std::is_same_v<Operands<T>, Product<T>> && std::is_same_v<T, bf16>) {            \
      const Grid grid = product.grid(kLargeTile, kLargeTile);                                      \
      if (large_tiles_pay(product.grid(kTile).blocks(), grid.blocks()))                            \
        return launch_waiting<op##_mma_128x128<T, kA, kB, Epilogue>>(                              \
            grid, kMmaThreads, sizeof(MmaTiles<T, kLargeTile>), product, epilogue);                \
    }                                                                                              \
    if constexpr (std::is_same_v<Operands<T>, Product<T>> && std::is_same_v<T, float>) {           \
      const Grid grid = product.grid(kTile);                                                       \
      if (!on_tensor_cores<T>() &&                                                                 \
          large_tiles_pay(product.grid(kFfmaRows).blocks(), grid.blocks()))                        \
        return launch_waiting<op##_ffma_64x64<T, kA, kB, Epilogue>>(                               \
            grid, kFfmaThreads<T>, sizeof(FfmaShared<T, kTile>), product, epilogue);               \
    }                                                                                              \
    launch_##op##_as<kA, kB>(product, epilogue);                                                   \
  }

// c = op(a) op(b) (+ bias over columns) with an epilogue of the library's, or what own() does where
// the library has none, or is not chosen; on the emulator always.
template <class Own>
void by_library_or(const Own& own, const Tensor& a, bool trans_a, const Tensor& b, bool trans_b,
    const Tensor& bias, const Tensor& c, const GemmEpilogue& epilogue = {}) {
  if constexpr (kDevice.type == Device::Type::cuda) {
    if (library_gemm(a, trans_a, b, trans_b, bias, c, std::cref(own), epilogue)) return;
  }
  if (c.numel() > 0) own();
}

}  // namespace sinter::SINTER_KERNEL_NS
