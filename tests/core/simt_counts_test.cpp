// What kernels do to memory, counted exactly: the same kernels, compiled once more with counters.
#define SINTER_COUNT_ACCESSES
#include <gtest/gtest.h>

#include "tests/core/simt_buffer.h"
#include "tests/core/simt_kernels.h"

namespace sinter::on_simt_counted {
namespace {

using simt::Counters;
using simt::Schedule;

// f queues kernels; what they did under every schedule is the same.
template <class F> Counters counted(F&& f) {
  Counters first;
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    simt::take_counters();
    f();
    const Counters c = simt::take_counters();
    if (schedule.order == Schedule::Order::forward) first = c;
    EXPECT_EQ(std::memcmp(&c, &first, sizeof c), 0);
  }
  simt::set_schedule({});
  return first;
}

SINTER_KERNEL copy_strided(In<float> x, Out<float> y, int stride) {
  const int64_t i = block_x() * threads_per_block() + thread_x();
  y.put(i, x[i * stride]);
}
SINTER_KERNEL copy_vec(In<float> x, Out<float> y) {
  const int64_t i = (block_x() * threads_per_block() + thread_x()) * 4;
  y.store_vec(i, x.load_vec<4>(i));
}

template <bool kReadsEarly, bool kWritesEarly>
SINTER_KERNEL copy_waiting(In<float> x, Out<float> y) {
  float v = kReadsEarly ? x[thread_x()] : 0;
  if (kWritesEarly) y.put(thread_x(), v);
  wait_for_upstream();
  begin_dependents();
  if (!kReadsEarly) v = x[thread_x()];
  y.put(thread_x(), v);
}
SINTER_KERNEL begins_first(In<float>, Out<float>) {
  begin_dependents();
  wait_for_upstream();
}

// Whatever another kernel may have written: it could be the one before, which may still run.
TEST(SimtCountsTest, WhatBeginsEarlyTouchesNothingBeforeItHasWaited) {
  Buffer<float> x(32, [](int64_t i) { return i; }), y(32);
  const auto said = [&](auto&& launched) {
    launched();
    try {
      simt::synchronize();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      said([&] { launch_waiting<copy_waiting<false, false>>(Grid{}, 32, 0, x.in(), y.out()); }),
      "");
  EXPECT_EQ(y[31], 31);
  const auto has = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  has(said([&] { launch_waiting<copy_waiting<true, false>>(Grid{}, 32, 0, x.in(), y.out()); }),
      "reads device memory before wait_for_upstream()");
  has(said([&] { launch_waiting<copy_waiting<false, true>>(Grid{}, 32, 0, x.in(), y.out()); }),
      "writes device memory before wait_for_upstream()");
  has(said([&] { launch_waiting<begins_first>(Grid{}, 32, 0, x.in(), y.out()); }),
      "begin_dependents() before wait_for_upstream()");
  EXPECT_EQ(said([&] { launch<copy_waiting<true, true>>(Grid{}, 32, 0, x.in(), y.out()); }), "")
      << "it begins when the one before has ended";
}

TEST(SimtCountsTest, SectorsAndRequestsOfCopies) {
  Buffer<float> x(4096, [](int64_t i) { return i; }), y(1024);
  const auto strided = [&](int stride) {
    return counted([&] { launch<copy_strided>(Grid{4}, 64, 0, x.in(), y.out(), stride); });
  };
  // 8 warps of 32 floats: 4 sectors a request if they lie side by side, 32 if 32 bytes or more
  // apart.
  const Counters dense = strided(1);
  EXPECT_EQ(dense.blocks, 4);
  EXPECT_EQ(dense.threads, 256);
  EXPECT_EQ(dense.requests, 16);
  EXPECT_EQ(dense.request_sectors, 16 * 4);
  EXPECT_EQ(dense.bytes_read, 1024);
  EXPECT_EQ(dense.bytes_written, 1024);
  EXPECT_EQ(dense.sectors_read, 32);
  EXPECT_EQ(dense.sectors_written, 32);
  EXPECT_EQ(strided(2).request_sectors, 8 * 8 + 8 * 4);
  EXPECT_EQ(strided(8).request_sectors, 8 * 32 + 8 * 4);
  EXPECT_EQ(strided(16).sectors_read, 256);
  EXPECT_EQ(strided(16).bytes_read, 1024);
  const Counters same = strided(0);  // all lanes one element
  EXPECT_EQ(same.request_sectors, 8 + 8 * 4);
  EXPECT_EQ(same.sectors_read, 1);
  const Counters wide = counted([&] { launch<copy_vec>(Grid{4}, 64, 0, x.in(), y.out()); });
  EXPECT_EQ(wide.requests, 16);
  EXPECT_EQ(wide.request_sectors, 16 * 16);
  EXPECT_EQ(wide.sectors_read, 128);
}

// A column of a tile, written and read back; then 16 bytes a lane.
template <int kPad> SINTER_KERNEL columns(Out<float> y, bool wide) {
  auto& tile = shared<SharedTile<float, 32, 32, kPad>>();
  if (wide) {
    tile.store_vec(lane(), 0, Vec<float, 4>{1, 2, 3, 4});
    y.put(lane(), tile.template load_vec<4>(lane(), 0)[3]);
  } else {
    tile.put(lane(), 5, 1.0f);
    y.put(lane(), tile(lane(), 5));
  }
}

TEST(SimtCountsTest, PadsRemoveBankConflicts) {
  Buffer<float> y(32);
  const auto run = [&](auto pad, bool wide) {
    return counted([&] {
      launch<columns<decltype(pad)::value>>(
          Grid{1}, 32, sizeof(SharedTile<float, 32, 32, decltype(pad)::value>), y.out(), wide);
    });
  };
  const Counters unpadded = run(std::integral_constant<int, 0>(), false),
                 padded = run(std::integral_constant<int, 1>(), false);
  EXPECT_EQ(unpadded.shared_accesses, 2);
  EXPECT_EQ(unpadded.bank_conflicts, 2 * 31);
  EXPECT_EQ(padded.shared_accesses, 2);
  EXPECT_EQ(padded.bank_conflicts, 0);
  // 16 bytes a lane go by in four quarters of 8 lanes, each of 8 turns in the unpadded tile, of 1
  // in rows of 36 floats.
  EXPECT_EQ(run(std::integral_constant<int, 0>(), true).bank_conflicts, 2 * 4 * 7);
  EXPECT_EQ(run(std::integral_constant<int, 4>(), true).bank_conflicts, 0);
}

TEST(SimtCountsTest, TiledGemm) {
  constexpr int kM = 48, kN = 32, kK = 64, kBlocks = kM / kTile * kN / kTile, kSteps = kK / kTile,
                kWarps = 8;
  Buffer<float> a(kM * kK, [](int64_t i) { return i % 3; }),
      b(kK * kN, [](int64_t i) { return i % 5; }), c(kM * kN);
  const auto run = [&](auto pad) {
    constexpr int kPad = decltype(pad)::value;
    return counted([&] {
      launch<tiled_gemm<Mistake::none, kPad>>(Grid{kN / kTile, kM / kTile}, kTile * kTile,
          sizeof(GemmTiles<kPad>), a.in(), b.in(), c.out(), kN, kK);
    });
  };
  const Counters padded = run(std::integral_constant<int, 1>()),
                 unpadded = run(std::integral_constant<int, 0>());
  EXPECT_EQ(padded.barriers, kBlocks * kSteps * 2);
  EXPECT_EQ(padded.shuffles, 0);
  EXPECT_EQ(padded.bytes_read, kBlocks * kSteps * 2 * 256 * 4);
  EXPECT_EQ(padded.sectors_read, (kM * kK + kK * kN) * 4 / 32);  // each element once per kernel
  EXPECT_EQ(padded.sectors_written, kM * kN * 4 / 32);
  EXPECT_EQ(padded.requests, kBlocks * kWarps * (kSteps * 2 + 1));
  EXPECT_EQ(padded.request_sectors, padded.requests * 4);  // a warp is two rows of 16 floats
  EXPECT_EQ(padded.shared_accesses, kBlocks * kSteps * kWarps * (2 + 2 * kTile));
  // The transposed store: columns 2w, 2w + 1 of 16 rows. Rows of 16 floats: 2 rows apart is one
  // bank. Rows of 17: all banks but one differ.
  EXPECT_EQ(unpadded.bank_conflicts, kBlocks * kSteps * kWarps * 7);
  EXPECT_EQ(padded.bank_conflicts, kBlocks * kSteps * kWarps * (1 + 1));
  EXPECT_EQ(unpadded.request_sectors, padded.request_sectors);
}

TEST(SimtCountsTest, WarpWideInstructions) {
  Buffer<float> x(64 * 10, [](int64_t) { return 1; }), parts(10), y(1);
  Buffer<uint32_t> counter(1, [](int64_t) { return 0; });
  const Counters sum = counted([&] {
    launch<sum_by_ticket>(Grid{10}, 64, 128, x.in(), parts.in_out(), counter.in_out(), y.out());
  });
  EXPECT_EQ(sum.shuffles, 11 * 2 * 5);
  EXPECT_EQ(sum.barriers, 11 * 2 + 10);
  Buffer<bf16> a(256, [](int64_t i) { return bf16(float(i % 7)); });
  Buffer<float> c(256);
  const Counters mma =
      counted([&] { launch<mma_product>(Grid{1}, 32, sizeof(MmaTiles), a.in(), a.in(), c.out()); });
  EXPECT_EQ(mma.mma, 2);
  EXPECT_EQ(mma.ldmatrix, 2);
  EXPECT_EQ(mma.shuffles, 0);
  EXPECT_EQ(mma.barriers, 0);
  EXPECT_EQ(mma.shared_accesses, 4);
  EXPECT_EQ(mma.bank_conflicts, 2 * 4);  // rows of 12 words: the stores of 4 rows meet once in a
                                         // quarter, the loads of 8 half rows never
  Buffer<float> rows(256 * 7, [](int64_t) { return 1; }), out(256);
  const Counters staged = counted(
      [&] { launch<staged_sum<Mistake::none>>(Grid{1}, 64, 2048, rows.in(), out.out(), 7); });
  EXPECT_EQ(staged.cp_async, 8 * 64);
  EXPECT_EQ(staged.bytes_read, 7 * 1024);
  EXPECT_EQ(staged.barriers, 14);
}

}  // namespace
}  // namespace sinter::on_simt_counted
