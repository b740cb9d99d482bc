// The kernels of tutorial 14: causal attention o = softmax(q k^T scale) v four times, each rung
// with less to read than the one before. q, k, v and o are [heads, s, kDepth], row by row, and a
// row or a key is counted over all heads; row r reads the keys of its head up to r. s is a multiple
// of 128.
#include "core/device/launch.h"

namespace sinter::SINTER_KERNEL_NS {

inline constexpr int kDepth = 32;
struct Attention {
  In<float> q, k, v;
  Out<float> o;
  int s;
  float scale;
};

SINTER_DEVICE_FN float sum_of(float a, float b) { return a + b; }
// Over kLanes neighbouring lanes; all of them get it.
template <int kLanes = 32, class F> SINTER_DEVICE_FN float of_lanes(float x, const F& f) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x = f(x, shfl_xor(x, mask));
  return x;
}
SINTER_DEVICE_FN float score_of(const Attention& x, int64_t row, int64_t key) {
  float sum = 0;
  for (int d = 0; d < kDepth; ++d)
    sum = math::mul_add(x.q[row * kDepth + d], x.k[key * kDepth + d], sum);
  return sum * x.scale;
}

// Rung 1: the formula, a kernel for each of its three parts. They hand on a number for every row
// and key through memory, also where the mask has made it nothing: s x s of them a head.
// A thread a score.
SINTER_KERNEL scores_naive(Attention x, InOut<float> scores) {
  const int64_t row = block_y(), i = block_x() * threads_per_block() + thread_x(),
                key = row / x.s * x.s + i;
  const float score = score_of(x, row, key);
  scores.put(row * x.s + i, key <= row ? score : -INFINITY);
}
// A warp a row, three times over it: the largest, so that no exp overflows; the sum; the weights.
SINTER_KERNEL softmax_naive(InOut<float> scores, int s) {
  const int64_t at = (block_x() * warps_per_block() + warp()) * s;
  float most = -INFINITY, total = 0;
  for (int i = lane(); i < s; i += 32) most = larger(scores[at + i], most);
  most = of_lanes(most, larger);
  for (int i = lane(); i < s; i += 32) total += math::exp(scores[at + i] - most);
  total = of_lanes(total, sum_of);
  for (int i = lane(); i < s; i += 32) scores.put(at + i, math::exp(scores[at + i] - most) / total);
}
// A warp a row, a lane a column.
SINTER_KERNEL weigh_naive(Attention x, InOut<float> weights) {
  const int64_t row = block_x() * warps_per_block() + warp(), head = row / x.s * x.s;
  float sum = 0;
  for (int i = 0; i < x.s; ++i)
    sum = math::mul_add(weights[row * x.s + i], x.v[(head + i) * kDepth + lane()], sum);
  x.o.put(row * kDepth + lane(), sum);
}

// Rung 2: one kernel. A warp makes a row of scores, weighs with it, and is done with it: so the row
// stays in shared memory, and the loops end at the diagonal, where the mask begins. But a row has
// to fit, and every row still fetches all its keys and values for itself.
inline constexpr int kWarps = 4, kLongest = 1024;
using RowsOfScores = SharedTile<float, kWarps, kLongest>;
SINTER_KERNEL_BOUNDS(kWarps * 32) attention_row(Attention x) {
  auto& scores = shared<RowsOfScores>();
  const int64_t row = block_x() * kWarps + warp(), head = row / x.s * x.s;
  const int keys = int(row - head) + 1;
  float most = -INFINITY, total = 0, sum = 0;
  for (int i = lane(); i < keys; i += 32) {
    const float score = score_of(x, row, head + i);
    scores.put(warp(), i, score);
    most = larger(score, most);
  }
  most = of_lanes(most, larger);
  warp_sync();  // all lanes read what all wrote
  for (int i = 0; i < keys; ++i) {
    const float weight = math::exp(scores(warp(), i) - most);
    total += weight;
    sum = math::mul_add(weight, x.v[(head + i) * kDepth + lane()], sum);
  }
  x.o.put(row * kDepth + lane(), sum / total);
}

// Rung 3: the keys come in tiles of 32, and the 8 rows of a block share each tile. That needs a
// softmax that does not wait for the whole row, the online softmax: weights are relative to the
// largest score so far, and when a larger one comes, what was summed until then shrinks by
// exp(before - now). Of a row only three things are kept, most, total and sum, however many keys
// there are.
inline constexpr int kTile = 32, kSharing = 8;
using Tile = SharedTile<float, kTile, kDepth, 4>;  // 4 more keep the banks of its rows apart
struct TilesOfKeys {
  Tile k, v;  // k lies transposed: neighbouring lanes read neighbouring keys
};
// Neighbouring threads bring neighbouring 16 bytes: a sector is read once, and all of it used.
SINTER_DEVICE_FN void bring(const Attention& x, int64_t first, TilesOfKeys& to) {
  block_sync();  // nobody reads the tiles before
  for (int i = thread_x() * 4; i < kTile * kDepth; i += threads_per_block() * 4) {
    to.v.store_vec(i / kDepth, i % kDepth, x.v.load_vec<4>(first * kDepth + i));
    const Vec<float, 4> k = x.k.load_vec<4>(first * kDepth + i);
    for (int e = 0; e < 4; ++e) to.k.put(i % kDepth + e, i / kDepth, k[e]);
  }
  block_sync();
}
// A lane is a key of the tile, then a column.
SINTER_KERNEL_BOUNDS(kSharing * 32) attention_key_tiles(Attention x) {
  auto& tiles = shared<TilesOfKeys>();
  const int64_t first = block_x() * kSharing, row = first + warp();
  const float q = x.q[row * kDepth + lane()] * x.scale;
  float most = -INFINITY, total = 0, sum = 0;
  for (int64_t key = row / x.s * x.s; key < first + kSharing; key += kTile) {
    bring(x, key, tiles);
    float score = 0;
    for (int d = 0; d < kDepth; ++d) score = math::mul_add(shfl(q, d), tiles.k(d, lane()), score);
    if (key + lane() > row) score = -INFINITY;
    const float now = larger(of_lanes(score, larger), most), factor = math::exp(most - now),
                weight = math::exp(score - now);
    most = now;
    total = total * factor + of_lanes(weight, sum_of);
    sum = sum * factor;
    for (int j = 0; j < kTile; ++j) sum = math::mul_add(shfl(weight, j), tiles.v(j, lane()), sum);
  }
  x.o.put(row * kDepth + lane(), sum / total);
}

// Rung 4: 32 rows as well. A thread makes 4 x 4 scores and then 4 x 4 sums in registers: 8 reads of
// 16 bytes feed 64 multiply-adds. Four times as many rows share a tile of keys, so each key is
// fetched a quarter as often. So does ops/attention/attention.cu.
struct TilesOfBoth {
  TilesOfKeys keys;
  Tile q, weights;
};
// sums += a b, of a's rows from r and b's columns from c on.
SINTER_DEVICE_FN void multiply(const Tile& a, const Tile& b, int r, int c, float (&sums)[4][4]) {
  for (int d = 0; d < 32; d += 4) {
    Vec<float, 4> x[4], y[4];
    for (int i = 0; i < 4; ++i) {
      x[i] = a.load_vec<4>(r + i, d);
      y[i] = b.load_vec<4>(d + i, c);
    }
    for (int at = 0; at < 64; ++at) {
      const int e = at / 16, i = at / 4 % 4, j = at % 4;
      sums[i][j] = math::mul_add(x[i][e], y[e][j], sums[i][j]);
    }
  }
}
SINTER_KERNEL_BOUNDS(64) attention_both_tiles(Attention x) {
  auto& tiles = shared<TilesOfBoth>();
  const int r = thread_x() / 8 * 4, c = thread_x() % 8 * 4;  // 8 lanes share 4 rows
  const int64_t first = block_x() * kTile;
  float most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, total[4] = {}, sum[4][4] = {};
  for (int i = thread_x() * 4; i < kTile * kDepth; i += threads_per_block() * 4)
    tiles.q.store_vec(i / kDepth, i % kDepth, x.q.load_vec<4>(first * kDepth + i));
  for (int64_t key = first / x.s * x.s; key <= first; key += kTile) {
    bring(x, key, tiles.keys);
    float score[4][4] = {};
    multiply(tiles.q, tiles.keys.k, r, c, score);
    for (int i = 0; i < 4; ++i) {
      float now = most[i];
      for (int j = 0; j < 4; ++j) {
        score[i][j] = key + c + j <= first + r + i ? score[i][j] * x.scale : -INFINITY;
        now = larger(score[i][j], now);
      }
      now = of_lanes<8>(now, larger);
      const float factor = math::exp(most[i] - now);
      most[i] = now;
      total[i] = total[i] * factor;
      Vec<float, 4> weights;
      for (int j = 0; j < 4; ++j) {
        weights[j] = math::exp(score[i][j] - now);
        total[i] += weights[j];
        sum[i][j] = sum[i][j] * factor;
      }
      tiles.weights.store_vec(r + i, c, weights);
    }
    warp_sync();  // a row's weights are read by the lanes that wrote them
    multiply(tiles.weights, tiles.keys.v, r, c, sum);
  }
  for (int i = 0; i < 4; ++i) {
    const float n = of_lanes<8>(total[i], sum_of);
    x.o.store_vec((first + r + i) * kDepth + c,
        Vec<float, 4>{sum[i][0] / n, sum[i][1] / n, sum[i][2] / n, sum[i][3] / n});
  }
}

}  // namespace sinter::SINTER_KERNEL_NS
