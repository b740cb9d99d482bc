#include "core/device/simt.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/parallel.h"
#include "core/tensor.h"
#include "tests/closeness.h"
#include "tests/core/simt_buffer.h"
#include "tests/core/simt_kernels.h"
#include "tests/test_util.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sinter::on_simt {
namespace {

using simt::Schedule;

class SimtTest : public testing::Test {
 protected:
  void TearDown() override {
    try {
      simt::synchronize();
    } catch (const Error&) {}
    simt::set_schedule({});
  }
};

// The message of what the queued kernels throw; "" if nothing.
std::string failure() { return test::message_of(simt::synchronize); }

// The parts in this order.
void expect_parts(const std::string& text, std::initializer_list<std::string> parts,
    const std::source_location& where = std::source_location::current()) {
  size_t at = 0;
  for (const std::string& part : parts) {
    const size_t found = text.find(part, at);
    if (found == std::string::npos)
      ADD_FAILURE_AT(where.file_name(), int(where.line())) << "lacks: " << part << "\nin: " << text;
    at = found == std::string::npos ? at : found + part.size();
  }
}

// ---- Indices, barriers, warps
// -------------------------------------------------------------------------------------------------------

SINTER_KERNEL write_indices(Out<int> y) {
  const int64_t block = block_x() + grid_x() * (block_y() + grid_y() * block_z()),
                at = (block * threads_per_block() + thread_x()) * 4;
  y.put(at, thread_x());
  y.put(at + 1, warp() * 100 + lane());
  y.put(at + 2, int(block_x() + 10 * block_y() + 100 * block_z()));
  y.put(at + 3, int(warps_per_block() + 10 * (grid_x() + 10 * (grid_y() + 10 * grid_z()))));
}

TEST_F(SimtTest, Indices) {
  constexpr int kThreads = 70;
  Buffer<int> y(24 * kThreads * 4);
  launch<write_indices>(Grid{2, 3, 4}, kThreads, 0, y.out());
  simt::synchronize();
  for (int b = 0; b < 24; ++b) {
    for (int t = 0; t < kThreads; ++t) {
      const int at = (b * kThreads + t) * 4;
      ASSERT_EQ(y[at], t);
      ASSERT_EQ(y[at + 1], t / 32 * 100 + t % 32);
      ASSERT_EQ(y[at + 2], b % 2 + 10 * (b / 2 % 3) + 100 * (b / 6));
      ASSERT_EQ(y[at + 3], 3 + 10 * (2 + 10 * (3 + 10 * 4)));
    }
  }
}

// y[i]: what lane i got. Lanes from `left` on leave first; operation by number.
SINTER_KERNEL warp_operation(Out<int> y, int operation, int left, int argument) {
  if (lane() >= left) return;
  const int v = 100 + lane();
  int got = 0;
  switch (operation) {
    case 0: got = shfl(v, argument); break;
    default: got = shfl_xor(v, argument);
  }
  y.put(thread_x(), got);
}

TEST_F(SimtTest, ShufflesOfFullWarps) {
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    Buffer<int> any(64), turned(64);
    launch<warp_operation>(Grid{1}, 64, 0, any.out(), 0, 32, 35);
    launch<warp_operation>(Grid{1}, 64, 0, turned.out(), 1, 32, 5);
    simt::synchronize();
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32;
      ASSERT_EQ(any[t], 103);
      ASSERT_EQ(turned[t], 100 + (lane ^ 5));
    }
  }
}

TEST_F(SimtTest, ExitedLanesTakeNoPart) {
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    Buffer<int> y(32);
    launch<warp_operation>(Grid{1}, 32, 0, y.out(), 1, 16, 1);
    simt::synchronize();
    for (int l = 0; l < 16; ++l) ASSERT_EQ(y[l], 100 + (l ^ 1));
    launch<warp_operation>(Grid{1}, 32, 0, y.out(), 1, 15, 1);
    expect_parts(failure(), {"thread 14: lane 15, which has left the kernel", "simt_test.cpp:"});
    launch<warp_operation>(Grid{1}, 20, 0, y.out(), 0, 32, 20);
    expect_parts(failure(), {", which has left the kernel or never was, is needed at "});
  }
}

// Warps add in turn, so that every barrier counts; threads from `left` on leave after a few.
SINTER_KERNEL add_in_turn(InOut<float> y, int rounds, int left) {
  auto& s = shared<Shared<float, 1>>();
  if (thread_x() == 0) s.put(0, 0.0f);
  block_sync();
  for (int r = 0; r < rounds; ++r) {
    if (r == 3 && thread_x() >= left) return;
    if (thread_x() == r % left) s.put(0, s[0] * 1.25f + float(thread_x()));
    block_sync();
  }
  y.put(block_x() * left + thread_x(), s[0]);
}

TEST_F(SimtTest, BarriersOrderTheBlockAndForgetWhoLeft) {
  float want = 0;
  for (int r = 0; r < 200; ++r) want = want * 1.25f + float(r % 33);
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    Buffer<float> y(33 * 9);
    launch<add_in_turn>(Grid{9}, 128, sizeof(float) * 4, y.in_out(), 200, 33);
    simt::synchronize();
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], want);
  }
}

// ---- What cannot work
// ---------------------------------------------------------------------------------------------------------------

SINTER_KERNEL mixed_up(Out<float> y, int how) {
  if (how == 0) {
    if (thread_x() < 40) {
      block_sync();
    } else {
      static_cast<void>(shfl_xor(1.0f, 1));
    }
  }
  if (how == 1) {
    if (lane() < 4)
      shfl(1, 0);
    else
      shfl_xor(1, 1);
  }
  if (how == 2) {
    if (thread_x() < 32)
      block_sync();
    else
      block_sync();
  }
  if (how == 3) {
    if (lane() < 4) return;
    block_sync();
    if (lane() == 5) shfl(1, 6);
    block_sync();
  }
  y.put(0, 1.0f);
}

TEST_F(SimtTest, DeadlockSaysWhoWaitsWhere) {
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    Buffer<float> y(1);
    launch<mixed_up>(Grid{2}, 64, 0, y.out(), 0);
    expect_parts(failure(),
        {"simt: mixed_up, block (", ", 0, 0): deadlock: thread 0..39 wait at block_sync (",
            "simt_test.cpp:", "), 40..63 at shfl_xor ("});
    launch<mixed_up>(Grid{1}, 64, 0, y.out(), 3);
    expect_parts(failure(), {"thread 4,6..31,36,38..63 wait at block_sync", ", 5,37 at shfl (",
                                "; 8 have left the kernel"});
  }
}

TEST_F(SimtTest, MismatchedOperationsAreErrors) {
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    Buffer<float> y(1);
    launch<mixed_up>(Grid{1}, 32, 0, y.out(), 1);
    expect_parts(failure(), {": is at shfl", "while others of its warp wait at shfl"});
    launch<mixed_up>(Grid{1}, 64, 0, y.out(), 2);
    expect_parts(failure(), {": is at block_sync", "while others of its block wait at block_sync"});
  }
}

SINTER_KERNEL copy_shifted(
    In<float> x, Out<float> y, int64_t read_shift, int64_t write_shift, bool wide) {
  const int64_t i = block_x() * threads_per_block() + thread_x();
  if (wide) {
    y.store_vec(i * 4 + write_shift, x.load_vec<4>(i * 4 + read_shift));
  } else {
    y.put(i + write_shift, x[i + read_shift]);
  }
}

TEST_F(SimtTest, OutOfBoundsNamesElementBlockAndThread) {
  Buffer<float> x(128, [](int64_t i) { return i; }), y(128), none(0);
  const auto run = [&](int64_t read, int64_t write, bool wide) {
    launch<copy_shifted>(Grid{wide ? 1 : 4}, 32, 0, x.in(), y.out(), read, write, wide);
    return failure();
  };
  EXPECT_EQ(run(0, 0, false), "");
  EXPECT_EQ(run(1, 0, false),
      "simt: copy_shifted, block (3, 0, 0), thread 31: read out of bounds: element 128 of 128; "
      "allowed 0..127");
  EXPECT_EQ(run(0, -1, false),
      "simt: copy_shifted, block (0, 0, 0), thread 0: write out of bounds: element -1 of 128; "
      "allowed 0..127");
  EXPECT_EQ(run(0, 4, true),
      "simt: copy_shifted, block (0, 0, 0), thread 31: write out of bounds: element 131 of 128; "
      "allowed 0..127");
  expect_parts(run(2, 0, true),
      {"thread 0: read not aligned: element 2; a vector access needs a multiple of 16 bytes"});
  launch<copy_shifted>(Grid{1}, 1, 0, none.in(), y.out(), 0, 0, false);
  expect_parts(failure(), {"read out of bounds: element 0 of 0; the operand is empty or absent"});
}

SINTER_KERNEL shared_access(Out<float> y, int how) {
  struct S {
    SharedTile<float, 4, 8> tile;
    Shared<float, 8> line;
  };
  S& s = shared<S>();
  s.tile.put(3, 7, 1.0f);
  s.line.put(7, 2.0f);
  switch (how) {
    case 0: y.put(0, s.tile(3, 7) + s.line[7]); break;
    case 1: y.put(0, s.tile(3, 6)); break;
    case 2: y.put(0, s.line[2]); break;
    case 3: y.put(0, s.tile.load_vec<4>(3, 4)[0]); break;
    case 4: y.put(0, s.tile(4, 0)); break;
    case 5: s.tile.put(0, 8, 1.0f); break;
    case 6: s.line.put(8, 1.0f); break;
    case 7: y.put(0, s.tile.load_vec<4>(3, 2)[0]); break;
    case 8: y.put(0, shared<Shared<float, 100000>>()[0]); break;
    default: y.put(0, s.tile.load_vec<4>(0, 6)[0]);
  }
}

TEST_F(SimtTest, SharedMemoryIsPoisonedAndBounded) {
  Buffer<float> y(1);
  const auto run = [&](int how) {
    launch<shared_access>(Grid{1}, 1, 160, y.out(), how);
    return failure();
  };
  for (int again = 0; again < 2; ++again) {  // what an earlier block wrote is gone
    EXPECT_EQ(run(0), "");
    EXPECT_EQ(y[0], 3.0f);
    expect_parts(run(1),
        {"read of shared memory that was never written: element 30\n    hint: a missing barrier"});
    expect_parts(run(2), {"read of shared memory that was never written: element 2"});
    expect_parts(run(3), {"read of shared memory that was never written: element 28"});
    expect_parts(run(4), {"shared tile row out of bounds: element 4 of 4; allowed 0..3"});
    expect_parts(run(5), {"shared tile column out of bounds: element 8 of 8; allowed 0..7"});
    expect_parts(run(6), {"shared memory write out of bounds: element 8 of 8; allowed 0..7"});
    expect_parts(run(7), {"shared tile not aligned: element 26"});
    expect_parts(run(8), {"shared() too large: 400000 bytes; launched with 160"});
    expect_parts(run(9), {"shared tile column out of bounds: element 9 of 8"});
  }
}

TEST_F(SimtTest, DeviceMemoryIsPoisoned) {
  Buffer<float> x(128), y(128);
  for (int i = 0; i < 128; ++i) {
    if (i != 70) x[i] = std::numeric_limits<float>::quiet_NaN();  // any other NaN is a value
  }
  launch<copy_shifted>(Grid{2}, 32, 0, x.in(), y.out(), int64_t{0}, int64_t{0}, false);
  EXPECT_EQ(failure(), "");
  launch<copy_shifted>(Grid{4}, 32, 0, x.in(), y.out(), int64_t{0}, int64_t{0}, false);
  expect_parts(failure(),
      {"block (2, 0, 0), thread 6: read of device memory that was never written: element 70"});
  launch<copy_shifted>(Grid{1}, 32, 0, x.in(), y.out(), int64_t{0}, int64_t{0}, true);
  expect_parts(failure(), {"thread 17: read of device memory that was never written: element 70"});
}

template <class T> SINTER_KERNEL copy_by_shared(In<T> x, Out<T> y, In<T> more) {
  auto& s = shared<SharedTile<T, 1, 64>>();
  const int i = thread_x();
  if (i < 16) s.put(0, i, x[i]);
  if (i == 16) s.template store_vec<kVec<T>>(0, 16, x.template load_vec<kVec<T>>(16));
  if (i == 0) cp_async16(s, 0, 32, x, 32, true);
  cp_async_commit();
  cp_async_wait<0>();
  block_sync();
  if (i < 17) y.put(i, s(0, i));
  if (i == 17) y.put(i, s(0, 32));
  if (i == 18) y.put(i, more[0]);
}

// PyTorch's vectorised cast to bf16 makes every NaN 0xffff.
TEST_F(SimtTest, ANanOfAllBitsIsAValueWhereItWasWritten) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    visit_float(dtype, [&]<class T>(T) {
      SCOPED_TRACE(name_of(dtype));
      T nan;
      std::memset(static_cast<void*>(&nan), 0xff, sizeof nan);
      const Device device{Device::Type::simt, 0};
      const std::vector<T> all(64, nan);
      const Tensor host = Tensor::from(all, {64}),
                   turned = Tensor::view_of(host.storage(), dtype, {8, 8}, {1, 8}, 0);
      for (const Tensor& t :
          {host.to(device), turned.to(device), Tensor::from(all, {64}, device)}) {
        Buffer<T> y(19);
        launch<copy_by_shared<T>>(
            Grid{1}, 32, 1024, In<T>(t.data<T>(), 64), y.out(), In<T>(t.data<T>(), 64));
        EXPECT_EQ(failure(), "");
        for (int i = 0; i < 19; ++i) EXPECT_TRUE(y[i] != y[i]) << i;
        Buffer<T> unwritten(1);
        launch<copy_by_shared<T>>(
            Grid{1}, 32, 1024, In<T>(t.data<T>(), 64), y.out(), unwritten.in());
        expect_parts(failure(), {"read of device memory that was never written: element 0"});
      }
    });
  }
}

SINTER_KERNEL bad_data(In<int> labels, uint32_t* flag, Fault kind) {
  const int64_t i = block_x() * threads_per_block() + thread_x();
  const int label = labels[i];
  block_sync();
  if (label < 0 || label >= 10) fault(flag, kind, i, label, 10);
  block_sync();
}

TEST_F(SimtTest, FaultsAreDataErrors) {
  Buffer<int> labels(64, [](int64_t i) { return i == 37 ? 12 : i % 10; });
  for (const Fault kind : {Fault::label_out_of_range, Fault::index_out_of_range}) {
    launch<bad_data>(Grid{2}, 32, 0, labels.in(), fault_flag(), kind);
    EXPECT_EQ(test::message_of(simt::synchronize, Error::Kind::data),
        str("simt: bad_data, block (1, 0, 0), thread 5: ",
            kind == Fault::label_out_of_range
                ? "label out of range: 12 in row 37; 10 classes are 0..9"
                : "index out of range: 12 at item 37; 10 rows are 0..9"));
  }
}

std::atomic<int> frames{0};  // of threads between start and end
struct Frame {
  Frame() { ++frames; }
  ~Frame() { --frames; }
};

// Every other block fails, at a place where some threads of it wait, some are ready, some have not
// begun and some have left.
SINTER_KERNEL fails_midway(In<float> x, Out<float> y, int bad_thread) {
  const Frame frame;
  if (thread_x() >= 100) return;
  warp_sync();
  block_sync();
  if (block_x() % 2 == 1 && thread_x() == bad_thread) y.put(-1 - block_x(), 0.0f);
  block_sync();
  y.put(block_x() * 100 + thread_x(), x[thread_x()]);
}

TEST_F(SimtTest, AfterAnErrorTheEmulatorIsAsNew) {
  Buffer<float> x(100, [](int64_t i) { return i; }), y(800);
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    for (const int bad : {0, 31, 32, 50, 99}) {
      for (int again = 0; again < 3; ++again) {
        launch<fails_midway>(Grid{8}, 128, 0, x.in(), y.out(), bad);
        launch<fails_midway>(Grid{8}, 128, 0, x.in(), y.out(), 1000);  // dropped
        const std::string message = failure();
        if (schedule.order != Schedule::Order::shuffled) {
          const int first = schedule.order == Schedule::Order::reversed ? 7 : 1;
          EXPECT_EQ(message,
              str("simt: fails_midway, block (", first, ", 0, 0), thread ", bad,
                  ": write out of bounds: element ", -1 - first, " of 800; allowed 0..799"));
        } else {
          expect_parts(message, {str("thread ", bad, ": write out of bounds")});
        }
        EXPECT_EQ(failure(), "");
        EXPECT_EQ(frames, 0);
      }
      launch<fails_midway>(Grid{8}, 128, 0, x.in(), y.out(), 1000);
      EXPECT_EQ(failure(), "");
      for (int i = 0; i < 800; ++i) ASSERT_EQ(y[i], float(i % 100));
    }
  }
}

std::atomic<bool> begun[2];

// Two blocks that run side by side, if two workers can be had, and fail; block `late` last.
SINTER_KERNEL both_fail(Out<float> y, int late) {
  if (thread_x() > 0) return;
  begun[block_x()] = true;
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  for (int i = 0; i < 100 && !begun[1 - block_x()]; ++i) wait();
  for (int i = 0; i < 5 && block_x() == late; ++i) wait();
  y.put(-1 - block_x(), 0.0f);
}

TEST_F(SimtTest, OfSeveralFailuresTheFirstBlocksIsThrown) {
  const test::Scoped threads(num_threads, set_num_threads, 2);
  Buffer<float> y(1);
  for (const int late : {0, 1}) {
    begun[0] = begun[1] = false;
    launch<both_fail>(Grid{2}, 256, 0, y.out(), late);
    EXPECT_EQ(failure(),
        "simt: both_fail, block (0, 0, 0), thread 0: write out of bounds: element -1 of 1; allowed "
        "0..0");
  }
}

// ---- Kernels, right and wrong
// -------------------------------------------------------------------------------------------------------

struct Gemm {
  static constexpr int kM = 48, kN = 32, kK = 64;
  Buffer<float> a{kM * kK, [](int64_t i) { return i * 7 % 11 - 5; }},
      b{kK * kN, [](int64_t i) { return i * 5 % 13 - 6; }}, c{kM * kN};
  template <Mistake kMistake> void launch_it() {
    std::fill_n(c.data(), c.size(), 0.0f);
    launch<tiled_gemm<kMistake, 1>>(Grid{kN / kTile, kM / kTile}, kTile * kTile,
        sizeof(GemmTiles<1>), a.in(), b.in(), c.out(), kN, kK);
  }
  // Small whole numbers: sums are exact in any order.
  int wrong() const {
    int count = 0;
    for (int r = 0; r < kM; ++r) {
      for (int n = 0; n < kN; ++n) {
        float want = 0;
        for (int k = 0; k < kK; ++k) want += a[r * kK + k] * b[k * kN + n];
        count += c[r * kN + n] != want;
      }
    }
    return count;
  }
};

TEST_F(SimtTest, CorrectKernelsDoNotDependOnTheSchedule) {
  Gemm gemm;
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    gemm.launch_it<Mistake::none>();
    EXPECT_EQ(failure(), "");
    EXPECT_EQ(gemm.wrong(), 0);
  }
}

// In which schedules the kernel fails, and in which its result is wrong.
struct Verdict {
  std::string message;
  int failed = 0, wrong = 0;
};
template <Mistake kMistake> Verdict check_gemm() {
  Gemm gemm;
  Verdict verdict;
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    gemm.launch_it<kMistake>();
    if (const std::string message = failure(); !message.empty()) {
      verdict.message = message;
      ++verdict.failed;
    } else {
      verdict.wrong += gemm.wrong() > 0;
    }
  }
  return verdict;
}

TEST_F(SimtTest, MissingBlockSyncIsCaught) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "here a data race ends the program: see SimtTsanTest";
#endif
  const Verdict store = check_gemm<Mistake::no_sync_after_store>();
  EXPECT_EQ(store.failed, 4);
  expect_parts(store.message, {"read of shared memory that was never written"});
  const Verdict use = check_gemm<Mistake::no_sync_after_use>();
  EXPECT_EQ(use.wrong, 4);
}

TEST_F(SimtTest, ReadPastATileIsCaught) {
  const Verdict verdict = check_gemm<Mistake::read_past_tile>();
  EXPECT_EQ(verdict.failed, 4);
  expect_parts(verdict.message, {"shared tile row out of bounds: element 16 of 16"});
}

template <Mistake kMistake> std::string staged(const Schedule& schedule) {
  constexpr int kRows = 7, kN = 256;
  Buffer<float> x(kRows * kN, [](int64_t i) { return i % 97; }), y(kN);
  simt::set_schedule(schedule);
  launch<staged_sum<kMistake>>(Grid{1}, kN / 4, 2 * kN * sizeof(float), x.in(), y.out(), kRows);
  std::string message = failure();
  for (int i = 0; i < kN && message.empty(); ++i) {
    float want = 0;
    for (int r = 0; r < kRows; ++r) want += x[r * kN + kN - 1 - i];
    if (y[i] != want) message = "wrong";
  }
  return message;
}

TEST_F(SimtTest, AsyncCopiesLandAtTheirWaitOnly) {
  for (const Schedule& schedule : kSchedules) {
    EXPECT_EQ(staged<Mistake::none>(schedule), "");
    expect_parts(staged<Mistake::no_wait>(schedule), {"thread"});
    expect_parts(
        staged<Mistake::no_wait>(schedule), {"read of shared memory that was never written"});
#if !defined(__SANITIZE_THREAD__)
    expect_parts(staged<Mistake::no_sync_after_use>(schedule),
        {"read of shared memory that was never written"});
#endif
  }
}

TEST_F(SimtTest, TicketChoosesOneBlockOfMany) {
  constexpr int kBlocks = 100;
  Buffer<float> x(kBlocks * 64, [](int64_t i) { return i % 5; }), parts(kBlocks), y(1);
  Buffer<uint32_t> counter(1, [](int64_t) { return 0; });
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    for (int again = 0; again < 2; ++again) {  // the counter is 0 again
      y[0] = 0;
      launch<sum_by_ticket>(
          Grid{kBlocks}, 64, 128, x.in(), parts.in_out(), counter.in_out(), y.out());
      simt::synchronize();
      EXPECT_EQ(y[0], kBlocks * 64 / 5 * 10);
      EXPECT_EQ(counter[0], 0u);
    }
  }
}

// ---- Tensor cores
// -------------------------------------------------------------------------------------------------------------------

// One m16n8k16 of bf16 or m16n8k8 of tf32, fragments gathered by hand as the PTX manual draws them.
SINTER_KERNEL one_mma_bf16(In<bf16> a, In<bf16> b, Out<float> c, int swap) {
  const int g = lane() / 4, t = lane() % 4;
  const auto pair = [](bf16 low, bf16 high) {
    return uint32_t{low.bits} | uint32_t{high.bits} << 16;
  };
  Vec<uint32_t, 4> fa;
  for (int i = 0; i < 4; ++i) {
    const int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
    fa[(i + swap) % 4] = pair(a[row * 16 + k], a[row * 16 + k + 1]);
  }
  Vec<uint32_t, 2> fb;
  for (int i = 0; i < 2; ++i)
    fb[i] = pair(b[(2 * t + 8 * i) * 8 + g], b[(2 * t + 8 * i + 1) * 8 + g]);
  Vec<float, 4> d = {1, 1, 1, 1};
  mma_bf16_m16n8k16(d, fa, fb);
  for (int i = 0; i < 4; ++i) c.put((g + i / 2 * 8) * 8 + 2 * t + i % 2, d[i]);
}
SINTER_KERNEL one_mma_tf32(In<float> a, In<float> b, Out<float> c, int swap) {
  const int g = lane() / 4, t = lane() % 4;
  Vec<uint32_t, 4> fa;
  for (int i = 0; i < 4; ++i)
    fa[(i + swap) % 4] = math::to_bits(a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]);
  const Vec<uint32_t, 2> fb = {math::to_bits(b[t * 8 + g]), math::to_bits(b[(t + 4) * 8 + g])};
  Vec<float, 4> d = {1, 1, 1, 1};
  mma_tf32_m16n8k8(d, fa, fb);
  for (int i = 0; i < 4; ++i) c.put((g + i / 2 * 8) * 8 + 2 * t + i % 2, d[i]);
}

template <class T> Buffer<T> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  return {n, [&](int64_t) { return T(float(double(random() >> 40) / (1 << 23) - 1)); }};
}
float plain(bf16 v) { return float(v); }
float plain(float v) { return math::from_bits(math::to_bits(v) & 0xffffe000u); }  // as tf32

// start + a b, m x n
template <class T>
std::vector<double> product(
    const Buffer<T>& a, const Buffer<T>& b, int m, int n, int k, double start) {
  std::vector<double> c;
  for (int r = 0; r < m; ++r) {
    for (int j = 0; j < n; ++j) {
      c.push_back(start);
      for (int i = 0; i < k; ++i) c.back() += double(plain(a[r * k + i])) * plain(b[i * n + j]);
    }
  }
  return c;
}
const test::Within kMma{.absolute = 4e-6};

TEST_F(SimtTest, MmaIsThePlainProduct) {
  const auto a = random_values<bf16>(256, 1), b = random_values<bf16>(128, 2);
  const auto a32 = random_values<float>(128, 3), b32 = random_values<float>(64, 4);
  Buffer<float> c(128);
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    for (const int swap : {0, 1}) {  // swapped registers of the fragment must show
      const auto compare = swap ? test::apart : test::close;
      launch<one_mma_bf16>(Grid{1}, 32, 0, a.in(), b.in(), c.out(), swap);
      simt::synchronize();
      EXPECT_TRUE(compare(c.values(), product(a, b, 16, 8, 16, 1), kMma));
      launch<one_mma_tf32>(Grid{1}, 32, 0, a32.in(), b32.in(), c.out(), swap);
      simt::synchronize();
      EXPECT_TRUE(compare(c.values(), product(a32, b32, 16, 8, 8, 1), kMma));
    }
  }
}

TEST_F(SimtTest, LdmatrixFeedsMma) {
  const auto a = random_values<bf16>(256, 5), b = random_values<bf16>(256, 6);
  Buffer<float> c(256);
  for (const Schedule& schedule : kSchedules) {
    simt::set_schedule(schedule);
    launch<mma_product>(Grid{1}, 32, sizeof(MmaTiles), a.in(), b.in(), c.out());
    simt::synchronize();
    EXPECT_TRUE(test::close(c.values(), product(a, b, 16, 16, 16, 0), kMma));
  }
  launch<mma_product>(Grid{1}, 24, sizeof(MmaTiles), a.in(), b.in(), c.out());
  expect_parts(failure(), {"lane 24, which has left the kernel or never was, is needed at"});
}

SINTER_KERNEL ldmatrix_unwritten(Out<int> y) {
  auto& tile = shared<SharedTile<bf16, 16, 16>>();
  for (int c = 0; c < 16; ++c) {
    if (lane() < 16 && (lane() != 9 || c != 3)) tile.put(lane(), c, bf16(1.0f));
  }
  warp_sync();
  y.put(lane(), int(ldmatrix_x4(tile, lane() % 16, lane() / 16 * 8)[0]));
}

TEST_F(SimtTest, LdmatrixReadsNoPoison) {
  Buffer<int> y(32);
  launch<ldmatrix_unwritten>(Grid{1}, 32, 512, y.out());
  expect_parts(failure(),
      {"thread 5: read of shared memory by ldmatrix that was never written: element 147"});
}

// ---- Launches
// -----------------------------------------------------------------------------------------------------------------------

TEST_F(SimtTest, LaunchesAreChecked) {
  Buffer<int> y(4);
  const auto refusal = [&](const Grid& grid, int block, size_t shared_bytes) {
    return test::message_of([&] { launch<write_indices>(grid, block, shared_bytes, y.out()); });
  };
  EXPECT_EQ(refusal({1}, 1025, 0),
      "write_indices: threads per block out of range: 1025; allowed 1..1024");
  expect_parts(refusal({1}, 0, 0), {"threads per block out of range: 0"});
  EXPECT_EQ(refusal({1}, 32, 232449),
      "write_indices: too much shared memory: 232449 bytes; a block has at most 232448");
  expect_parts(refusal({0}, 32, 0), {"grid out of range: (0, 1, 1)"});
  expect_parts(refusal({1, 65536}, 32, 0), {"grid out of range: (1, 65536, 1)"});
  EXPECT_EQ(refusal({1}, 1, 232448), "");
  EXPECT_EQ(failure(), "");
}

SINTER_KERNEL add_one(InOut<float> x) { x.put(thread_x(), x[thread_x()] + 1); }

TEST_F(SimtTest, LaunchesWaitForSynchronize) {
  Buffer<float> x(32, [](int64_t) { return 0; });
  for (int i = 0; i < 10; ++i) launch<add_one>(Grid{1}, 32, 0, x.in_out());
  EXPECT_EQ(x[5], 0.0f);
  simt::synchronize();
  EXPECT_EQ(x[5], 10.0f);
  for (int i = 0; i < 300; ++i) launch<add_one>(Grid{1}, 32, 0, x.in_out());
  EXPECT_EQ(x[5], 266.0f);  // a queue of 256 runs by itself
  simt::synchronize();
  EXPECT_EQ(x[5], 310.0f);
}

// f on a thread of its own, to its end.
template <class F> void on_a_thread(F&& f) { std::thread(f).join(); }

TEST_F(SimtTest, WhatAThreadLaunchedIsThereForWhoeverReadsIt) {
  Buffer<float> x(32, [](int64_t) { return 0; });
  on_a_thread([&] {
    for (int i = 0; i < 10; ++i) launch<add_one>(Grid{1}, 32, 0, x.in_out());
  });
  launch<add_one>(Grid{1}, 32, 0, x.in_out());
  EXPECT_EQ(x[5], 0.0f);
  simt::synchronize();
  EXPECT_EQ(x[5], 11.0f) << "in the order of the launches";
}

// Three threads launch by turns into one queue; whoever synchronizes runs all of it.
TEST_F(SimtTest, AFailureIsOfTheThreadThatLaunched) {
  Buffer<float> own(32, [](int64_t) { return 0; }), theirs(32, [](int64_t) { return 0; });
  const auto out_of_bounds = [&] {
    launch<copy_shifted>(Grid{1}, 32, 0, own.in(), theirs.out(), int64_t{0}, int64_t{100}, false);
  };
  launch<add_one>(Grid{1}, 32, 0, own.in_out());
  on_a_thread([&] {
    out_of_bounds();
    launch<add_one>(Grid{1}, 32, 0, theirs.in_out());  // dropped
    on_a_thread([&] {
      launch<add_one>(Grid{1}, 32, 0, own.in_out());
      EXPECT_EQ(failure(), "") << "of a blameless thread";
    });
    EXPECT_EQ(own[31], 2.0f);
    expect_parts(failure(), {"copy_shifted", "write out of bounds"});
    EXPECT_EQ(failure(), "") << "it is told once";
    EXPECT_EQ(theirs[31], 0.0f);
    launch<add_one>(Grid{1}, 32, 0, theirs.in_out());
    EXPECT_EQ(failure(), "");
    EXPECT_EQ(theirs[31], 1.0f) << "the thread goes on";
    out_of_bounds();  // nobody synchronizes for this one
  });
  launch<add_one>(Grid{1}, 32, 0, own.in_out());
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(own[31], 3.0f);
}

TEST_F(SimtTest, AFailureIsToldToWhoReadsWhatTheLaunchShouldHaveMade) {
  const Device device{Device::Type::simt, 0};
  const Tensor own = Tensor::full({32}, 3, DType::f32, device);
  Tensor before, failed, behind;
  on_a_thread([&] {
    before = Tensor::full({32}, 4, DType::f32, device);
    const In<float> in(own.data<float>(), 32);
    const auto copy = [&](const Tensor& to, int64_t by) {
      launch<copy_shifted>(
          Grid{1}, 32, 0, in, Out<float>(to.data<float>(), 32), int64_t{0}, by, false);
    };
    copy(before, 0);
    failed = Tensor::empty({32}, DType::f32, device);
    copy(failed, 100);
    behind = Tensor::empty({32}, DType::f32, device);
    copy(behind, 0);
  });
  for (int i = 0; i < 2; ++i) {
    for (const Tensor& t : {failed, behind})
      expect_parts(test::message_of([&] { t.to_vector<float>(); }), {"write out of bounds"});
    EXPECT_EQ(own.to_vector<float>(), std::vector<float>(32, 3));
    EXPECT_EQ(before.to_vector<float>(), std::vector<float>(32, 3));
    EXPECT_EQ(failure(), "");
  }
}

TEST_F(SimtTest, ReleasedMemoryStaysUntilTheQueueIsEmpty) {
  Buffer<float> y(32);
  const int64_t live = simt::allocator().stats().live_bytes;
  {
    Buffer<float> x(32, [](int64_t i) { return i; });
    launch<copy_shifted>(Grid{1}, 32, 0, x.in(), y.out(), int64_t{0}, int64_t{0}, false);
  }
  Buffer<float> other(32, [](int64_t) { return -1; });  // must not get the same block
  EXPECT_GT(simt::allocator().stats().live_bytes, live + 128);
  simt::synchronize();
  for (int i = 0; i < 32; ++i) ASSERT_EQ(y[i], float(i));
  EXPECT_EQ(simt::allocator().stats().live_bytes, live + 128);
}

TEST_F(SimtTest, LogListsLaunchesByName) {
  Gemm gemm;
  Buffer<int> y(4 * 32);
  {
    const LaunchLog log;
    launch<write_indices>(Grid{1}, 32, 0, y.out());
    gemm.launch_it<Mistake::none>();
    const std::vector<LaunchShape> launches = log.launches();
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(launches[0].kernel, "write_indices");
    EXPECT_TRUE(launches[1].kernel.starts_with("tiled_gemm<")) << launches[1].kernel;
    EXPECT_EQ(launches[1].grid, (Grid{2, 3, 1}));
    EXPECT_EQ(launches[1].block, 256);
    EXPECT_EQ(launches[1].shared_bytes, sizeof(GemmTiles<1>));
  }
  EXPECT_EQ(kernel_name_in(
                "const T& f() [with auto kernel = "
                "sinter::on_simt::{anonymous}::row<sinter::pointwise::Gelu, float>; P = {int}]"),
      "row<pointwise::Gelu, float>");
}

TEST_F(SimtTest, GapsBehindBlocks) {
  Buffer<float> x(1000);
  EXPECT_EQ(math::to_bits(x[999]), 0xffffffffu);
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_FALSE(__asan_address_is_poisoned(x.data() + 999));
  for (const int beyond : {0, 10, 1000})
    EXPECT_TRUE(__asan_address_is_poisoned(x.data() + 1000 + beyond)) << beyond;
#else
  GTEST_SKIP() << "only AddressSanitizer watches the gap";
#endif
}

// ---- Races
// --------------------------------------------------------------------------------------------------------------------------

#if defined(__SANITIZE_THREAD__)
template <Mistake kMistake> void run_gemm_and_exit() {
  Gemm gemm;
  gemm.launch_it<kMistake>();
  failure();
  std::exit(0);
}
constexpr bool kTsan = true;
#else
template <Mistake> void run_gemm_and_exit() {}
constexpr bool kTsan = false;
#endif

TEST(SimtTsanTest, MissingBlockSyncIsReportedWithBothLines) {
  if (!kTsan) GTEST_SKIP() << "needs the tsan preset";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // g++ 12's symbolizer gives up on some programs: then the kernel's name has to do.
  const auto place = [](int line) {
    return str("tiled_gemm<[^\n]*(simt_kernels.h:", line, "|<null>)");
  };
  const std::string store = place(kStoreLine), use = place(kUseLine);
  EXPECT_EXIT(run_gemm_and_exit<Mistake::none>(), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(run_gemm_and_exit<Mistake::no_sync_after_use>(), testing::ExitedWithCode(66),
      "WARNING: ThreadSanitizer: data race(.|\n)*" + store + "(.|\n)*" + use);
}

}  // namespace
}  // namespace sinter::on_simt
