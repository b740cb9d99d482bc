// The SIMT emulator: the device on which CUDA kernels run as ordinary C++. One fiber per CUDA
// thread, all of a block on one OS thread; blocks run to completion, spread over cores by
// parallel_for. Memory is the host's, so a debugger, ASan and TSan see everything.
//
// It is stricter than a GPU: launches wait in a queue until somebody synchronizes, fresh and shared
// memory reads as NaN and reading it is an error, copies by cp_async land at their wait, a barrier
// that cannot be passed is an error that says who waits where, and the order of threads, warps and
// blocks can be turned round (Schedule). Used through kernel.h (by kernels) and launch.h (by their
// callers).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string_view>

#include "core/allocator.h"
#include "core/device/grid.h"

namespace sinter::simt {

// In which order threads and blocks run. Results must not depend on it.
struct Schedule {
  enum class Order : uint8_t { forward, reversed, one_warp_ahead, shuffled };
  Order order = Order::forward;
  uint64_t seed = 0;          // of one_warp_ahead and shuffled
  int multiprocessors = 132;  // of the card that launches shape their grids for
};
// For what is launched from here on; synchronizes first.
void set_schedule(Schedule schedule);
int multiprocessors();

// Puts a kernel in the queue; `thread` is the body of one CUDA thread. Runs it, and all before it,
// when the queue is long.
// waits: its kernel calls wait_for_upstream().
void enqueue(const LaunchShape& shape, std::function<void()> thread, bool waits = false);
// Runs what is queued, whoever launched it. Throws what the first block that failed of the calling
// thread's launches threw, with the kernel, block and thread; what the thread launched behind it is
// dropped, and the emulator is as before. Failures of other threads are theirs to hear of.
void synchronize();
// Before the host reads at an address: throws, too, what failed of another thread's launches and it
// has not heard of, if that thread took the memory there for that launch or a later one.
void synchronize_to_read(const void* from);
// Blocks begin as 0xFF bytes (NaN) and have gaps of 4 KiB between them; released ones stay
// untouched until the queue is empty.
Allocator& allocator();
// A NaN whose bits are all set, which would read as never written, is stored with this first byte.
inline constexpr unsigned char kOtherNan = 0xfe;

// What the kernels did, for tests. Those of on_simt_counted fill the memory part too, all others
// its bytes and sectors while a CountSectors lives.
struct Counters {
  int64_t blocks = 0, threads = 0;
  int64_t barriers = 0;                         // times that a block met
  int64_t shuffles = 0, mma = 0, ldmatrix = 0;  // warp-wide instructions
  int64_t cp_async = 0;                         // 16-byte copies
  int64_t bytes_read = 0, bytes_written = 0;    // requested, device memory
  int64_t sectors_read = 0,
          sectors_written = 0;  // distinct 32-byte sectors of device memory, per kernel
  int64_t requests = 0,
          request_sectors = 0;  // warp-wide accesses of device memory, and the sectors they touched
  int64_t shared_accesses = 0,
          bank_conflicts = 0;  // warp-wide accesses of shared memory, and the extra turns they took
};
// Counts from here on to the next call; synchronizes first.
Counters take_counters();

// REQUIRES: nothing is launched while it begins or ends.
struct CountSectors {
  CountSectors();
  ~CountSectors();
  CountSectors(const CountSectors&) = delete;
  CountSectors& operator=(const CountSectors&) = delete;
};

// The emulator without its arithmetic: while one of these lives, launches are counted, logged and
// told to profilers, but not run. For their numbers and shapes at sizes that would take hours.
// REQUIRES: nobody reads a result.
struct CountOnly {
  CountOnly();
  ~CountOnly();
  CountOnly(const CountOnly&) = delete;
  CountOnly& operator=(const CountOnly&) = delete;
};

// ---- for kernel_simt.h
// ------------------------------------------------------------------------------------------------

using Where = std::source_location;

// The running CUDA thread, as its kernel sees it.
struct Thread {
  void* owner = nullptr;
  int index = 0, lane = 0, warp = 0, threads = 0;
  int64_t block[3] = {}, grid[3] = {};
  std::byte* shared = nullptr;
  size_t shared_bytes = 0;
  bool waited = true;  // for the kernel before
};
inline constinit thread_local Thread* current = nullptr;
// Does a CountSectors live?
inline constinit std::atomic<bool> counts_sectors = false;

// Where threads meet.
enum class Operation : uint8_t {
  block_sync,
  ticket,
  warp_sync,
  shfl,
  shfl_xor,
  ldmatrix_x4,
  ldmatrix_x4_trans,
  mma_bf16_m16n8k16,
  mma_tf32_m16n8k8
};
// What one lane gives to a warp-wide operation; the others read it.
struct alignas(16) LaneSlot {
  std::byte data[32];
};

// Threads of a block must come from the same place in the source, lanes of a warp too (but not to
// warp_sync).
void block_sync(const Where& where);
// All lanes of the warp that have not left meet here; gives the 32 slots, valid until this lane's
// next but one meeting. `present` gets a bit per lane that took part.
const LaneSlot* warp_meet(
    Operation operation, const LaneSlot& mine, uint32_t& present, const Where& where);
// Meets, then: true in all threads of the last of n blocks. Orders memory like the device's fences.
bool ticket(uint32_t* counter, uint32_t n, const Where& where);

struct AsyncCopy {
  void* to;
  const void* from;  // null: zeros
};
void cp_async16(const AsyncCopy& copy);
void cp_async_commit();
// The copies of this thread's groups but the last `groups_left`, once: the kernel's own code
// carries them out, where TSan sees it.
std::span<const AsyncCopy> cp_async_landing(int groups_left);

enum class Access : uint8_t { read, write };
// Accesses are grouped to warp-wide ones by warp, place in the source and visit number.
void count_device(Access access, const void* address, size_t bytes, const Where& where);
void count_shared(const void* address, size_t bytes, const Where& where);

// Elements i .. i + count, `bytes` each, that are not all among the n from `data`: an Error, unless
// n is the complement of a number that holds them, by which an operand asks to be counted.
struct Elements {
  int64_t i, count, n;
  const void* data;
  size_t bytes;
};
void count_or_fail(Access access, const char* what, const Elements& elements);

// An Error about the running thread; its kernel, block and index are put before the message.
[[noreturn]] void fail_bounds(const char* what, int64_t index, int64_t count);
[[noreturn]] void fail_poison(const char* what, int64_t index);
[[noreturn]] void fail_shared(size_t wanted);
[[noreturn]] void fail_absent(int lane, const Where& where);
[[noreturn]] void fail_alignment(const char* what, int64_t index, size_t bytes);
// `count` of 0: value and count are not known.
[[noreturn]] void fail_fault(uint32_t fault, int64_t index, int64_t value, int64_t count);
[[noreturn]] void fail(std::string_view message);

}  // namespace sinter::simt
