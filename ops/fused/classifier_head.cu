// classifier_head: z = h W^T + b, its cross entropy, dz and dh = (dz W) * act'(saved); see
// classifier_head.cpp. A block owns 16 rows, whole: C is padded to 16 or 64. h and W come in chunks
// of 256 bytes of each row by cp_async, the next while one is used; two chunks stay for dh, of
// longer rows W is read again. Reads h, labels, grad_output and saved once, W once or twice per
// block; writes a loss a row, dz and dh.
#include "ops/fused/chain_end.cuh"
#include "ops/fused/rows_of_block.cuh"
#include "ops/ops.h"

// B batch, C classes, H hidden
namespace sinter::SINTER_KERNEL_NS {

template <class T> constexpr int kHeadDepth = 256 / static_cast<int>(sizeof(T));

template <class T> struct HeadOperands {
  ProductSide<T> h, w;
  LossOperands<T> loss;
  EndSteps<T, kReluGrad> dh;  // or the sums as they are
  bool has_act;
};

template <class T, int kC> struct HeadShared {
  struct Stage {
    SharedTile<T, kHeadRows, kHeadDepth<T>, kVec<T>> h;
    SharedTile<T, kC, kHeadDepth<T>, kVec<T>> w;
  };
  Stage stages[2];
  SharedTile<T, kHeadRows, kC, kVec<T>> dz;
};
template <class T, int kC> struct MmaHeadShared : HeadShared<T, kC> {
  union {
    SharedTile<float, kHeadWarps * kHeadRows, kC, 4> parts;  // of z, by warp
    SharedTile<float, kHeadRows, kHeadDepth<T>, 4> sums;     // of dh
  };
};

// 256 bytes of each of kRows rows from `row` on, zeros where there are none. kWhole: no chunk is
// there in part.
template <bool kWhole, class T, int kRows, class Tile>
SINTER_DEVICE_FN void copy_rows(const ProductSide<T>& side, int64_t row, int64_t k, Tile& tile) {
  constexpr int kChunks = kHeadDepth<T> / kVec<T>;
  SINTER_UNROLL
  for (int e = thread_x(); e < kRows * kChunks; e += kHeadThreads) {
    const int r = e / kChunks, c = e % kChunks * kVec<T>;
    const auto chunk = side.chunk(true, row + r, k + c);
    if constexpr (kWhole) {
      cp_async16(tile, r, c, side.data, chunk.at, chunk.left > 0);
    } else {
      copy_chunk<T>(side, chunk, tile, r, c);
    }
  }
}

// The three products' inner parts differ by core; everything else is here. Core gives: add(stage),
// one chunk of z; logits(z), of row thread / 16, columns thread % 16, + 16, ..; back(stage, row,
// column, f), f(sums[8]) from there on in one chunk of dh.
template <bool kWhole, class T, int kC, class Core, class Shared>
SINTER_DEVICE_FN void head_of_rows(const HeadOperands<T>& x, Shared& s, Core& core) {
  using V = compute_t<T>;
  constexpr int kDepth = kHeadDepth<T>;
  const int64_t first = block_x() * kHeadRows, rows = x.h.outer, hidden = x.h.k;
  const int chunks = static_cast<int>((hidden + kDepth - 1) / kDepth);
  const auto copy = [&](int chunk, bool with_h) {
    if (chunk < chunks) {
      if (with_h)
        copy_rows<kWhole, T, kHeadRows>(x.h, first, int64_t{chunk} * kDepth, s.stages[chunk % 2].h);
      copy_rows<kWhole, T, kC>(x.w, 0, int64_t{chunk} * kDepth, s.stages[chunk % 2].w);
    }
    cp_async_commit();
  };
  copy(0, true);
  // What is read after the product is on its way before it, and what the first chunk of dh is
  // multiplied by.
  using Loss = LossOfRows<T, kC>;
  Loss loss(x.loss, first, rows);
  constexpr int kGroups = kDepth / kGroup;
  const int of_row = thread_x() / kGroups, column = thread_x() % kGroups * kGroup;
  const int64_t i = first + of_row;
  typename EndSteps<T, kReluGrad>::Read read;
  const auto load_ahead = [&](int chunk) {
    const int64_t j = int64_t{chunk} * kDepth + column;
    if (kWhole && of_row < kHeadRows && i < rows && j < hidden) x.dh.load(i, j, read);
  };
  load_ahead(0);
  SINTER_NO_UNROLL
  for (int chunk = 0; chunk < chunks; ++chunk) {
    copy(chunk + 1, true);
    cp_async_wait<1>();
    block_sync();
    core.add(s.stages[chunk % 2]);
    block_sync();
  }

  typename Loss::Logits z;
  core.logits(z.v);
  loss(z, [&](int r, int c, T dz) { s.dz.put(r, c, dz); });

  const bool again = chunks > 2;
  if (again) copy(0, false);
  block_sync();
  SINTER_NO_UNROLL
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (again) {
      copy(chunk + 1, false);
      cp_async_wait<1>();
      block_sync();
    }
    if (chunk > 0) load_ahead(chunk);
    core.back(s.stages[chunk % 2], of_row, column, [&](V(&sums)[kGroup]) {
      const int64_t j = int64_t{chunk} * kDepth + column, left = hidden - j;
      if (i >= rows || left <= 0) return;
      if constexpr (kWhole) {
        x.dh(i, j, read, sums);
      } else {
        const int count = left < kGroup ? static_cast<int>(left) : kGroup;
        if (x.has_act) return x.dh(i, j, count, sums);
        x.dh.out[0].store(i, j, count, sums);
      }
    });
    block_sync();
  }
}

// A thread makes kC / 16 logits, each as four sums of every fourth k, which no addition holds up,
// then eight neighbours of dh, classes ascending.
template <int kC> struct FfmaHead {
  HeadShared<float, kC>& s;
  float z[kC / 16][kVec<float>] = {};

  SINTER_DEVICE_FN void add(const typename HeadShared<float, kC>::Stage& stage) {
    SINTER_NO_UNROLL
    for (int k = 0; k < kHeadDepth<float>; k += kVec<float>) {
      const auto h = stage.h.template load_vec<kVec<float>>(thread_x() / 16, k);
      SINTER_UNROLL
      for (int j = 0; j < kC / 16; ++j) {
        const auto w = stage.w.template load_vec<kVec<float>>(thread_x() % 16 + 16 * j, k);
        SINTER_UNROLL
        for (int e = 0; e < kVec<float>; ++e) z[j][e] = math::mul_add(h[e], w[e], z[j][e]);
      }
    }
  }
  SINTER_DEVICE_FN void logits(float (&out)[kC / 16]) const {
    SINTER_UNROLL
    for (int j = 0; j < kC / 16; ++j) out[j] = (z[j][0] + z[j][1]) + (z[j][2] + z[j][3]);
  }
  template <class F>
  SINTER_DEVICE_FN void back(
      const typename HeadShared<float, kC>::Stage& stage, int r, int column, const F& f) const {
    if (r >= kHeadRows) return;
    float sums[kGroup] = {};
    SINTER_NO_UNROLL
    for (int c = 0; c < kC; ++c) {
      const float dz = s.dz(r, c);
      SINTER_UNROLL
      for (int q = 0; q < kGroup; q += kVec<float>) {
        const auto w = stage.w.template load_vec<kVec<float>>(c, column + q);
        SINTER_UNROLL
        for (int e = 0; e < kVec<float>; ++e) sums[q + e] = math::mul_add(dz, w[e], sums[q + e]);
      }
    }
    f(sums);
  }
};

// Of a chunk, warp w has kColumns columns from w kColumns on, as many as an mma takes: of z a part
// of every sum, added in warp order, of dh its own columns.
template <class T, int kC> struct MmaHead {
  static constexpr int kColumns = kHeadDepth<T> / kHeadWarps;  // bf16 16, TF32 8
  MmaHeadShared<T, kC>& s;
  Vec<float, 4> z[kC / 8] = {};

  SINTER_DEVICE_FN void add(const typename HeadShared<T, kC>::Stage& stage) {
    const int k = warp() * kColumns;
    const auto h = fragments_of_rows<true, T>(stage.h, 0, k);
    SINTER_UNROLL
    for (int c = 0; c < kC; c += 16) {
      const auto w = fragments_of_rows<false, T>(stage.w, c, k);
      mma_of<T>(z[c / 8], h, Vec<uint32_t, 2>{{w.v[0], w.v[1]}});
      mma_of<T>(z[c / 8 + 1], h, Vec<uint32_t, 2>{{w.v[2], w.v[3]}});
    }
  }
  // A lane has columns 2t, 2t + 1 of rows g and g + 8 of each fragment: g = lane / 4, t = lane % 4.
  template <class Tile>
  static SINTER_DEVICE_FN void put(Tile& tile, int row, int column, const Vec<float, 4>& sums) {
    const int r = row + lane() / 4, c = column + lane() % 4 * 2;
    tile.store_vec(r, c, Vec<float, 2>{{sums.v[0], sums.v[1]}});
    tile.store_vec(r + 8, c, Vec<float, 2>{{sums.v[2], sums.v[3]}});
  }
  SINTER_DEVICE_FN void logits(float (&out)[kC / 16]) const {
    SINTER_UNROLL
    for (int c = 0; c < kC; c += 8) put(s.parts, warp() * kHeadRows, c, z[c / 8]);
    block_sync();
    SINTER_UNROLL
    for (int j = 0; j < kC / 16; ++j) {
      out[j] = 0;
      for (int w = 0; w < kHeadWarps; ++w)
        out[j] = out[j] + s.parts(w * kHeadRows + thread_x() / 16, thread_x() % 16 + 16 * j);
    }
  }
  template <class F>
  SINTER_DEVICE_FN void back(
      const typename HeadShared<T, kC>::Stage& stage, int r, int column, const F& f) const {
    const int mine = warp() * kColumns;
    Vec<float, 4> sums[kColumns / 8] = {};
    SINTER_UNROLL
    for (int c = 0; c < kC; c += kColumns) {
      const auto dz = fragments_of_rows<true, T>(s.dz, 0, c);
      if constexpr (std::is_same_v<T, bf16>) {
        mma_twice<T>(sums, dz, fragments_of_columns<T>(stage.w, c, mine));
      } else {
        const int k = c + lane() % 4, n = mine + lane() / 4;
        mma_of<T>(
            sums[0], dz, Vec<uint32_t, 2>{{to_tf32(stage.w(k, n)), to_tf32(stage.w(k + 4, n))}});
      }
    }
    SINTER_UNROLL
    for (int n = 0; n < kColumns / 8; ++n) put(s.sums, 0, mine + n * 8, sums[n]);
    block_sync();
    if (r >= kHeadRows) return;
    float v[kGroup];
    SINTER_UNROLL
    for (int q = 0; q < kGroup; q += 4) {
      const auto part = s.sums.template load_vec<4>(r, column + q);
      SINTER_UNROLL
      for (int e = 0; e < 4; ++e) v[q + e] = part[e];
    }
    f(v);
  }
};

template <int kC, bool kWhole>
SINTER_KERNEL_BOUNDS(kHeadThreads, 2)
classifier_head_ffma_16(HeadOperands<float> x) {
  auto& s = shared<HeadShared<float, kC>>();
  FfmaHead<kC> core{s};
  head_of_rows<kWhole, float, kC>(x, s, core);
}

template <class T, int kC, bool kWhole>
SINTER_KERNEL_BOUNDS(kHeadThreads, 2)
classifier_head_mma_16(HeadOperands<T> x) {
  auto& s = shared<MmaHeadShared<T, kC>>();
  MmaHead<T, kC> core{s};
  head_of_rows<kWhole, T, kC>(x, s, core);
}

void classifier_head(const Call& call) {
  const auto& [act, smoothing] = call.as<HeadAttrs>();
  const Tensor &h = call.in[0], &weight = call.in[1], &grad_output = call.in[3];
  if (h.size(0) == 0) return;
  const auto run = [&]<class T>(T) {
    const HeadOperands<T> x{product_side<T>(h, false), product_side<T>(weight, false),
        {weight, optional_input(call.in, 4), call.in[2], grad_output, smoothing, call.out[0],
            call.out[1]},
        {act_grad_program(Act::relu), call.in.subspan(std::min<size_t>(call.in.size(), 5)),
            call.out.subspan(2)},
        act != Act::none};
    const auto launch_for = [&]<int kC, bool kWhole> {
      const Grid grid{blocks_for(h.size(0), kHeadRows)};
      if (on_tensor_cores<T>())
        return launch<classifier_head_mma_16<T, kC, kWhole>>(
            grid, kHeadThreads, sizeof(MmaHeadShared<T, kC>), x);
      if constexpr (kHasFfma<T>)
        launch<classifier_head_ffma_16<kC, kWhole>>(
            grid, kHeadThreads, sizeof(HeadShared<float, kC>), x);
    };
    const bool few = weight.size(0) <= 16, whole = x.has_act && x.dh.all_whole() &&
                                                   lies<Layout::along_k>(x.h) &&
                                                   lies<Layout::along_k>(x.w);
    if (few && whole) return launch_for.template operator()<16, true>();
    if (few) return launch_for.template operator()<16, false>();
    if (whole) return launch_for.template operator()<64, true>();
    launch_for.template operator()<64, false>();
  };
  if (h.dtype() == DType::bf16) return run(bf16{});
  run(float{});
}

}  // namespace sinter::SINTER_KERNEL_NS
