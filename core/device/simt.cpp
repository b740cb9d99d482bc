#include "core/device/simt.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "core/device/launch_hook.h"
#include "core/device/simt_worker.h"
#include "core/parallel.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sinter::simt {
namespace {

constexpr size_t kLongQueue = 256;  // launches that wait at most
constexpr int kMaxWorkers = 16;  // a stack is two mappings of the 65530 that a process may have; a
                                 // worker may have 1024 stacks

// Behind each block: an access past the end must not land in a live neighbour, where
// AddressSanitizer would be silent.
constexpr size_t kGap = 4096;

// Host memory that begins as NaN, with gaps that nobody may touch.
class SimtAllocator final : public Allocator {
 public:
  SimtAllocator() : Allocator("simt", kCacheHostMemory) {}

  void* allocate(size_t bytes) override {
    void* block = Allocator::allocate(bytes);
    if (!block) return nullptr;
    std::memset(block, 0xff, kCacheHostMemory ? size_class(bytes) : bytes);
    return block;
  }
  void release(void* block, size_t bytes) noexcept override;
  void release_now(void* block, size_t bytes) noexcept { Allocator::release(block, bytes); }

 private:
  void* system_allocate(size_t bytes) override {
    auto* block =
        static_cast<char*>(std::aligned_alloc(kGap, (bytes + 2 * kGap - 1) / kGap * kGap));
#if defined(__SANITIZE_ADDRESS__)
    if (block)
      ASAN_POISON_MEMORY_REGION(block + bytes, (bytes + 2 * kGap - 1) / kGap * kGap - bytes);
#endif
    return block;
  }
  void system_free(void* block, [[maybe_unused]] size_t bytes) noexcept override {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(block, (bytes + 2 * kGap - 1) / kGap * kGap);
#endif
    std::free(block);
  }
};

SimtAllocator& memory() {
  static SimtAllocator& allocator = *new SimtAllocator;
  return allocator;
}

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
  void release(void* block, size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (busy_ || !pending_.empty()) {
        released_.emplace_back(block, bytes);
        return;
      }
    }
    memory().release_now(block, bytes);
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
  // False when the queue is empty: then what was released meanwhile is free.
  bool next_batch(std::deque<Launch>& batch, bool drop) {
    std::vector<std::pair<void*, size_t>> free;
    batch.clear();
    {
      const std::lock_guard lock(mutex_);
      batch.swap(pending_);
      if (drop) batch.clear();
      busy_ = !batch.empty();
      if (!busy_) free.swap(released_);
    }
    for (const auto& [block, bytes] : free) memory().release_now(block, bytes);
    return !batch.empty();
  }

  // Workers are kept for ever, since fibers never end.
  Worker* take_worker() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return new Worker;
    Worker* worker = idle_.back();
    idle_.pop_back();
    return worker;
  }
  void give_back(Worker* worker) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(worker);
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
      Worker* worker = take_worker();
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
      give_back(worker);
    });
    finish_kernel_counts();
    if (error) std::rethrow_exception(error);
  }

  std::mutex mutex_, run_mutex_;
  std::deque<Launch> pending_;
  bool busy_ = false;  // some that are not pending any more still run
  std::vector<std::pair<void*, size_t>> released_;
  Schedule schedule_;
  std::vector<Worker*> idle_;
};

std::atomic<bool> count_only{false};

Queue& queue() {
  static Queue& queue = *new Queue;
  return queue;
}

void SimtAllocator::release(void* block, size_t bytes) noexcept {
  if (block) queue().release(block, bytes);
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
CountSectors::CountSectors() { counts_sectors = true; }
CountSectors::~CountSectors() { counts_sectors = false; }
void synchronize() { queue().run(); }
void set_schedule(Schedule schedule) { queue().set_schedule(schedule); }
int multiprocessors() { return queue().multiprocessors(); }
Allocator& allocator() { return memory(); }

}  // namespace sinter::simt
