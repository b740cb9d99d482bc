// Products of one kind in one launch: all blocks of a product, then those of the next, along the
// grid's x. A block makes a product's tile as it would make that of a single one; what lies in
// front of its matrices is added to where it reads and writes.
#pragma once

#include "ops/product/gemm_launch.cuh"
#include "ops/product/matrix_view.h"

namespace sinter::SINTER_KERNEL_NS {

// An operand of one of the products, `first` elements behind that of the first one.
template <class T> struct BatchSide : ProductSide<T> {
  int64_t first = 0;
  SINTER_DEVICE_FN auto chunk(bool k_chunk, int64_t i, int64_t p) const {
    auto chunk = ProductSide<T>::chunk(k_chunk, i, p);
    chunk.at += first;
    return chunk;
  }
};
template <class T>
BatchSide<T> batch_side(const Tensor& t, bool k_first, const int64_t (&steps)[2]) {
  BatchSide<T> side{product_side<T>(t, k_first)};
  side.vec = side.vec && steps[0] % kVec<T> == 0 && steps[1] % kVec<T> == 0;
  return side;
}

template <class T> struct BatchedProduct : Product<T, BatchSide<T>, BatchSide<T>> {
  GemmBatch batch;
  Grid grid(int rows) const {
    const Grid one = Product<T, BatchSide<T>, BatchSide<T>>::grid(rows);
    return {one.x * batch.products(), one.y};
  }
};
template <class T>
BatchedProduct<T> batched_product(
    const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const GemmBatch& batch) {
  return {{batch_side<T>(a, trans_a, batch.a), batch_side<T>(b, !trans_b, batch.b)}, batch};
}

// y = sums; the rows of a product lie behind those of the one before.
template <class T, class Y> struct StoreBatch {
  static constexpr bool kSumsRows = false;
  Columns<Y, Out<Y>> y;
  int64_t first = 0;
  bool all_whole() const { return y.vec; }
  using Read = AllOfGroup;
  SINTER_DEVICE_FN void load_columns(int64_t, Read&) const {}
  SINTER_DEVICE_FN void load(int64_t, int64_t, Read&) const {}
  template <class Count>
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, const Count& count, compute_t<T> (&z)[kGroup]) const {
    y.store(first + i, j, count, z);
  }
};

// f(product, epilogue, tile): of the block's product.
template <class T, class Epilogue, class F>
SINTER_DEVICE_FN void of_block(
    const BatchedProduct<T>& all, Epilogue epilogue, TileAt tile, const F& f) {
  Product<T, BatchSide<T>, BatchSide<T>> product = all;
  const int64_t across = grid_x() / all.batch.products(), p = block_x() / across;
  (all.is_turned() ? tile.col : tile.row) -= p * across;
  product.a.first = all.batch.a_of(p);
  product.b.first = all.batch.b_of(p);
  epilogue.first = p * product.a.outer;
  f(product, epilogue, tile);
}
// Both cores, as the kernels of SINTER_PRODUCT_KERNELS call them.
template <Layout kA, Layout kB, class T, class Epilogue>
SINTER_DEVICE_FN void ffma_product(const BatchedProduct<T>& all, const Epilogue& epilogue,
    const SplitSums<T>& split, const TileAt& tile) {
  of_block(all, epilogue, tile, [&](const auto& product, const auto& end, const TileAt& at) {
    ffma_product<kA, kB>(product, end, split, at);
  });
}
template <Layout kA, Layout kB, class T, class Epilogue>
SINTER_DEVICE_FN void mma_product(const BatchedProduct<T>& all, const Epilogue& epilogue,
    const SplitSums<float>& split, const TileAt& tile) {
  of_block(all, epilogue, tile, [&](const auto& product, const auto& end, const TileAt& at) {
    mma_product<kA, kB>(product, end, split, at);
  });
}

}  // namespace sinter::SINTER_KERNEL_NS
