#include "core/device/simt.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "core/device/launch_hook.h"
#include "core/device/simt_count_only.h"
#include "core/device/simt_worker.h"
#include "core/parallel.h"

namespace sinter::simt {
namespace {

constexpr size_t kLongQueue = 256;  // launches that wait at most
constexpr int kMaxWorkers = 16;  // a stack is two mappings of the 65530 that a process may have; a
                                 // worker may have 1024 stacks

// Kept for ever: fibers never end.
class WorkerPool {
 public:
  Worker* take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return new Worker;
    Worker* worker = idle_.back();
    idle_.pop_back();
    return worker;
  }
  void give(Worker* worker) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(worker);
  }

 private:
  std::mutex mutex_;
  std::vector<Worker*> idle_;
};

class Queue {
 public:
  void push(Launch launch) {
    std::unique_lock lock(mutex_);
    pending_.push_back(std::move(launch));
    if (pending_.size() < kLongQueue) return;
    lock.unlock();
    run();
  }

  void run() {
    const std::lock_guard running(run_mutex_);
    std::exception_ptr error;
    for (std::deque<Launch> batch; next_batch(batch, error != nullptr);) {
      try {
        for (const Launch& launch : batch) run_launch(launch);
      } catch (...) {
        error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }

  // Frees a block once nothing that waits or runs can touch it.
  void release(void* block, size_t bytes, void (*free)(void*, size_t)) {
    {
      const std::lock_guard lock(mutex_);
      if (busy_ || !pending_.empty()) return released_.push_back({block, bytes, free});
    }
    free(block, bytes);
  }

  void set_schedule(Schedule schedule) {
    run();
    const std::lock_guard running(run_mutex_);
    schedule_ = schedule;
  }
  int multiprocessors() {
    const std::lock_guard running(run_mutex_);
    return schedule_.multiprocessors;
  }

 private:
  struct Released {
    void* block;
    size_t bytes;
    void (*free)(void*, size_t);
  };

  // False when the queue is empty: then what was released meanwhile is free.
  bool next_batch(std::deque<Launch>& batch, bool drop) {
    std::vector<Released> free;
    batch.clear();
    {
      const std::lock_guard lock(mutex_);
      batch.swap(pending_);
      if (drop) batch.clear();
      busy_ = !batch.empty();
      if (!busy_) free.swap(released_);
    }
    for (const Released& r : free) r.free(r.block, r.bytes);
    return !batch.empty();
  }

  static std::vector<int64_t> order_of(int64_t blocks, const Schedule& schedule) {
    std::vector<int64_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    if (schedule.order == Schedule::Order::reversed) std::reverse(order.begin(), order.end());
    if (schedule.order == Schedule::Order::shuffled) {
      uint64_t random = mix(schedule.seed + 1);
      for (size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[(random = mix(random + i)) % i]);
    }
    return order;
  }

  void run_launch(const Launch& launch) {
    const Grid& grid = launch.shape.grid;
    const int64_t blocks = grid.blocks();
    const std::vector<int64_t> order = order_of(blocks, schedule_);
    std::atomic<int64_t> next{0};  // blocks take unequal time: each worker asks for the next
    // Of several failures the first in the order of blocks is thrown: all before it have been
    // begun, and end.
    std::mutex error_mutex;
    std::exception_ptr error;
    int64_t failed = blocks;
    const int64_t workers = blocks * launch.shape.block >= 512
                                ? std::min<int64_t>({num_threads(), blocks, kMaxWorkers})
                                : 1;
    parallel_for(workers, 1, [&](int64_t, int64_t) {
      Worker* worker = pool_.take();
      for (int64_t i; (i = next++) < blocks;) {
        try {
          const int64_t b = order[size_t(i)];
          worker->run_block(
              launch, {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y}, schedule_);
        } catch (...) {
          const std::lock_guard lock(error_mutex);
          next = blocks;
          if (i < failed) {
            failed = i;
            error = std::current_exception();
          }
        }
      }
      worker->counts.merge();
      pool_.give(worker);
    });
    finish_kernel_counts();
    if (error) std::rethrow_exception(error);
  }

  std::mutex mutex_, run_mutex_;
  std::deque<Launch> pending_;
  bool busy_ = false;  // some that are not pending any more still run
  std::vector<Released> released_;
  Schedule schedule_;
  WorkerPool pool_;
};

std::atomic<bool> count_only{false};

Queue& queue() {
  static Queue& queue = *new Queue;
  return queue;
}

}  // namespace

void enqueue(const LaunchShape& shape, std::function<void()> thread) {
  const HookedCall hooked(Device::Type::simt, shape);
  if (!count_only) queue().push({shape, std::move(thread)});
}
CountOnly::CountOnly() {
  synchronize();
  count_only = true;
}
CountOnly::~CountOnly() { count_only = false; }
void synchronize() { queue().run(); }
void set_schedule(Schedule schedule) { queue().set_schedule(schedule); }
int multiprocessors() { return queue().multiprocessors(); }
void release_when_idle(void* block, size_t bytes, void (*free)(void*, size_t)) {
  queue().release(block, bytes, free);
}

}  // namespace sinter::simt
