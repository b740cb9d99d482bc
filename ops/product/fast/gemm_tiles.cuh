// How both product cores bring tiles of their operands to shared memory: chunks of 16 bytes by
// cp_async, into a ring of stages, some tiles ahead of their use. Which chunks of a tile a thread
// brings is worked out once, as from tile to tile only k advances.
#pragma once

#include "ops/product/fast/gemm_split.cuh"

namespace sinter::SINTER_KERNEL_NS {

// How an operand lies in memory. Known when compiled: its chunks of 16 bytes lie along k or along
// the outer dimension, and each is whole and one aligned access (ProductSide::is_whole), or
// `ragged`: perhaps not whole. `either`: all is asked at run time. Code for what is not whole is
// most of a kernel, so where both sides may be taken to be whole, a kernel is a quarter as long.
enum class Layout : uint8_t { along_k, along_outer, either, ragged_k, ragged_outer };
inline constexpr bool is_along_k(Layout layout) {
  return layout == Layout::along_k || layout == Layout::ragged_k;
}
inline constexpr bool is_whole(Layout layout) {
  return layout == Layout::along_k || layout == Layout::along_outer;
}
template <Layout kLayout, class Side> SINTER_DEVICE_FN bool is_along_k(const Side& side) {
  return kLayout == Layout::either ? side.along_k : is_along_k(kLayout);
}

// kOuter rows of A, or columns of B, at kDepth places of k. Rows are padded so that what the lanes
// of a warp read at once lies in different banks.
template <class T, int kOuter_, int kDepth_, int kOuterPad> struct OperandTile {
  static constexpr int kOuter = kOuter_, kDepth = kDepth_;
  using AlongK = SharedTile<T, kOuter, kDepth, kVec<T>>;
  using AlongOuter = SharedTile<T, kDepth, kOuter, kOuterPad>;
  union {
    AlongK along_k;          // [outer, k]
    AlongOuter along_outer;  // [k, outer]
  };
};

// The sums of a block whose groups of threads share k, and of its rows: those of a tile of `Part`
// are the parts', added in their order.
template <class V, class Part, int kParts_, int kGroups, int kRows> struct GroupSums {
  static constexpr int kParts = kParts_;
  Part parts[kParts];
  SharedTile<V, kGroups, kRows> row_sums;
  // Of the first `count` parts.
  template <int N> SINTER_DEVICE_FN Vec<V, N> load_vec(int r, int c, int count = kParts) const {
    Vec<V, N> sum = parts[0].template load_vec<N>(r, c);
    SINTER_UNROLL
    for (int g = 1; g < kParts; ++g) {
      if (g >= count) break;
      const auto part = parts[g].template load_vec<N>(r, c);
      SINTER_UNROLL
      for (int e = 0; e < N; ++e) sum[e] = sum[e] + part[e];
    }
    return sum;
  }
  // `first` and what the groups behind the first left of a row.
  SINTER_DEVICE_FN V row_sum(int row, V first) const {
    for (int g = 1; g < kGroups; ++g) first = first + row_sums(g, row);
    return first;
  }
};

// One thread's chunks of the tiles of a side, of its rows or columns from `outer` on.
template <Layout kLayout, class T, class Tile, int kThreads, class Side, bool = Side::kGathered>
class TileCopy {
  static constexpr int kAll = Tile::kOuter * Tile::kDepth / kVec<T>,
                       kChunks = (kAll + kThreads - 1) / kThreads;
  static constexpr uint32_t kBytes = sizeof(T);

 public:
  SINTER_DEVICE_FN TileCopy(const Side& side, int64_t outer)
      : side_(side), outer_(outer), step_(static_cast<uint32_t>(kBytes * side.k_stride)) {
    to_ = along_k() ? Tile::AlongK::keep_place(row(0), column())
                    : Tile::AlongOuter::keep_place(row(0), column());
    SINTER_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      auto from = chunk(row(c), column(), 0);
      // What is past the side's end goes to results that nobody keeps: the tile's first will do.
      if (from.left <= 0) from = chunk(along_k() ? 0 : row(c), along_k() ? column() : 0, 0);
      from_[c] = Cursor<T>(side.source(from), from.at);
    }
  }
  // Tiles that end here or before are all whole chunks, each one aligned access.
  SINTER_DEVICE_FN int whole_until() const {
    if (!is_whole(kLayout) && !side_.is_whole(along_k(), false)) return 0;
    return static_cast<int>(side_.k);
  }
  // A tile of whole chunks, at k: all that changes from tile to tile is where a chunk comes from.
  // kThere: all of them are, else those of a tile past whose middle the side ends are zeros.
  template <bool kThere> SINTER_DEVICE_FN void copy_whole(int k, Tile& tile) const {
    // Kept: an address is then one multiply-add of k, else a running sum, of two additions each.
    const uint64_t behind =
        uint64_t{keep(static_cast<uint32_t>(k))} * (is_along_k(kLayout) ? kBytes : keep(step_));
    SINTER_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if (kAll % kThreads != 0 && c * kThreads + thread_x() >= kAll) break;
      const bool there = kThere || k + (along_k() ? column() : row(c)) < static_cast<int>(side_.k);
      const auto from = from_[c].behind(behind);
      if (along_k()) {
        cp_async16(tile.along_k, to_.r + c * rows_apart(), to_.c, from, there);
      } else {
        cp_async16(tile.along_outer, to_.r + c * rows_apart(), to_.c, from, there);
      }
    }
  }
  // The tile at k, whatever its chunks are.
  SINTER_DEVICE_FN void copy_any(int k, Tile& tile) const {
    if constexpr (is_whole(kLayout)) {
      copy_whole<false>(k, tile);
    } else {
      SINTER_NO_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        if (c * kThreads + thread_x() >= kAll) break;
        if (along_k()) {
          copy_chunk<T>(side_, chunk(row(c), column(), k), tile.along_k, row(c), column());
        } else {
          copy_chunk<T>(side_, chunk(row(c), column(), k), tile.along_outer, row(c), column());
        }
      }
    }
  }

 private:
  SINTER_DEVICE_FN bool along_k() const { return is_along_k<kLayout>(side_); }
  // Where in the tile a chunk goes. Its row advances by a constant from chunk to chunk.
  static constexpr int kAlongK = Tile::kDepth / kVec<T>, kAlongOuter = Tile::kOuter / kVec<T>;
  static_assert(kThreads % kAlongK == 0 && kThreads % kAlongOuter == 0);
  SINTER_DEVICE_FN unsigned of_row() const { return along_k() ? kAlongK : kAlongOuter; }
  SINTER_DEVICE_FN int rows_apart() const {
    return along_k() ? kThreads / kAlongK : kThreads / kAlongOuter;
  }
  SINTER_DEVICE_FN int row(int c) const {
    return static_cast<int>(me() / of_row()) + c * rows_apart();
  }
  SINTER_DEVICE_FN int column() const { return static_cast<int>(me() % of_row()) * kVec<T>; }
  SINTER_DEVICE_FN unsigned me() const { return static_cast<unsigned>(thread_x()); }
  // And where what is at (row, column) comes from, in the tile at k.
  SINTER_DEVICE_FN auto chunk(int row, int column, int k) const {
    return along_k() ? side_.chunk(true, outer_ + row, k + column)
                     : side_.chunk(false, outer_ + column, k + row);
  }

  const Side& side_;
  int64_t outer_;
  uint32_t step_;  // bytes
  SharedPlace to_;
  Cursor<T> from_[kChunks];
};

// Of a gathered side no chunk is one access: what it is made of is loaded to registers.
template <Layout kLayout, class T, class Tile, int kThreads, class Side>
class TileCopy<kLayout, T, Tile, kThreads, Side, true> {
 public:
  static constexpr int kAll = Tile::kOuter * Tile::kDepth / kVec<T>;
  using Read = typename Side::Read;
  SINTER_DEVICE_FN TileCopy(const Side& side, int64_t outer)
      : side_(side), outer_(static_cast<int>(outer)) {}
  SINTER_DEVICE_FN int whole_until() const { return 0; }
  // Chunk c of the tile at k.
  SINTER_DEVICE_FN Read load(int c, int k) const {
    return Side::along_k ? side_.load(outer_ + row(c), k + column(c))
                         : side_.load(outer_ + column(c), k + row(c));
  }
  SINTER_DEVICE_FN void store(int c, const Read& read, Tile& tile) const {
    if constexpr (Side::along_k) {
      tile.along_k.store_vec(row(c), column(c), side_.values(read));
    } else {
      tile.along_outer.store_vec(row(c), column(c), side_.values(read));
    }
  }

 private:
  static constexpr int kOfRow = (Side::along_k ? Tile::kDepth : Tile::kOuter) / kVec<T>;
  static SINTER_DEVICE_FN int row(int c) { return c / kOfRow; }
  static SINTER_DEVICE_FN int column(int c) { return c % kOfRow * kVec<T>; }
  const Side& side_;
  int outer_;
};

// Both operands' tiles at k, if it is before `end`. whole: the sides' whole_until() and `end`,
// the least of them.
template <int kDepth, class A, class B, class Stage>
SINTER_DEVICE_FN void copy_stage(A& a, B& b, int k, int whole, int end, Stage& stage) {
  if constexpr (requires { a.template copy_whole<true>(k, stage.a); }) {
    if (k <= whole - kDepth) {
      a.template copy_whole<true>(k, stage.a);
      b.template copy_whole<true>(k, stage.b);
      return;
    }
  }
  if (k >= end) return;
  if constexpr (requires { a.load(0, k); }) {
    // A chunk of each is on its way before one is stored.
    SINTER_NO_UNROLL
    for (int c = thread_x(); c < std::max(A::kAll, B::kAll); c += threads_per_block()) {
      typename A::Read of_a;
      typename B::Read of_b;
      if (c < A::kAll) of_a = a.load(c, k);
      if (c < B::kAll) of_b = b.load(c, k);
      if (c < A::kAll) a.store(c, of_a, stage.a);
      if (c < B::kAll) b.store(c, of_b, stage.b);
    }
  } else {
    a.copy_any(k, stage.a);
    b.copy_any(k, stage.b);
  }
}

// Of a product's tile, or its share of k: f(stage) for each tile of the operands' k, in order, by
// kThreads threads, while those of the next stages of the ring are on their way. Tile t is in stage
// t % 3, which the names of three addresses in shared memory say in turn:
//
//     turn     stage 0            stage 1            stage 2
//     0        use: f(tile 0)     next: tile 1 comes free: asks for tile 2
//     1        free: for tile 3   use: f(tile 1)     next: tile 2 comes
//     2        next: tile 3 comes free: for tile 4   use: f(tile 2)
//
// free was used the turn before: the barrier at a turn's begin says that nobody still reads it.
template <Layout kA, Layout kB, int kThreads, class T, class A, class B, class Stage, int kStages,
    class V, class Use>
SINTER_DEVICE_FN void for_each_stage(const Product<T, B, A>& product, const SplitSums<V>& split,
    const TileAt& tile, Stage (&stages)[kStages], const Use& f) {
  static_assert(kStages == 3);
  using TileA = decltype(Stage::a);
  using TileB = decltype(Stage::b);
  constexpr int kDepth = TileA::kDepth, kBytes = static_cast<int>(sizeof(Stage)),
                kAhead = (kStages - 1) * kDepth;
  TileCopy<kA, T, TileA, kThreads, A> a(product.a, tile.row * TileA::kOuter);
  TileCopy<kB, T, TileB, kThreads, B> b(product.b, tile.col * TileB::kOuter);
  const int first = split.first(tile), end = split.end(tile, static_cast<int>(product.a.k)),
            whole = std::min({a.whole_until(), b.whole_until(), end});
  const int ring = keep_shared(stages[0]);
  const auto begin = [&](int stage, int at) {  // past the end, too
    copy_stage<kDepth>(a, b, at, whole, end, shared_at(stages[0], stage));
    cp_async_commit();
  };
  SINTER_NO_UNROLL
  for (int t = 0; t < kStages - 1; ++t) begin(ring + t * kBytes, first + t * kDepth);
  int use = ring, free = ring + (kStages - 1) * kBytes;
  // The sum of the three addresses: less two of them it is the third, without a remainder by 3.
  const int all = keep(use + free + ring + kBytes), last = keep(end + kAhead);
  SINTER_NO_UNROLL
  for (int ahead = first + kAhead; ahead < last; ahead += kDepth) {
    cp_async_wait<kStages - 2>();
    block_sync();  // everybody's part of this tile is here, and nobody still reads the one that is
                   // overwritten next
    begin(free, ahead);
    f(std::as_const(shared_at(stages[0], use)));
    const int next = all - use - free;
    free = use;
    use = next;
  }
  block_sync();
}

}  // namespace sinter::SINTER_KERNEL_NS
