// 09_kernel_ladder: one matrix product as five CUDA kernels, and what makes each faster than the
// one before. No GPU needed.
//
// The emulator runs a kernel's threads one by one and can count what they ask of the hardware. A
// GPU fetches memory in sectors of 32 bytes, for the 32 threads of a warp at a time: fewer sectors
// per request, and more arithmetic per byte, are what speed is made of. The kernels are in
// 09_kernel_ladder.cu; read it next to this output.
#define SINTER_COUNT_ACCESSES
#include "examples/09_kernel_ladder.cu"

#include "examples/kernel_ladder.h"

using namespace sinter;
using namespace sinter::on_simt_counted;

namespace {

constexpr int kM = 128, kN = 128, kK = 64;
constexpr double kFlops = 2.0 * kM * kN * kK;

}  // namespace

int main() {
  // ---- 1. Two matrices of small whole numbers: bf16 holds them too, and sums are exact, so every
  // kernel must give the same result.
  const auto value_a = [](int i) { return i * 7 % 11 - 5; };
  const auto value_b = [](int i) { return i * 5 % 13 - 6; };
  const In<float> a(on_device<float>(kM * kK, value_a), kM * kK),
      b(on_device<float>(kK * kN, value_b), kK * kN);
  const In<bf16> a16(on_device<bf16>(kM * kK, value_a), kM * kK),
      b16(on_device<bf16>(kK * kN, value_b), kK * kN);
  std::vector<double> want(kM * kN);
  for (int i = 0; i < kM * kN; ++i) {
    for (int j = 0; j < kK; ++j) want[i] += value_a(i / kN * kK + j) * value_b(j * kN + i % kN);
  }
  Ladder ladder{kFlops, want};
  const Out<float> out(ladder.result, kM * kN);

  // ---- 2. Run each kernel and print what it did. An instruction of a warp is its 32 threads' at
  // once.
  std::printf(
      "c [%d, %d] = a [%d, %d] b [%d, %d]: %.1f MFLOP, and the two matrices are %d KB in f32\n\n",
      kM, kN, kM, kK, kK, kN, kFlops / 1e6, (kM * kK + kK * kN) * 4 / 1024);
  ladder.head("", "arithmetic");
  const auto step = [&](const char* name, const auto& run, const auto& x, const auto& y) {
    return ladder.step(name, "", [&] { run(x, y, out, kM, kN, kK); });
  };
  const Rung naive = step("1 naive", run_naive, a, b);
  const Rung coalesced = step("2 coalesced", run_coalesced, a, b);
  const Rung tiles = step("3 shared tiles", run_shared_tiles, a, b);
  const Rung registers = step("4 register tiles", run_register_tiles, a, b);
  const Rung padded = step("4 with padded rows", run_padded_tiles, a, b);
  const Rung tensor = step("5 tensor cores, bf16", run_mma, a16, b16);
  std::printf(
      "\nThe least that a request can do with: 4 sectors for 4 bytes a thread, 16 for 16 bytes a\n"
      "thread, 1 if all threads read one value.\n");
  std::printf("Every result equals a plain loop's: %s\n", ladder.right ? "yes" : "NO");

  // ---- 3. How to read it.
  std::printf(R"(
1 -> 2  The same reads, dealt out differently: a row's neighbours share a sector, a column's do not.
        Sectors per request fall from %.1f to %.1f, traffic to 1/%.1f, by swapping two indices.
2 -> 3  What a block needs twice it keeps in shared memory, 16 times: %.1fx fewer requests to device
        memory. The price: two barriers per tile, and two shared reads for each multiply-add (%ld
        accesses for %ld fma).
3 -> 4  What a thread needs twice it keeps in registers, 8 times: %.1fx fewer shared accesses, and
        the larger tile turns %.1f FLOP per byte into %.1f. But a is stored transposed, and rows of
        64 floats all begin in the same one of 32 banks.
4 pad   Four unused floats per row shift the rows against each other: %.1fx fewer conflicts, for 256
        bytes. Nothing else moves.
4 -> 5  An mma is %d multiply-adds in one instruction of a warp, an fma is 32: %ld of one kind
        instead of %ld of the other. bf16 halves the bytes: %.1f FLOP per byte. cp_async has the
        next tile under way meanwhile, which no counter shows.
)",
      naive.sectors_per_request, coalesced.sectors_per_request,
      times(naive.request_sectors, coalesced.request_sectors),
      times(coalesced.requests, tiles.requests), long(tiles.shared_accesses),
      long(kM) * kN * kK / 32, times(tiles.shared_accesses, padded.shared_accesses),
      tiles.flops_per_byte, registers.flops_per_byte,
      times(registers.bank_conflicts, padded.bank_conflicts), 16 * 8 * 16, long(tensor.mma),
      long(kM) * kN * kK / 32, tensor.flops_per_byte);
  return ladder.right ? 0 : 1;
}
