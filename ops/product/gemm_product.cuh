// What the cores of the matrix products (gemm_ffma.cuh, gemm_mma.cuh) share: operands of any
// strides, and how a block's sums, some rows of 64 laid out in shared memory, reach an epilogue. An
// op is a core x an epilogue functor; the same functor serves both cores.
//
// An epilogue E gives   operator()(i, j, count, z): the sums z[0..7] of row i, columns j..j+7, of
// which `count` (0..8) exist; all eight
//                       columns of a row meet in one thread, so a thread moves whole vectors, and
//                       has two whole windows of a pooling; kSumsRows, row_sum(i, s): is sum_k
//                       A[i, k] wanted too? Given once per row, by the blocks of column tile 0,
//                       summed tile by tile: of many terms that is nearer than one after the other.
// One for operands of whole groups, where nothing need be asked at run time, gives also
//                       all_whole(): is that what it has?
//                       Read, an AllOfGroup, load_columns(j, read), load(i, j, read) and
//                       operator()(i, j, read, z): what it reads for eight columns of all rows, and
//                       of a row, loaded before z is there.
#pragma once

#include "ops/kernel_args.h"

namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kTile = 64;  // mostly: columns of a block's result, and rows on tensor cores
inline constexpr int kGroup = 8;  // columns that an epilogue gets at once
// A count of columns: all of a group, in each operand as whole vectors.
struct AllOfGroup {
  SINTER_FN constexpr operator int() const { return kGroup; }
};
template <class Count> inline constexpr bool kAllOfGroup = std::is_base_of_v<AllOfGroup, Count>;
template <class T> struct Group {
  Vec<T, kVec<T>> part[kGroup / kVec<T>];
  SINTER_DEVICE_FN T operator[](int q) const { return part[q / kVec<T>][q % kVec<T>]; }
};
template <class In> SINTER_DEVICE_FN auto load_group_at(const In& in, int64_t at) {
  using T = std::remove_cvref_t<decltype(in[0])>;
  Group<T> group;
  SINTER_UNROLL
  for (int q = 0; q < kGroup; q += kVec<T>)
    group.part[q / kVec<T>] = in.template load_vec<kVec<T>>(at + q);
  return group;
}

// Which tile of the result a block makes: rows from row * (rows of a tile), columns from col *
// (columns of one). Where the sums are split (gemm_split.cuh): from which share of k, and the place
// of the tile among those of the launch.
struct TileAt {
  int64_t row, col;
  int share = 0, place = 0;
};

// `turned`: columns go along the grid's x.
SINTER_DEVICE_FN TileAt tile_of_block(bool turned) {
  return {turned ? block_y() : block_x(), turned ? block_x() : block_y(),
      static_cast<int>(block_z()), static_cast<int>(block_y() * grid_x() + block_x())};
}

// An operand seen as [outer, k]: A's rows or B's columns.
template <class T> struct ProductSide {
  static constexpr bool kGathered = false;
  static constexpr int kSums = 1;  // of B: that belong to one result
  In<T> data;
  int64_t outer = 0, k = 0, outer_stride = 0, k_stride = 0;
  bool along_k = true;  // a chunk of 16 bytes lies along k, else along outer
  bool vec = false;     // a whole chunk is one aligned access

  // Is every chunk whole, and one aligned access? to_end: the last one along k, too.
  SINTER_FN bool is_whole(bool k_chunk, bool to_end) const {
    return vec && outer > 0 && (k_chunk ? !to_end || k % kVec<T> == 0 : outer % kVec<T> == 0) &&
           k_stride <= 0xffffffff / int64_t{sizeof(T)};  // the cores step by 32 bits
  }

  struct Chunk {
    int64_t at, step, left;  // index of its first element, stride, elements that exist
  };
  SINTER_DEVICE_FN Chunk chunk(bool k_chunk, int64_t i, int64_t p) const {
    if (k_chunk) return {i * outer_stride + p * k_stride, k_stride, i < outer ? k - p : 0};
    return {i * outer_stride + p * k_stride, outer_stride, p < k ? outer - i : 0};
  }
  SINTER_DEVICE_FN const In<T>& source(const Chunk&) const {
    return data;
  }                                                    // where the chunk is read
  SINTER_FN int64_t results() const { return outer; }  // of B: in a row
};

// A chunk element by element, zeros where there are none.
template <class T, class Side>
SINTER_DEVICE_FN Vec<T, kVec<T>> gather(const Side& side, const typename Side::Chunk& c) {
  Vec<T, kVec<T>> v;
  SINTER_UNROLL
  for (int q = 0; q < kVec<T>; ++q) v[q] = q < c.left ? side.source(c)[c.at + q * c.step] : T(0.0f);
  return v;
}
// A chunk on its way to shared memory, element by element if it is not whole and aligned.
template <class T, class Side, class Tile>
SINTER_DEVICE_FN void copy_chunk(
    const Side& side, const typename Side::Chunk& chunk, Tile& tile, int r, int c) {
  if (side.vec && (chunk.left >= kVec<T> || chunk.left <= 0)) {
    cp_async16(tile, r, c, side.source(chunk), chunk.at, chunk.left > 0);
  } else {
    tile.store_vec(r, c, gather<T>(side, chunk));
  }
}

// C[m, n] = A[m, k] B[k, n]. Another kind of side may stand for A's rows or B's columns. It derives
// from ProductSide and has its own chunk() and source(), or both sides are kGathered: they have
// outer, k, a constant along_k and load(i, p), which begins to read the chunk at (i, p), and
// values(what load gave), with zeros where there is none.
template <class T, class B = ProductSide<T>, class A = ProductSide<T>> struct Product {
  A a;
  B b;
  SINTER_FN int64_t column_tiles(int columns = kTile) const {
    return b.outer > columns ? (b.outer + columns - 1) / columns : 1;
  }
  // Rows go along a grid's x, which takes 2^31 - 1 blocks. Its y takes 65535: of more columns of
  // tiles than that the grid is turned. Then rows are few, or the result would fill no memory.
  SINTER_FN bool is_turned() const { return b.outer > kMaxGridYZ * kTile; }
  Grid grid(int rows, int columns = kTile) const {
    const Grid grid{std::max<int64_t>(blocks_for(a.outer, rows), 1), column_tiles(columns)};
    return is_turned() ? Grid{grid.y, grid.x} : grid;
  }
};

// The cores count the terms of a sum in 32 bits; less by a tile's, as they look ahead.
inline constexpr int64_t kMaxTerms = 0x7fffff00;

// t is [.., outer, k], or [.., k, outer] if `k_first`: the first matrix of it.
template <class T> ProductSide<T> product_side(const Tensor& t, bool k_first) {
  const int of_outer = k_first ? -1 : -2, of_k = k_first ? -2 : -1;
  SINTER_CHECK(t.size(of_k) <= kMaxTerms, shape,
      str("a product of ", t.describe(), ": sums of ", t.size(of_k), " terms; allowed up to ",
          kMaxTerms));
  ProductSide<T> s{.data = in<T>(t), .outer = t.size(of_outer), .k = t.size(of_k)};
  s.outer_stride = s.outer > 1 ? t.strides()[of_outer] : 0;  // of one element it could be anything
  s.k_stride = s.k > 1 ? t.strides()[of_k] : 0;
  s.along_k = s.k_stride == 1 || s.outer_stride != 1;
  s.vec = (s.along_k ? s.k_stride : s.outer_stride) == 1 &&
          (s.along_k ? s.outer_stride : s.k_stride) % kVec<T> == 0 && is_aligned(t);
  return s;
}

// Columns of a dense row-major matrix, eight or a vector of them as 16-byte accesses, or one by one
// at ragged ends. Data: In, Out or InOut<T>.
template <class T, class Data> struct Columns {
  Data data;
  int64_t cols = 0;
  bool vec = false;

  SINTER_DEVICE_FN Group<T> load(int64_t i, int64_t j) const {
    return load_group_at(data, i * cols + j);
  }
  template <class V, int N>
  SINTER_DEVICE_FN void load(int64_t i, int64_t j, int count, V (&v)[N]) const {
    if (vec && count == N) {
      SINTER_UNROLL
      for (int q = 0; q < N; q += kVec<T>) {
        const auto part = data.template load_vec<kVec<T>>(i * cols + j + q);
        SINTER_UNROLL
        for (int e = 0; e < kVec<T>; ++e) v[q + e] = part[e];
      }
    } else {
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) v[q] = q < count ? V(data[i * cols + j + q]) : V(0);
    }
  }
  template <class Count, class V, int N>
  SINTER_DEVICE_FN void store(int64_t i, int64_t j, const Count& count, const V (&v)[N]) const {
    if (kAllOfGroup<Count> || (vec && count == N)) {
      SINTER_UNROLL
      for (int q = 0; q < N; q += kVec<T>) {
        Vec<T, kVec<T>> part;
        SINTER_UNROLL
        for (int e = 0; e < kVec<T>; ++e) part[e] = T(v[q + e]);
        data.store_vec(i * cols + j + q, part);
      }
    } else {
      SINTER_UNROLL
      for (int q = 0; q < N; ++q) {
        if (q < count) data.put(i * cols + j + q, T(v[q]));
      }
    }
  }
  SINTER_FN explicit operator bool() const { return bool(data); }
};
template <class T, class Data>
Columns<T, Data> columns_of(const Tensor& t, const Data& data, int64_t cols) {
  return {data, cols, cols % kGroup == 0 && is_aligned(t)};
}
template <class T, class Data> Columns<T, Data> columns_of(const Tensor& t, const Data& data) {
  if (!t.defined()) return {};
  return columns_of<T>(t, data, t.size(-1));
}
template <class T> Columns<T, In<T>> columns_in(const Tensor& t) {
  return columns_of<T>(t, in<T>(t));
}
template <class T> Columns<T, Out<T>> columns_out(const Tensor& t) {
  return columns_of<T>(t, out<T>(t));
}
// Columns from `first` on of a dense matrix.
template <class T> Columns<T, Out<T>> columns_from(const Tensor& t, int64_t first) {
  Columns<T, Out<T>> columns =
      columns_of<T>(t, Out<T>(t.data<T>() + first, t.numel() - first), t.size(1));
  columns.vec = columns.vec && first % kGroup == 0;
  return columns;
}
template <class T> Columns<T, InOut<T>> columns_in_out(const Tensor& t) {
  return columns_of<T>(t, in_out<T>(t));
}

// A bias of T or of T's sums, or none.
template <class T> struct Bias {
  In<T> same;
  In<compute_t<T>> wide;
  bool vec = true;
  explicit Bias(const Tensor& t) {
    if (!t.defined()) return;
    vec = is_aligned(t);
    if (t.dtype() == dtype_of<T>) {
      same = in<T>(t);
    } else {
      wide = in<compute_t<T>>(t);
    }
  }
  SINTER_DEVICE_FN compute_t<T> at(int64_t j) const {
    return same ? compute_t<T>(same[j]) : wide ? wide[j] : compute_t<T>(0);
  }
  SINTER_DEVICE_FN void add(int64_t j, int count, compute_t<T> (&z)[kGroup]) const {
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q) {
      if (same && q < count) z[q] = z[q] + compute_t<T>(same[j + q]);
      if (wide && q < count) z[q] = z[q] + wide[j + q];
    }
  }
  struct Read : AllOfGroup {
    Group<T> same;
    Group<compute_t<T>> wide;
  };
  SINTER_DEVICE_FN void load(int64_t j, Read& read) const {
    if (same) read.same = load_group_at(same, j);
    if (wide) read.wide = load_group_at(wide, j);
  }
  SINTER_DEVICE_FN void add(int64_t, const Read& read, compute_t<T> (&z)[kGroup]) const {
    SINTER_UNROLL
    for (int q = 0; q < kGroup; ++q) {
      if (same) z[q] = z[q] + compute_t<T>(read.same[q]);
      if (wide) z[q] = z[q] + read.wide[q];
    }
  }
};

template <class T> struct NoBias {
  bool vec = true;
  struct Read : AllOfGroup {};
  SINTER_DEVICE_FN void load(int64_t, Read&) const {}
  template <class Count>
  SINTER_DEVICE_FN void add(int64_t, const Count&, compute_t<T> (&)[kGroup]) const {}
};

// y = sums + bias
template <class T, class Y> struct StoreSums {
  static constexpr bool kSumsRows = false;
  Bias<T> bias;
  Columns<Y, Out<Y>> y;
  bool all_whole() const { return bias.vec && y.vec; }
  using Read = typename Bias<T>::Read;
  SINTER_DEVICE_FN void load_columns(int64_t j, Read& read) const { bias.load(j, read); }
  SINTER_DEVICE_FN void load(int64_t, int64_t, Read&) const {}
  template <class Count>
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, const Count& count, compute_t<T> (&z)[kGroup]) const {
    bias.add(j, count, z);
    y.store(i, j, count, z);
  }
};

// dw = sums, and db = the sums of the first operand's rows
template <class T> struct StoreGrads {
  static constexpr bool kSumsRows = true;
  Columns<compute_t<T>, Out<compute_t<T>>> dw;
  Out<compute_t<T>> db;
  bool all_whole() const { return dw.vec; }
  using Read = AllOfGroup;
  SINTER_DEVICE_FN void load_columns(int64_t, Read&) const {}
  SINTER_DEVICE_FN void load(int64_t, int64_t, Read&) const {}
  template <class Count>
  SINTER_DEVICE_FN void operator()(
      int64_t i, int64_t j, const Count& count, compute_t<T> (&z)[kGroup]) const {
    dw.store(i, j, count, z);
  }
  SINTER_DEVICE_FN void row_sum(int64_t i, compute_t<T> sum) const { db.put(i, sum); }
};

// Eight sums of a row.
template <class V, class Sums>
SINTER_DEVICE_FN void load_group(const Sums& sums, int r, int c, V (&z)[kGroup]) {
  SINTER_UNROLL
  for (int q = 0; q < kGroup; q += kVec<V>) {
    const auto part = sums.template load_vec<kVec<V>>(r, c + q);
    SINTER_UNROLL
    for (int e = 0; e < kVec<V>; ++e) z[q + e] = part[e];
  }
}

// What a thread does with a block's sums: it hands groups of eight columns to the epilogue, always
// the same columns, of rows kStep apart; neighbours have neighbouring groups of a row. If all
// groups are whole, what the epilogue reads for one is on its way while the one before is worked
// on, and that for the first while the sums are not there yet: load().
template <int kRows, int kThreads, bool kWhole, class T, class B, class A, class Epilogue,
    int kColumns = kTile>
class TileEnd {
  // Of a tile's columns as many stand for the same result, kCols apart.
  static constexpr int kSums = [] {
    if constexpr (B::kGathered)
      return 1;
    else
      return B::kSums;
  }();
  static constexpr int kCols = kColumns / kSums, kOfRow = kCols / kGroup, kStep = kThreads / kOfRow;
  static_assert(kThreads % kOfRow == 0);

 public:
  SINTER_DEVICE_FN TileEnd(
      const Product<T, B, A>& product, const TileAt& at, const Epilogue& epilogue)
      : epilogue_(epilogue) {
    const unsigned me = static_cast<unsigned>(thread_x());
    r_ = static_cast<int>(me / kOfRow);
    c_ = static_cast<int>(me % kOfRow) * kGroup;
    i_ = at.row * kRows;
    j_ = at.col * kCols + c_;
    const int64_t rows = product.a.outer - i_, left = results_of(product.b) - j_;
    end_ = rows < kRows ? static_cast<int>(rows) : kRows;
    count_ = left < 0 ? 0 : left < kGroup ? static_cast<int>(left) : kGroup;
    if (kWhole && count_ == 0) end_ = 0;
  }
  SINTER_DEVICE_FN void load() {
    if constexpr (kWhole) {
      if (r_ >= end_) return;
      epilogue_.load_columns(j_, read_);
      epilogue_.load(i_ + r_, j_, read_);
    }
  }
  template <class Sums> SINTER_DEVICE_FN void finish(const Sums& sums) {
    SINTER_NO_UNROLL
    for (int r = r_; r < end_; r += kStep) {
      compute_t<T> z[kSums][kGroup];
      SINTER_UNROLL
      for (int s = 0; s < kSums; ++s) load_group(sums, r, s * kCols + c_, z[s]);
      if constexpr (kWhole) {
        const auto read = read_;
        if (r + kStep < end_) epilogue_.load(i_ + r + kStep, j_, read_);
        hand_over(i_ + r, read, z);
      } else {
        hand_over(i_ + r, count_, z);
      }
    }
  }

 private:
  static SINTER_DEVICE_FN int64_t results_of(const B& side) {
    if constexpr (B::kGathered)
      return side.outer;
    else
      return side.results();
  }
  template <class Count, class V>
  SINTER_DEVICE_FN void hand_over(int64_t i, const Count& count, V (&z)[kSums][kGroup]) const {
    if constexpr (kSums == 1)
      epilogue_(i, j_, count, z[0]);
    else
      epilogue_(i, j_, count, z[0], z[1]);
  }
  template <class E, bool> struct ReadOf {
    struct type {};
  };
  template <class E> struct ReadOf<E, true> {
    using type = typename E::Read;
  };
  const Epilogue& epilogue_;
  int64_t i_, j_;
  int r_, c_, end_, count_;
  typename ReadOf<Epilogue, kWhole>::type read_;
};

}  // namespace sinter::SINTER_KERNEL_NS
