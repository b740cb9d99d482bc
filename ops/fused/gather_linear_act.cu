// gather_linear_act: linear_act of rows that are drawn from a set of bytes: x[b, i] =
// pixel(images[index[b], i]) is made as A's tiles are loaded. A block owns 64 x 64 of y and the
// mask bytes over it; those of column tile 0 also write x and the labels. Reads the drawn rows, a
// byte to an element, once per column tile, W and the bias; writes x, labels, y and what act keeps.
#include "ops/fused/act_of_sums.cuh"
#include "ops/gather_batch.h"
#include "ops/gemm_ffma.cuh"
#include "ops/gemm_mma.cuh"

namespace sinter::SINTER_KERNEL_NS {

// The rows as the A side of a product.
template <class T>
struct GatheredRows {
  static constexpr bool along_k = true;
  In<uint8_t> images;
  In<int32_t> labels;
  In<int64_t> index;
  Out<T> x;
  Out<int32_t> label_out;
  int64_t outer, k, items;
  bool mnist, vec;  // vec: a chunk is one aligned access
  uint32_t* faults;

  struct Chunk {
    int64_t row, column, left;
  };
  SINTER_DEVICE_FN Chunk chunk(bool, int64_t row, int64_t column) const {
    return {row, column, row < outer ? k - column : 0};
  }
  SINTER_DEVICE_FN T element(uint8_t byte) const {
    return T(mnist ? pixel<true>(byte) : pixel<false>(byte));
  }

  SINTER_DEVICE_FN Vec<T, kVec<T>> load(const Chunk& c) const {
    Vec<T, kVec<T>> v;
    SINTER_UNROLL
    for (int q = 0; q < kVec<T>; ++q) v[q] = T(0.0f);
    if (c.left <= 0) return v;
    const int64_t item = index[c.row];
    if (item < 0 || item >= items) {
      fault(faults, Fault::index_out_of_range, c.row, item, items);
      return v;
    }
    const bool writes = block_y() == 0;
    if (vec && c.left >= kVec<T>) {
      const auto bytes = images.template load_vec<kVec<T>>(item * k + c.column);
      SINTER_UNROLL
      for (int q = 0; q < kVec<T>; ++q) v[q] = element(bytes[q]);
      if (writes) x.store_vec(c.row * k + c.column, v);
    } else {
      SINTER_UNROLL
      for (int q = 0; q < kVec<T>; ++q) {
        if (q >= c.left) continue;
        v[q] = element(images[item * k + c.column + q]);
        if (writes) x.put(c.row * k + c.column + q, v[q]);
      }
    }
    if (writes && c.column == 0) label_out.put(c.row, labels[item]);
    return v;
  }
};
template <class T>
SINTER_DEVICE_FN Vec<T, kVec<T>> load_chunk(
    const GatheredRows<T>& side, const typename GatheredRows<T>::Chunk& chunk) {
  return side.load(chunk);
}
template <class T, class Tile>
SINTER_DEVICE_FN void copy_chunk(const GatheredRows<T>& side,
    const typename GatheredRows<T>::Chunk& chunk, Tile& tile, int r, int c) {
  tile.store_vec(r, c, side.load(chunk));
}

template <class T>
SINTER_KERNEL_BOUNDS(kFfmaThreads)
gather_linear_act_ffma_64x64(
    Product<T, ProductSide<T>, GatheredRows<T>> product, ActOfSums<T, T> act) {
  ffma_product(product, act);
}

template <class T>
SINTER_KERNEL_BOUNDS(kMmaThreads)
gather_linear_act_mma_64x64(
    Product<T, ProductSide<T>, GatheredRows<T>> product, ActOfSums<T, T> act) {
  mma_product<Lies::along_k, Lies::along_k>(product, act);
}

void gather_linear_act(const Call& call) {
  const auto& [mnist, act, keep, type] = call.as<GatherLinearActAttrs>();
  const Tensor &images = call.in[0], &x = call.out[0], &y = call.out[2];
  if (y.size(0) == 0) return;
  const auto run = [&]<class T>(T) {
    const int64_t pixels = x.size(1);
    const bool vec = pixels % kVec<T> == 0 &&
                     reinterpret_cast<uintptr_t>(images.raw()) % kVec<T> == 0 && is_aligned16(x);
    const GatheredRows<T> rows{in<uint8_t>(images), in<int32_t>(call.in[1]),
        in<int64_t>(call.in[2]), out<T>(x), out<int32_t>(call.out[1]), x.size(0), pixels,
        images.size(0), mnist, vec, fault_flag()};
    const Product<T, ProductSide<T>, GatheredRows<T>> product{
        rows, product_side<T>(call.in[3], false)};
    const auto epilogue = act_of_sums<T, T>(
        act, keep, optional_input(call, 4), y, keep == Keep::nothing ? Tensor() : call.out[3]);
    if (on_tensor_cores<T>()) return launch_mma<gather_linear_act_mma_64x64<T>>(product, epilogue);
    if constexpr (kHasFfma<T>) launch_ffma<gather_linear_act_ffma_64x64<T>>(product, epilogue);
  };
  type == DType::bf16 ? run(bf16{}) : run(float{});
}

}  // namespace sinter::SINTER_KERNEL_NS
