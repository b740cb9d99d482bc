// Runs the blocks of kernels, one at a time, as fibers of the OS thread that calls: the scheduler,
// the barriers, the deadlock detector. Behind simt.h. A worker belongs to one OS thread at a time
// and is kept for the next launch, for its stacks.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "core/device/simt.h"

#if defined(SINTER_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_ignore_thread_begin();
extern "C" void __tsan_ignore_thread_end();
#endif

namespace sinter::simt {

// What the emulator tells ThreadSanitizer, in files that are themselves compiled without
// -fsanitize=thread but with SINTER_TSAN; else nothing. Who observes an address comes after all who
// published it. While an Unseen lives: bookkeeping that the threads of a block share. Its memmove,
// which TSan intercepts, is no race.
#if defined(SINTER_TSAN)
inline void publish(void* address) { __tsan_release(address); }
inline void observe(void* address) { __tsan_acquire(address); }
struct Unseen {
  Unseen() { __tsan_ignore_thread_begin(); }
  ~Unseen() { __tsan_ignore_thread_end(); }
};
#else
inline void publish(void*) {}
inline void observe(void*) {}
struct Unseen {
  Unseen() {}
};
#endif

// A fiber: a function with a stack of its own that can stop in the middle and go on later. The
// emulator runs one per CUDA thread and keeps them for the next block. Tells AddressSanitizer and
// ThreadSanitizer of each switch, which otherwise would see one wild stack. Fibers switch to each
// other directly, on one OS thread at a time. One with a stack is never destroyed: its body does
// not end.
class Fiber {
 public:
  // The OS thread that constructs it, as a fiber to switch from and back to.
  Fiber();
  // body(argument) must not return and must not throw. `index` moves the top of the stack a little:
  // tops that are whole pages apart would compete for the same lines of the cache.
  Fiber(void (*body)(void*), void* argument, int index);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Stops here, goes on there; returns when somebody switches to this fiber, which must be the
  // running one. Not within a catch block: the exception being handled belongs to the OS thread.
  void switch_to(Fiber& next);

 private:
  void arrived(void* data, void* context);
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* context_ = nullptr;      // boost's; where to go on
  const void* stack_ = nullptr;  // lowest address
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
};

// What kernels did, counted per worker and added up per kernel; behind simt::take_counters().
enum class Space : uint8_t { device_read, device_write, shared };

class WorkerCounts {
 public:
  Counters sum;  // not merged yet

  void access(
      Space space, const Thread& thread, const void* address, size_t bytes, const Where& where);
  // The counter of a warp-wide operation.
  int64_t& warp_wide(Operation operation);
  // Turns the block's accesses into requests.
  void block_ended(int threads);
  // Adds all to the totals and begins anew. Not per block: its lock would give TSan an order
  // between blocks that is none.
  void merge();

 private:
  // One lane's. Those of a warp's lanes at one place in their n-th visit are one warp-wide access.
  struct Access {
    int warp, place;
    uint32_t visit;
    int lane;
    uintptr_t address;
    uint32_t bytes;
    Space space;
    auto request() const { return std::tuple(warp, place, visit); }
    auto key() const { return std::tuple(warp, place, visit, lane); }
  };
  static int64_t conflicts(const Access* begin, const Access* end);
  std::map<std::tuple<Space, const char*, uint32_t, uint32_t>, int> places_;  // file, line, column
  std::vector<std::vector<uint32_t>> visits_;                                 // by place and thread
  std::vector<Access> accesses_;       // of the running block
  std::vector<uintptr_t> sectors_[2];  // read, written
  int64_t uncounted_ = 0;
};

// A kernel has ended: its distinct sectors go to the totals.
void finish_kernel_counts();

struct Launch {
  LaunchShape shape;
  std::function<void()> thread;
  bool waits = false;
};

struct FiberThread;

// A place where threads meet: who waits, for what, how often all came. TSan learns the order that
// this makes; with one address a fast thread's next arrival would hide a race: hence two, by
// parity.
struct Meeting {
  std::vector<FiberThread*> waiting;
  Operation operation = Operation::block_sync;
  Where where;
  uint64_t generation = 0;
  char sync[2] = {};
};

struct Warp {
  Meeting meeting;
  int alive = 0;
  LaneSlot slots[2][32];
  uint32_t present[2] = {};
};

class Worker {
 public:
  Worker();
  ~Worker();

  // Throws what a thread of the block threw first, with kernel, block and thread, or the deadlock.
  void run_block(const Launch& launch, const int64_t (&block)[3], const Schedule& schedule);

  // Called by the running thread.
  void block_sync(FiberThread& me, Operation operation, const Where& where);
  const LaneSlot* warp_meet(FiberThread& me, Operation operation, const LaneSlot& mine,
      uint32_t& present, const Where& where);
  bool ticket(FiberThread& me, uint32_t* counter, uint32_t n, const Where& where);

  WorkerCounts counts;

 private:
  friend struct FiberThread;
  void prepare(const int64_t (&block)[3]);
  void run_thread(FiberThread& me);
  void meet(
      FiberThread& me, Meeting& meeting, int expected, Operation operation, const Where& where);
  void release_if_complete(Meeting& meeting, int expected);
  void release(Meeting& meeting);
  void make_ready(std::vector<FiberThread*>& batch);
  void go_on_elsewhere(FiberThread& me);
  void cancel_all();
  std::string here(int thread) const;
  std::string deadlock_message() const;

  const Launch* launch_ = nullptr;
  Schedule schedule_;
  uint64_t random_ = 0;
  std::vector<std::byte> arena_;
  std::byte* shared_ = nullptr;  // the block's, within the arena
  std::vector<std::unique_ptr<FiberThread>> threads_;
  std::vector<Warp> warps_;
  Meeting barrier_;
  std::vector<FiberThread*> ready_;  // a ring; a thread is in it at most once
  uint32_t ready_begin_ = 0, ready_end_ = 0;
  Fiber* scheduler_ = nullptr;
  int alive_ = 0, ahead_ = 0;
  bool cancelled_ = false, last_ = false;
  std::exception_ptr error_;
};

// Of the calling kernel.
struct FiberThread {
  FiberThread(Worker& worker, int index);
  Thread view;
  Worker* worker;
  Fiber fiber;
  bool started = false, done = false;
  Operation operation = Operation::block_sync;  // that it waits for
  Where where;
  std::vector<AsyncCopy>
      copies;  // by cp_async: the landed ones, those of committed groups, those of the open group
  std::vector<size_t> group_ends;  // of the committed groups, in copies
  size_t landed = 0;
};

uint64_t mix(uint64_t x);

}  // namespace sinter::simt
