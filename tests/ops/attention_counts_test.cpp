// What attention on tensor cores does in a block, counted by the emulator.
#define SINTER_COUNT_ACCESSES
#include <gtest/gtest.h>

#include "ops/attention/attention.cu"
#include "tests/ops/device_samples.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

// Of one launch of `kernel` for results like those of `op`.
simt::Counters counts_of(const OpDef& op, Kernel kernel, const Tensors& in, const Attrs& attrs) {
  Tensors out;
  for (const Tensor& meta : op.results(in, attrs))
    out.push_back(Tensor::empty(meta.shape(), meta.dtype(), kSimt));
  simt::take_counters();
  kernel({op, in, out, attrs});
  return simt::take_counters();
}

// Two tiles of rows and of keys: 4 pairs of tiles, causal 3. A product of a pair takes 64 x 64 x
// depth / (16 x 8 x 16) mma, or of 8 terms twice as many.
TEST(AttentionCountsSimt, BanksDoNotMeetAndCausalTilesAreLeftOut) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const test::Scoped tf32(allow_tf32, set_allow_tf32, true);
    for (const int64_t depth : {32, 64, 128}) {
      SCOPED_TRACE(str(name_of(dtype), ", depth ", depth));
      const int64_t of_tile = depth * (dtype == DType::bf16 ? 2 : 4);
      // Eight lanes copy two rows of 64 bytes, which meet, as eight rows must not for ldmatrix.
      const auto of_copies = [&](const simt::Counters& counts) {
        return dtype == DType::bf16 && depth == 32 ? counts.cp_async / 8 : 0;
      };
      Tensors in;
      for (uint64_t seed = 1; seed <= 4; ++seed)
        in.push_back(cast(sample_tensor({1, 1, 128, depth}, seed, -1, 1), dtype).to(kSimt));
      for (const bool causal : {false, true}) {
        const AttentionAttrs attrs{0.2, causal};
        const int64_t pairs = causal ? 3 : 4;
        const simt::Counters forward =
            counts_of(kAttentionOp, on_simt_counted::attention, {in[0], in[1], in[2]}, attrs);
        EXPECT_EQ(forward.bank_conflicts, of_copies(forward));
        EXPECT_EQ(forward.mma, pairs * 2 * of_tile);
        const Tensors o = apply(kAttentionOp, {in[0], in[1], in[2]}, attrs);
        const simt::Counters backward = counts_of(kAttentionBackwardOp,
            on_simt_counted::attention_backward, {in[3], in[0], in[1], in[2], o[0], o[1]}, attrs);
        EXPECT_EQ(backward.bank_conflicts, of_copies(backward));
        EXPECT_EQ(backward.mma, pairs * 7 * of_tile);
      }
    }
  }
}

}  // namespace
}  // namespace sinter
