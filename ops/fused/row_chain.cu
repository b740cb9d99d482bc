// row_chain: of a chain of layers forward, loss and backward to the chain's input, but for the
// gradients of weights; see row_chain.cpp. A block has all weights in its shared memory, and takes
// 16 rows at a time through the whole chain there, every grid-th 16: a result overwrites nothing
// that is still read, a gradient takes the place of the result that it belongs to. Reads the
// weights once per block, x, labels, grad_output and what x's activation saved once; writes losses,
// dlogits, and of each layer between its result and the gradient before its activation once, and
// dx.
#include "ops/fused/row_chain.h"

#include "ops/product/gemm_launch.cuh"
#include "ops/rows/row.cuh"

// C classes; layer l is [outs, ins]
namespace sinter::SINTER_KERNEL_NS {

constexpr int kChainThreads = 256, kChainWarps = kChainThreads / 32,
              kChainRows = ChainLayout::kRows;

template <class T>
using ChainTile =
    SharedTile<T, ChainLayout::kRows, ChainLayout::kRowBytes / int(sizeof(T)), kVec<T>>;
template <class T> inline constexpr int kChainDepth = ChainLayout::kRowBytes / int(sizeof(T));
template <class T> struct ChainShared {
  SharedTile<float, kChainRows, kHeadClasses, 4> z;
  ChainTile<T> first;  // and as many behind it as the layout says
};
static_assert(sizeof(ChainShared<bf16>) == ChainLayout::kLogitBytes + ChainLayout::kTileBytes &&
              sizeof(ChainShared<float>) == sizeof(ChainShared<bf16>));

// A matrix of some columns in shared memory, tile after tile, row of tiles after row of tiles.
template <class T> class InTiles {
 public:
  SINTER_DEVICE_FN InTiles(ChainTile<T>& tiles, int begin, int columns)
      : tiles_(tiles),
        begin_(keep(keep_shared(tiles) + begin * kBytes)),
        across_(keep((columns + kChainDepth<T> - 1) / kChainDepth<T>)) {}
  SINTER_DEVICE_FN int across() const { return across_; }
  // The one with element (r, c), which is its (r % kChainRows, c % kChainDepth).
  SINTER_DEVICE_FN ChainTile<T>& with(int r, int c) const {
    return number(r / kChainRows * across_ + c / kChainDepth<T>);
  }
  SINTER_DEVICE_FN ChainTile<T>& number(int t) const {
    return shared_at(tiles_, begin_ + t * kBytes);
  }

 private:
  static constexpr int kBytes = ChainLayout::kTileBytes;
  ChainTile<T>& tiles_;
  int begin_, across_;
};

template <class T> struct LossOperands {
  using V = compute_t<T>;
  Bias<T> bias;
  In<int32_t> labels;
  In<V> grad_output;
  int64_t grad_output_step;
  int classes;
  Target<V> target;
  Out<V> loss;
  Out<T> dz;
  uint32_t* faults;
};

// The loss of 16 rows from `first` on, of which `rows` exist. A thread has of row thread / 16 the
// classes thread % 16, + 16, ..; kC is C padded to 16 or 64. What it reads beside the logits is on
// its way from the beginning.
template <class T, int kC> class LossOfRows {
  using V = compute_t<T>;
  using Row = WarpRow<V, kC / 16, 16>;

 public:
  using Logits = typename Row::Values;
  SINTER_DEVICE_FN LossOfRows(const LossOperands<T>& x, int64_t first, int64_t rows)
      : x_(x),
        row_{first + thread_x() / 16, x.classes},
        real_(row_.row < rows),
        label_{real_ ? x.labels[row_.row] : 0},
        scale_{real_ ? x.grad_output[row_.row * x.grad_output_step] : V(0)} {
    SINTER_UNROLL
    for (int j = 0; j < kC / 16; ++j)
      bias_.v[j] = column(j) < x.classes ? x.bias.at(column(j)) : V(0);
  }
  static SINTER_DEVICE_FN int column(int j) { return lane() % 16 + 16 * j; }

  // Of the logits without bias. put(row of 16, column, dz), zeros in columns that are no class.
  template <class Put> SINTER_DEVICE_FN void operator()(Logits& z, const Put& put) {
    const int r = thread_x() / 16;
    row_.each([&](auto i) { z.v[i.j] = z.v[i.j] + bias_.v[i.j]; });
    const bool good = row_.check_label(label_, x_.faults);
    SINTER_UNROLL
    for (int j = 0; j < kC / 16; ++j) put(r, column(j), T(0.0f));
    cross_entropy(
        row_, z, label_, x_.target, true, scale_,
        [&](V loss) {
          row_.once([&](auto, int64_t at) {
            if (real_) x_.loss.put(at, good ? loss : V(NAN));
          });
        },
        [&](const auto& dz) {
          row_.each([&](auto i) {
            const T v = T(dz(i));
            put(r, i.c, v);
            if (real_) x_.dz.put(row_.row * row_.cols + i.c, v);
          });
        });
  }

 private:
  const LossOperands<T>& x_;
  Row row_;
  bool real_;
  RowNumber<int> label_;
  RowNumber<V> scale_;
  Logits bias_;
};

template <class T> struct ChainLayer {
  ProductSide<T> weight;
  Bias<T> bias{Tensor()};
  // Of the weight, of the layer's input, and of what its activation saved: the first tile.
  int weight_at = 0, rows_at = 0, saved_at = 0;
  Columns<T, Out<T>> rows, grad;  // its input, if another layer made it; the gradient of that
};
template <class T> struct RowChain {
  ProductSide<T> x, saved;  // saved: nothing, unless the activation that gave x reads its operand
  LossOperands<T> loss;
  int layers, dz_at;
  Act act;
  bool of_act;
  ChainLayer<T> layer[kChainLayers];
};
// Rows from `first` on, whole tiles of them, on their way to shared memory; zeros where there are
// none. kWhole: no chunk of 16 bytes is there in part.
template <bool kWhole, class T>
SINTER_DEVICE_FN void bring(
    const ProductSide<T>& side, int64_t first, int rows, const InTiles<T>& to) {
  constexpr int kOfRow = kChainDepth<T> / kVec<T>, kOfTile = kChainRows * kOfRow,
                kAtOnce = kChainThreads / kOfTile;
  const int across = to.across(), mine = thread_x() / kOfTile * kChainRows,
            r = thread_x() % kOfTile / kOfRow, c = thread_x() % kOfRow * kVec<T>;
  const int there = static_cast<int>(side.outer - first < rows ? side.outer - first : rows);
  SINTER_NO_UNROLL
  for (int row = mine; row < rows; row += kAtOnce * kChainRows) {
    // Along a row of tiles all that changes is the tile, and its place in the row.
    const Cursor<T> from(side.data, (first + row + r) * side.outer_stride + c);
    const int end = row + r < there ? static_cast<int>(side.k) - c : 0;
    int t = row / kChainRows * across;
    SINTER_NO_UNROLL
    for (int column = 0; column < across * kChainDepth<T>; column += kChainDepth<T>) {
      auto& tile = to.number(t++);
      if constexpr (kWhole) {
        cp_async16(
            tile, r, c, from.behind(sizeof(T) * static_cast<unsigned>(column)), column < end);
      } else {
        copy_chunk<T>(side, side.chunk(true, first + row + r, column + c), tile, r, c);
      }
    }
  }
}

// The block's 16 rows from shared memory to rows `first` on of a matrix.
template <bool kWhole, class T>
SINTER_DEVICE_FN void send(
    const InTiles<T>& from, const Columns<T, Out<T>>& to, int64_t first, int64_t rows) {
  const int columns = static_cast<int>(to.cols), groups = (columns + kGroup - 1) / kGroup;
  SINTER_NO_UNROLL
  for (int e = thread_x(); e < kChainRows * groups; e += kChainThreads) {
    const int r = e / groups, c = e % groups * kGroup;
    if (first + r >= rows) break;
    T v[kGroup];
    load_group<T>(from.with(0, c), r, c % kChainDepth<T>, v);
    if constexpr (kWhole) {
      to.store(first + r, c, AllOfGroup{}, v);
    } else {
      to.store(first + r, c, columns - c < kGroup ? columns - c : kGroup, v);
    }
  }
}

// Walks along the terms of the sums of a product of 16 rows, kStep at a time, tile by tile: f(tile
// of a, the column there, tile of b, the column or row there). Terms are the columns of a and of
// b's rows n.. (kForward, a W^T), or the columns of a and b's rows, of which the columns n.. are
// meant (a W). They come in sixteens, filled up with zeros. Turns, of kTurn or 16 terms, have no
// branch inside, so that the operands of a step are loaded during the products of the one before.
template <bool kForward, int kStep, int kTurn, class T, class F>
SINTER_DEVICE_FN void for_terms(
    const InTiles<T>& a, const InTiles<T>& b, int n, int terms, const F& f) {
  constexpr int kOfTile = kForward ? kChainDepth<T> : kChainRows;
  static_assert(!kForward || kTurn == 16 || kTurn == kOfTile);
  // Sixteen from those places on of the tiles that term t is in.
  const auto sixteen = [&](int t, int column, int k) {
    const auto& rows = a.with(0, t);
    const auto& tile = kForward ? b.with(n, t) : b.with(t, n);
    SINTER_UNROLL
    for (int q = 0; q < 16; q += kStep) f(rows, column + q, tile, k + q);
  };
  int t = 0;
  if constexpr (kTurn > 16) {
    SINTER_NO_UNROLL
    for (; t + kTurn <= terms; t += kTurn) {
      SINTER_UNROLL
      for (int k = 0; k < kTurn; k += 16) {
        if constexpr (kForward) {
          sixteen(t, k, k);
        } else {
          sixteen(t + k, (t + k) % kChainDepth<T>, 0);
        }
      }
    }
  }
  SINTER_NO_UNROLL
  for (; t < terms; t += 16) sixteen(t, t % kChainDepth<T>, t % kOfTile);
}

// A core makes such a product for `columns` columns, in sixteens, a warp sixteen at a time: use(r,
// c, sums of columns c.. of row r, what load(c) gave for these columns before). kRowsOf: how many
// rows a thread of FfmaChain has, few where there are few columns. kOnce: use is long, and stands
// there once, for the first of what then moves up.
template <bool kOnce, class V, int N, class F>
SINTER_DEVICE_FN void each_of(V (&v)[N], const F& f) {
  if constexpr (kOnce) {
    SINTER_NO_UNROLL
    for (int i = 0; i < N; ++i) {
      f(i, v[0]);
      SINTER_UNROLL
      for (int q = 1; q < N; ++q) v[q - 1] = v[q];
    }
  } else {
    SINTER_UNROLL
    for (int i = 0; i < N; ++i) f(i, v[i]);
  }
}
struct FfmaChain {
  template <int kRowsOf, bool kForward, bool kOnce, class Load, class Use>
  static SINTER_DEVICE_FN void product(const InTiles<float>& a, const InTiles<float>& b,
      int columns, int terms, const Load& load, const Use& use) {
    constexpr int kOfWarp = 2 * kRowsOf, kShares = kChainRows / kOfWarp, kAtOnce = kVec<float>;
    SINTER_NO_UNROLL
    for (int t = warp(); t < (columns + 15) / 16 * kShares; t += kChainWarps) {
      const int n = t / kShares * 16, mine = lane() % 16, c = n + mine,
                first = t % kShares * kOfWarp + lane() / 16 * kRowsOf;
      const Vec<float, 1> loaded{{load(c)}};
      float sums[kRowsOf] = {};
      for_terms<kForward, kAtOnce, 16>(
          a, b, n, terms, [&](const auto& rows, int column, const auto& tile, int k) {
            Vec<float, kAtOnce> y;
            if constexpr (kForward) {
              y = tile.template load_vec<kAtOnce>(mine, k);
            } else {
              SINTER_UNROLL
              for (int e = 0; e < kAtOnce; ++e) y[e] = tile(k + e, c % kChainDepth<float>);
            }
            SINTER_UNROLL
            for (int i = 0; i < kRowsOf; ++i) {
              const auto x = rows.template load_vec<kAtOnce>(first + i, column);
              SINTER_UNROLL
              for (int e = 0; e < kAtOnce; ++e) sums[i] = math::mul_add(x[e], y[e], sums[i]);
            }
          });
      each_of<kOnce>(
          sums, [&](int i, float sum) { use(first + i, c, Vec<float, 1>{{sum}}, loaded); });
    }
  }
};
template <class T> struct MmaChain {
  template <int kRowsOf, bool kForward, bool kOnce, class Load, class Use>
  static SINTER_DEVICE_FN void product(const InTiles<T>& a, const InTiles<T>& b, int columns,
      int terms, const Load& load, const Use& use) {
    SINTER_NO_UNROLL
    for (int n = warp() * 16; n < columns; n += kChainWarps * 16) {
      // A lane has columns 2t, 2t + 1 of rows g and g + 8 of each fragment: g = lane / 4, t = lane
      // % 4.
      const int r = lane() / 4, c = n + lane() % 4 * 2;
      const float loaded[] = {load(c), load(c + 1), load(c + 8), load(c + 9)};
      Vec<float, 4> sums[2] = {};
      for_terms<kForward, 32 / int(sizeof(T)), kForward ? kChainDepth<T> : 32>(
          a, b, n, terms, [&](const auto& rows, int column, const auto& tile, int k) {
            const auto x = fragments_of_rows<true, T>(rows, 0, column);
            if constexpr (kForward) {
              mma_twice<T>(sums, x, fragments_of_rows<false, T>(tile, 0, k));
            } else {
              mma_twice<T>(sums, x, fragments_of_columns<T>(tile, k, n % kChainDepth<T>));
            }
          });
      Vec<float, 4> pairs[4];  // and what was loaded for them
      SINTER_UNROLL
      for (int p = 0; p < 4; ++p) {
        const int f = p / 2, e = p % 2 * 2;
        pairs[p] = {{sums[f].v[e], sums[f].v[e + 1], loaded[2 * f], loaded[2 * f + 1]}};
      }
      each_of<kOnce>(pairs, [&](int p, const Vec<float, 4>& v) {
        use(r + p % 2 * 8, c + p / 2 * 8, Vec<float, 2>{{v.v[0], v.v[1]}},
            Vec<float, 2>{{v.v[2], v.v[3]}});
      });
    }
  }
};

// What a block does with 16 rows, stage after stage, its threads waiting for each other between two
// of them. Matrices in shared memory are tiles, of which the layout says where each begins: the
// weights, which stay, and rows 0 .. last + 1, of which rows l go into layer l and the last are dz.
//
//   stage         reads in shared memory     writes there            in registers, and beside
//   bring                                    rows 0 = x, saved 0;    labels, grad_output and the
//                                            at first the weights    last bias for the loss
//   forward(l)    rows l, weight l           rows l + 1, saved l+1   sums; rows l + 1 are sent
//   loss          rows last, weight last     z, then dz              a row's logits in 16 threads;
//                                                                    losses and dz are sent
//   backward(l)   dz or rows l + 1, which    rows l: the gradient    sums; rows l are sent
//                 are gradients by now;      in place of what it
//                 weight l, saved l          belongs to
//
// The weights behind the first are on their way during forward(0). saved l is what the activation
// that gave rows l reads backward: those rows themselves, or a place of its own.
template <class Core, int kC, bool kWhole, Act kAct, class T> class RowsInBlock {
  static constexpr int kDepth = kChainDepth<T>;
  using Loss = LossOfRows<T, kC>;

 public:
  explicit SINTER_DEVICE_FN RowsInBlock(const RowChain<T>& x)
      : x_(x), s_(shared<ChainShared<T>>()), dz_(s_.first, x.dz_at, x.loss.classes) {}

  SINTER_DEVICE_FN void bring_weight(int l) const {
    bring<kWhole>(x_.layer[l].weight, 0, outs(l), weight(l));
  }
  SINTER_DEVICE_FN void bring_rows(int64_t first) const {
    bring<kWhole>(x_.x, first, kChainRows, rows_of(0));
    if (kAct != Act::relu && x_.saved.data) bring<kWhole>(x_.saved, first, kChainRows, saved_of(0));
  }
  SINTER_DEVICE_FN void forward(int l, int64_t first) const {
    const InTiles<T> y = rows_of(l + 1), saved = saved_of(l + 1);
    const int width = outs(l);
    Core::template product<8, true, kAct == Act::none>(
        rows_of(l), weight(l), width, ins(l),
        [&](int c) { return c < width ? x_.layer[l].bias.at(c) : 0.0f; },
        [&]<int N>(int r, int c, const Vec<float, N>& sums, const Vec<float, N>& bias) {
          Vec<T, N> v, z;  // zeros behind the last column, even of a row with an infinity
          visit_act(act(), [&](const auto& op) {
            SINTER_UNROLL
            for (int q = 0; q < N; ++q) {
              v[q] = c + q < width ? T(op.forward(sums[q] + bias[q])) : T(0.0f);
              z[q] = T(sums[q] + bias[q]);
            }
          });
          if (kAct != Act::relu) saved.with(0, c).store_vec(r, c % kDepth, z);
          y.with(0, c).store_vec(r, c % kDepth, v);
        });
    cp_async_wait<0>();
    block_sync();
    send<kWhole>(y, x_.layer[l + 1].rows, first, x_.x.outer);
  }
  SINTER_DEVICE_FN void loss(Loss& loss) const {
    const int last = x_.layers - 1, classes = x_.loss.classes;
    Core::template product<1, true, false>(
        rows_of(last), weight(last), classes, ins(last), [](int) { return 0.0f; },
        [&]<int N>(int r, int c, const Vec<float, N>& sums, const Vec<float, N>&) {
          s_.z.store_vec(r, c, sums);
        });
    block_sync();
    typename Loss::Logits z;
    SINTER_UNROLL
    for (int j = 0; j < kC / 16; ++j) {
      const int c = Loss::column(j);
      z.v[j] = c < classes ? s_.z(thread_x() / 16, c) : 0.0f;
    }
    loss(z, [&](int r, int c, T v) {
      if (c < (classes + 15) / 16 * 16) dz_.with(0, c).put(r, c % kDepth, v);
    });
    block_sync();
  }
  SINTER_DEVICE_FN void backward(int l, int64_t first) const {
    const InTiles<T> y = rows_of(l), saved = saved_of(l);
    const int width = ins(l);
    const bool has_act = l > 0 || x_.of_act;
    Core::template product<8, false, kAct == Act::none>(
        l == x_.layers - 1 ? dz_ : rows_of(l + 1), weight(l), width, outs(l),
        [](int) { return 0.0f; },
        [&]<int N>(int r, int c, const Vec<float, N>& sums, const Vec<float, N>&) {
          Vec<T, N> v = saved.with(0, c).template load_vec<N>(r, c % kDepth);
          visit_act(act(), [&](const auto& op) {
            SINTER_UNROLL
            for (int q = 0; q < N; ++q) {
              const float dy = has_act ? op.grad(sums[q], float(v[q])) : sums[q];
              v[q] = kAct == Act::relu || c + q < width ? T(dy) : T(0.0f);
            }
          });
          y.with(0, c).store_vec(r, c % kDepth, v);
        });
    block_sync();
    send<kWhole>(y, x_.layer[l].grad, first, x_.x.outer);
  }

 private:
  SINTER_DEVICE_FN int ins(int l) const { return static_cast<int>(x_.layer[l].weight.k); }
  SINTER_DEVICE_FN int outs(int l) const { return static_cast<int>(x_.layer[l].weight.outer); }
  SINTER_DEVICE_FN InTiles<T> weight(int l) const {
    return {s_.first, x_.layer[l].weight_at, ins(l)};
  }
  SINTER_DEVICE_FN InTiles<T> rows_of(int l) const {
    return {s_.first, x_.layer[l].rows_at, ins(l)};
  }
  // The same where it is ReLU.
  SINTER_DEVICE_FN InTiles<T> saved_of(int l) const {
    return {s_.first, kAct == Act::relu ? x_.layer[l].rows_at : x_.layer[l].saved_at, ins(l)};
  }
  // Compiled; kAct none: looked up.
  SINTER_DEVICE_FN Act act() const { return kAct == Act::none ? x_.act : kAct; }

  const RowChain<T>& x_;
  ChainShared<T>& s_;
  InTiles<T> dz_;
};

template <class Core, int kC, bool kWhole, Act kAct, class T>
SINTER_DEVICE_FN void rows_through_chain(const RowChain<T>& x) {
  wait_for_upstream();
  begin_dependents();
  const RowsInBlock<Core, kC, kWhole, kAct, T> block(x);
  const int last = x.layers - 1;
  const int64_t rows = x.x.outer, of_block = block_x() * kChainRows;
  block.bring_weight(0);
  SINTER_NO_UNROLL
  for (int64_t first = of_block; first < rows; first += grid_x() * kChainRows) {
    block.bring_rows(first);
    cp_async_commit();
    if (first == of_block) {
      SINTER_NO_UNROLL
      for (int l = 1; l <= last; ++l) block.bring_weight(l);
    }
    cp_async_commit();
    LossOfRows<T, kC> loss(x.loss, first, rows);
    cp_async_wait<1>();
    block_sync();
    SINTER_NO_UNROLL
    for (int l = 0; l < last; ++l) block.forward(l, first);
    block.loss(loss);
    SINTER_NO_UNROLL
    for (int l = last; l >= 0 && x.layer[l].grad; --l) block.backward(l, first);
    block_sync();  // nobody still reads what the next rows overwrite
  }
}

// kAct: its number, as kernels are told apart by their names.
template <int kC, bool kWhole, int kAct>
SINTER_KERNEL_BOUNDS(kChainThreads, 2)
row_chain_ffma_16(RowChain<float> x) {
  rows_through_chain<FfmaChain, kC, kWhole, Act(kAct)>(x);
}
template <class T, int kC, bool kWhole, int kAct>
SINTER_KERNEL_BOUNDS(kChainThreads, 2)
row_chain_mma_16(RowChain<T> x) {
  rows_through_chain<MmaChain<T>, kC, kWhole, Act(kAct)>(x);
}

void row_chain(const Call& call) {
  const auto& attrs = call.as<RowChainAttrs>();
  const std::vector<int64_t> widths = chain_widths(call.in);
  const int last = static_cast<int>(widths.size()) - 2;
  if (call.in[0].size(0) == 0) return;
  const auto run = [&]<class T>(T) {
    const ChainLayout layout(widths, dtype_of<T>, attrs);
    const auto operand = [&](int l, int which) {
      return optional_input(call.in, 4 + 2 * l + which);
    };
    const Tensor& grad_output = call.in[2];
    const int64_t classes = widths.back();
    RowChain<T> x{product_side<T>(call.in[0], false), {},
        {Bias<T>(operand(last, 1)), in<int32_t>(call.in[1]), in<float>(grad_output),
            grad_output.strides()[0], static_cast<int>(classes),
            Target<float>(attrs.label_smoothing, classes), out<float>(call.out[0]),
            out<T>(call.out[1]), fault_flag()},
        last + 1, layout.rows[last + 1], attrs.act, attrs.of_act, {}};
    if (layout.saved[0] != layout.rows[0]) x.saved = product_side<T>(call.in[3], false);
    bool whole = lies<Layout::along_k>(x.x);
    for (int l = 0; l <= last; ++l) {
      ChainLayer<T>& layer = x.layer[l];
      layer.weight = product_side<T>(operand(l, 0), false);
      layer.bias = Bias<T>(operand(l, 1));
      layer.weight_at = layout.weight[l];
      layer.rows_at = layout.rows[l];
      layer.saved_at = layout.saved[l];
      // Results: losses, dlogits, rows 1.. to last, gradients of rows last .. to 1, and of x.
      if (l > 0) layer.rows = columns_out<T>(call.out[1 + l]);
      if (l > 0 || attrs.input_grad) layer.grad = columns_out<T>(call.out[2 + 2 * last - l]);
      whole = whole && lies<Layout::along_k>(layer.weight) && (l == 0 || layer.rows.vec) &&
              (!layer.grad || layer.grad.vec);
    }
    const auto launch_for = [&]<int kC, bool kWhole, Act kAct> {
      const int64_t at_once = shared_memory_limit(kDevice) / layout.bytes() > 1 ? 2 : 1;
      const Grid grid{std::min(blocks_for(x.x.outer, kChainRows), at_once * multiprocessors())};
      if (on_tensor_cores<T>())
        return launch_waiting<row_chain_mma_16<T, kC, kWhole, int(kAct)>>(
            grid, kChainThreads, layout.bytes(), x);
      if constexpr (kHasFfma<T>)
        launch_waiting<row_chain_ffma_16<kC, kWhole, int(kAct)>>(
            grid, kChainThreads, layout.bytes(), x);
    };
    const bool few = classes <= 16;
    if (attrs.act == Act::gelu && few && whole)
      return launch_for.template operator()<16, true, Act::gelu>();
    if (attrs.act != Act::relu) return launch_for.template operator()<64, false, Act::none>();
    if (few && whole) return launch_for.template operator()<16, true, Act::relu>();
    if (whole) return launch_for.template operator()<64, true, Act::relu>();
    launch_for.template operator()<64, false, Act::relu>();
  };
  if (call.in[0].dtype() == DType::bf16) return run(bf16{});
  run(float{});
}

}  // namespace sinter::SINTER_KERNEL_NS
