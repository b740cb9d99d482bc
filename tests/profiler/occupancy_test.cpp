// Occupancy against arithmetic by hand, and, where the toolkit is, against the calculator that it
// has as source.
#include "profiler/occupancy.h"

#include <gtest/gtest.h>

#include "core/error.h"

#if __has_include(<cuda_occupancy.h>)
#include <cuda_occupancy.h>
#endif

namespace sinter::profiler {
namespace {

Footprint footprint(int grid, int threads, int registers, int static_shared, int dynamic_shared) {
  return {.grid = {grid, 1, 1},
      .block = {threads, 1, 1},
      .registers = registers,
      .static_shared = static_shared,
      .dynamic_shared = dynamic_shared};
}

struct ByHand {
  const char* kernel;
  Footprint launch;
  Card card;
  int blocks;
  double percent;
  const char* limit;
  double waves, tail;
};

// A multiprocessor of 8.0 and 9.0 has room for 64 warps, 32 blocks, 4 x 16,384 registers; and for
// 164 KiB of shared memory (167,936 bytes), 9.0 for 228 KiB (233,472). One of 8.6 and 8.9 has room
// for 48 warps, 16 and 24 blocks, and 100 KiB.
const ByHand kByHand[] = {
    // FlashAttention on an A100, of which the third post says 13 %. A warp takes 255 x 32 = 8,160
    // registers, in units of 256: 8,192. A quarter holds 2, all hold 8 warps: 2 blocks of 4 warps.
    // 8 of 64 warps. A wave is 2 x 108 = 216 blocks; 1,080 are 5 waves.
    {"pytorch_flash", footprint(1080, 128, 255, 0, 0), {80, 108}, 2, 12.5, "registers", 5, 1},
    // cuDNN's attention on it, 12.5 % in the same post. 240 x 32 = 7,680 = 30 x 256 registers, a
    // quarter holds 2: 8 warps, which are one block. A wave is 108 blocks: 512 = 4 x 108 + 80.
    {"cudnn_generated_sdpa", footprint(512, 256, 240, 0, 0), {80, 108}, 1, 12.5, "registers",
        512 / 108.0, 80 / 108.0},
    // 32 registers x 32 = 1,024 a warp, a quarter holds 16: 64 warps, 16 blocks of 4; so many has
    // the multiprocessor room for. A wave is 16 x 108 = 1,728 blocks: 6,144 = 3 x 1,728 + 960.
    {"vectorized_elementwise", footprint(6144, 128, 32, 0, 0), {80, 108}, 16, 100,
        "threads, registers", 6144 / 1728.0, 960 / 1728.0},
    // Blocks of one warp: 32 of them, 32 of 64 warps. A wave is 32 x 132 = 4,224.
    {"one warp", footprint(66, 32, 16, 0, 0), {90, 132}, 32, 50, "blocks", 1 / 64.0, 1 / 64.0},
    // 98,304 + 1,024 = 99,328 bytes (776 x 128): 2 fit in 233,472. 128 x 32 = 4,096 registers, 4
    // warps a quarter, 16 in all, which are 2 blocks of 8. 16 of 64 warps. A wave is 264.
    {"gemm_128x128", footprint(288, 256, 128, 0, 96 << 10), {90, 132}, 2, 25,
        "registers, shared memory", 288 / 264.0, 24 / 264.0},
    // The system's 1 KiB: 512 + 4,096 + 1,024 = 5,632 bytes, 29 in 167,936; without it 36 would
    // fit. 29 blocks of 2 warps are 58 of 64.
    {"small and shared", footprint(3132, 64, 32, 512, 4096), {80, 108}, 29, 90.625, "shared memory",
        1, 1},
    // 9,473 + 1,024 = 10,497 bytes, in units of 128: 10,624, of which 15 fit; 16 of 10,496 would.
    {"a byte too many", footprint(15 * 54, 64, 32, 0, 9473), {80, 108}, 15, 46.875, "shared memory",
        0.5, 0.5},
    // 33 x 32 = 1,056 registers, in units of 256: 1,280, 12 warps a quarter, 48 in all: 6 blocks of
    // 8. By the registers alone 65,536 / (33 x 256) would be 7.
    {"a register too many", footprint(792, 256, 33, 0, 0), {90, 132}, 6, 75, "registers", 1, 1},
    // 144 x 32 = 4,608 registers: a quarter holds 3 warps, all 12, which are 6 blocks of 2. If a
    // warp could lie across quarters, 14 would fit.
    {"quarters", footprint(1584, 64, 144, 0, 0), {90, 132}, 6, 18.75, "registers", 2, 1},
    // 40 threads are 2 warps. 16 blocks are let in: 32 of 48 warps. A wave is 16 x 82 = 1,312.
    {"half a warp", footprint(656, 40, 16, 0, 0), {86, 82}, 16, 200 / 3.0, "blocks", 0.5, 0.5},
    // 32 of 48 warps are one block, a second has no room. 32 x 32 registers: 64 warps.
    {"1024 threads", footprint(128, 1024, 32, 0, 0), {89, 128}, 1, 200 / 3.0, "threads", 1, 1},
};

TEST(Occupancy, IsWhatArithmeticByHandGives) {
  for (const ByHand& k : kByHand) {
    const auto found = occupancy(k.launch, k.card);
    ASSERT_TRUE(found) << k.kernel;
    EXPECT_EQ(found->blocks, k.blocks) << k.kernel;
    EXPECT_DOUBLE_EQ(100 * found->share, k.percent) << k.kernel;
    EXPECT_EQ(found->limit, k.limit) << k.kernel;
    EXPECT_NEAR(found->waves, k.waves, 1e-12) << k.kernel;
    EXPECT_NEAR(found->tail, k.tail, 1e-12) << k.kernel;
  }
}

// Kineto's estimate knows of the grid: 66 blocks of a warp on 132 multiprocessors are half a block
// on each, 16 of 2,048 threads. Of a grid that fills them it is the occupancy.
TEST(Occupancy, AGridThatIsTooSmallFillsLess) {
  EXPECT_DOUBLE_EQ(occupancy(footprint(66, 32, 16, 0, 0), {90, 132})->filled, 16 / 2048.0);
  EXPECT_DOUBLE_EQ(occupancy(footprint(9999, 128, 255, 0, 0), {80, 108})->filled, 0.125);
}

TEST(Occupancy, IsNotSaidWhereAnInputIsNotKnown) {
  const Footprint whole = footprint(108, 128, 32, 0, 0);
  const Card card{80, 108};
  EXPECT_TRUE(occupancy(whole, card));
  EXPECT_FALSE(occupancy({}, card));
  EXPECT_FALSE(occupancy(whole, {}));
  EXPECT_FALSE(occupancy(whole, {80, 0}));
  EXPECT_FALSE(occupancy(whole, {99, 108})) << "nobody knows that card";
  for (auto part : {&Footprint::registers, &Footprint::static_shared, &Footprint::dynamic_shared}) {
    Footprint lacking = whole;
    (lacking.*part).reset();
    EXPECT_FALSE(occupancy(lacking, card));
  }
  EXPECT_FALSE(occupancy(footprint(1, 1024, 255, 0, 0), card)) << "no block fits";
}

#if __has_include(<cuda_occupancy.h>)
TEST(Occupancy, AgreesWithTheToolkitsCalculator) {
  struct Kind {
    int capability, threads, shared, most_of_block;
  };
  const Kind kinds[] = {{80, 2048, 164, 163}, {86, 1536, 100, 99}, {89, 1536, 100, 99},
      {90, 2048, 228, 227}, {100, 2048, 228, 227}, {120, 1536, 100, 99}};
  int64_t compared = 0;
  for (const Kind& kind : kinds) {
    cudaOccDeviceProp card;
    card.computeMajor = kind.capability / 10;
    card.computeMinor = kind.capability % 10;
    card.maxThreadsPerBlock = 1024;
    card.maxThreadsPerMultiprocessor = kind.threads;
    card.regsPerBlock = card.regsPerMultiprocessor = 65536;
    card.warpSize = 32;
    card.sharedMemPerBlock = 48 << 10;
    card.sharedMemPerMultiprocessor = size_t(kind.shared) << 10;
    card.numSms = 100;
    card.sharedMemPerBlockOptin = size_t(kind.most_of_block) << 10;
    card.reservedSharedMemPerBlock = 1024;
    for (int threads = 1; threads <= 1024; threads += threads % 32 == 0 ? 1 : 31) {
      for (int registers = 1; registers <= 255; registers += 3) {
        for (int shared = 0; shared <= kind.most_of_block << 10; shared += 7919) {
          cudaOccFuncAttributes kernel;
          kernel.maxThreadsPerBlock = 1024;
          kernel.numRegs = registers;
          kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
          kernel.maxDynamicSharedSizeBytes = size_t(shared);
          kernel.numBlockBarriers = 1;
          const cudaOccDeviceState state;
          cudaOccResult result;
          ASSERT_EQ(cudaOccMaxActiveBlocksPerMultiprocessor(
                        &result, &card, &kernel, &state, threads, size_t(shared)),
              CUDA_OCC_SUCCESS);
          const auto ours =
              occupancy(footprint(1, threads, registers, 0, shared), {kind.capability, 100});
          ASSERT_EQ(ours ? ours->blocks : 0, result.activeBlocksPerMultiprocessor)
              << kind.capability << ": " << threads << " threads, " << registers << " registers, "
              << shared << " bytes";
          if (!ours) continue;
          const std::pair<unsigned, std::string> limits[] = {{OCC_LIMIT_WARPS, "threads"},
              {OCC_LIMIT_BLOCKS, "blocks"}, {OCC_LIMIT_REGISTERS, "registers"},
              {OCC_LIMIT_SHARED_MEMORY, "shared memory"}};
          std::string said;
          for (const auto& [bit, name] : limits) {
            if (result.limitingFactors & bit) said += (said.empty() ? "" : ", ") + name;
          }
          ASSERT_EQ(ours->limit, said);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 100'000);
}
#endif

}  // namespace
}  // namespace sinter::profiler
