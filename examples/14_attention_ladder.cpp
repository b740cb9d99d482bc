// 14_attention_ladder: causal attention from three naive kernels to the online softmax, in four
// rungs, and what each reads less than the one before. No GPU needed.
//
// The counters are those of 09_kernel_ladder. The kernels are in 14_attention_ladder.cu; read it
// next to this output.
#define SINTER_COUNT_ACCESSES
#include "examples/14_attention_ladder.cu"

#include "examples/kernel_ladder.h"

using namespace sinter;
using namespace sinter::on_simt_counted;

namespace {

constexpr int kHeads = 2, kS = 128, kRows = kHeads * kS, kNumbers = kRows * kDepth;
// Two products of kDepth for each row and each key up to it; the mask leaves no others.
constexpr double kFlops = kHeads * (kS * (kS + 1) / 2) * 2.0 * 2.0 * kDepth;

// Multiples of 1/8 up to 1, so that scores are exact; they do not repeat, else no later tile of
// keys would have a row's largest score. Those of q, then of k, then of v.
float value(uint32_t i) { return float(int((i * i + i) * 2654435761u >> 20) % 17 - 8) / 8; }

// The formula in plain loops of double.
std::vector<double> attention() {
  std::vector<double> o(kNumbers);
  for (int row = 0; row < kRows; ++row) {
    double total = 0;
    for (int key = row / kS * kS; key <= row; ++key) {
      double score = 0;
      for (int d = 0; d < kDepth; ++d)
        score += double(value(row * kDepth + d)) * value(kNumbers + key * kDepth + d);
      const double weight = std::exp(score / std::sqrt(double(kDepth)));
      total += weight;
      for (int d = 0; d < kDepth; ++d)
        o[row * kDepth + d] += weight * value(2 * kNumbers + key * kDepth + d);
    }
    for (int d = 0; d < kDepth; ++d) o[row * kDepth + d] /= total;
  }
  return o;
}

}  // namespace

int main() {
  // ---- 1. Scores are at most 2 or so, and v at most 1, so that f32 may be off by its rounding
  // alone: of each of kS terms of total and sum, and a few dozen more in exp, the scale and the
  // factors, half a unit of 2^-23 each.
  Ladder ladder{kFlops, attention(), (2 * kS + 64) * 0x1p-24};
  const auto input = [](int n) {
    return In<float>(
        on_device<float>(kNumbers, [n](int i) { return value(n * kNumbers + i); }), kNumbers);
  };
  const Attention x{input(0), input(1), input(2), Out<float>(ladder.result, kNumbers), kS,
      1 / std::sqrt(float(kDepth))};
  const InOut<float> scores(on_device<float>(kRows * kS, [](int) { return 0; }), kRows * kS);

  // ---- 2. Run each rung and print what it did.
  std::printf("o [%d, %d, %d] of q, k, v, causal: %.1f MFLOP, and the four are %d KB in f32\n\n",
      kHeads, kS, kDepth, kFlops / 1e6, 4 * kNumbers * 4 / 1024);
  ladder.head("scores in", "memory");
  const Rung three = ladder.step("1 three kernels", str(kRows * kS * 4 / 1024, " KB"), [&] {
    launch<scores_naive>(Grid{kS / 128, kRows}, 128, 0, x, scores);
    launch<softmax_naive>(Grid{kRows / kWarps}, kWarps * 32, 0, scores, kS);
    launch<weigh_naive>(Grid{kRows / kWarps}, kWarps * 32, 0, x, scores);
  });
  static_assert(kS <= kLongest);
  const Rung row = ladder.step("2 a row in one", "none",
      [&] { launch<attention_row>(Grid{kRows / kWarps}, kWarps * 32, sizeof(RowsOfScores), x); });
  const Rung keys = ladder.step("3 tiles of keys", "none", [&] {
    launch<attention_key_tiles>(Grid{kRows / kSharing}, kSharing * 32, sizeof(TilesOfKeys), x);
  });
  const Rung both = ladder.step("4 tiles of rows too", "none",
      [&] { launch<attention_both_tiles>(Grid{kRows / kTile}, 64, sizeof(TilesOfBoth), x); });
  std::printf("\nEvery result is that of plain loops in f64: %s\n", ladder.right ? "yes" : "NO");

  // ---- 3. How to read it.
  std::printf(R"(
1 -> 2  Scores no longer travel, and no work is done behind the diagonal: %.1fx fewer sectors. With
        twice as many keys scores take four times the memory: at 8192 keys 256 MB a head. But lanes
        read neighbouring keys, which are 128 bytes apart: 32 sectors for what would fit in 4.
2 -> 3  8 rows share what one fetched, and neighbours read neighbours: %.1fx fewer sectors. A row's
        scores are never all there at once: the online softmax corrects what it has when a larger
        score comes, and a row may be as long as it likes.
3 -> 4  32 rows share a tile of keys, and a thread's 4 x 4 scores share what it reads: %.1fx fewer
        sectors, %.1fx fewer shared accesses. %.3f FLOP per byte have become %.1f.
        The conflicts are k's, which is written transposed, as a is in 09.
)",
      times(three.request_sectors, row.request_sectors),
      times(row.request_sectors, keys.request_sectors),
      times(keys.request_sectors, both.request_sectors),
      times(keys.shared_accesses, both.shared_accesses), three.flops_per_byte, both.flops_per_byte);
  return ladder.right ? 0 : 1;
}
