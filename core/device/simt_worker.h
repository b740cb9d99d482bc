// Runs the blocks of kernels, one at a time, as fibers of the OS thread that calls: the scheduler,
// the barriers, the deadlock detector. Behind simt.h. A worker belongs to one OS thread at a time
// and is kept for the next launch, for its stacks.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device/simt.h"
#include "core/device/simt_counts.h"
#include "core/device/simt_fiber.h"

namespace sinter::simt {

struct Launch {
  LaunchShape shape;
  std::function<void()> thread;
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
