#include "core/device/simt.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
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
    note_taken(block, bytes);
    return block;
  }
  void release(void* block, size_t bytes) noexcept override;
  void release_now(void* block, size_t bytes) noexcept { Allocator::release(block, bytes); }

 private:
  static void note_taken(const void* block, size_t bytes);
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

// A thread that launches. Outlives it, as long as launches or memory of its are there.
struct Launcher {
  int64_t launched = 0;      // kernels
  int64_t failed = 0;        // which of them, counted from 0, if there is an error
  std::exception_ptr error;  // until the thread hears of it
};
const std::shared_ptr<Launcher>& this_launcher() {
  static thread_local const auto launcher = std::make_shared<Launcher>();
  return launcher;
}

class Queue {
 public:
  void push(Launch launch) {
    const std::shared_ptr<Launcher>& by = this_launcher();
    std::unique_lock lock(mutex_);
    pending_.push_back({std::move(launch), by, by->launched++});
    if (pending_.size() < kLongQueue) return;
    lock.unlock();
    run(nullptr);
  }

  void run(const void* read) {
    const std::lock_guard running(run_mutex_);
    for (std::deque<Queued> batch; next_batch(batch);) {
      for (const Queued& next : batch) {
        if (next.by->error) continue;
        try {
          run_launch(next.launch);
        } catch (...) {
          next.by->failed = next.number;
          next.by->error = std::current_exception();
        }
      }
    }
    if (const auto error = std::exchange(this_launcher()->error, nullptr))
      std::rethrow_exception(error);
    const std::lock_guard lock(mutex_);
    const auto behind = taken_.upper_bound(read);
    if (behind == taken_.begin()) return;
    const auto& [block, taken] = *std::prev(behind);
    const bool inside =
        static_cast<const char*>(read) < static_cast<const char*>(block) + taken.bytes;
    if (inside && taken.by->error && taken.before >= taken.by->failed)
      std::rethrow_exception(taken.by->error);
  }

  // For launches of this thread, the next one or later ones.
  void took(const void* block, size_t bytes) {
    const std::shared_ptr<Launcher>& by = this_launcher();
    const std::lock_guard lock(mutex_);
    taken_[block] = {bytes, by, by->launched};
  }
  // Frees a block once nothing that waits or runs can touch it.
  void release(void* block, size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      taken_.erase(block);
      if (busy_ || !pending_.empty()) {
        released_.emplace_back(block, bytes);
        return;
      }
    }
    memory().release_now(block, bytes);
  }

  void set_schedule(Schedule schedule) {
    run(nullptr);
    const std::lock_guard running(run_mutex_);
    schedule_ = schedule;
  }
  int multiprocessors() {
    const std::lock_guard running(run_mutex_);
    return schedule_.multiprocessors;
  }

 private:
  struct Queued {
    Launch launch;
    std::shared_ptr<Launcher> by;
    int64_t number;  // among those of `by`
  };
  struct Taken {
    size_t bytes;
    std::shared_ptr<Launcher> by;
    int64_t before;  // the number of its next launch
  };

  // False when the queue is empty: then what was released meanwhile is free.
  bool next_batch(std::deque<Queued>& batch) {
    std::vector<std::pair<void*, size_t>> free;
    batch.clear();
    {
      const std::lock_guard lock(mutex_);
      batch.swap(pending_);
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
  std::deque<Queued> pending_;
  bool busy_ = false;  // some that are not pending any more still run
  std::map<const void*, Taken> taken_;
  std::vector<std::pair<void*, size_t>> released_;
  Schedule schedule_;
  std::vector<Worker*> idle_;
};

std::atomic<bool> count_only{false};

Queue& queue() {
  static Queue& queue = *new Queue;
  return queue;
}

void SimtAllocator::note_taken(const void* block, size_t bytes) { queue().took(block, bytes); }
void SimtAllocator::release(void* block, size_t bytes) noexcept {
  if (block) queue().release(block, bytes);
}

}  // namespace

void enqueue(const LaunchShape& shape, std::function<void()> thread, bool waits) {
  const HookedCall hooked(Device::Type::simt, shape);
  if (!count_only) queue().push({shape, std::move(thread), waits});
}
CountOnly::CountOnly() {
  synchronize();
  count_only = true;
}
CountOnly::~CountOnly() { count_only = false; }
CountSectors::CountSectors() { counts_sectors = true; }
CountSectors::~CountSectors() { counts_sectors = false; }
void synchronize() { queue().run(nullptr); }
void synchronize_to_read(const void* from) { queue().run(from); }
void set_schedule(Schedule schedule) { queue().set_schedule(schedule); }
int multiprocessors() { return queue().multiprocessors(); }
Allocator& allocator() { return memory(); }

}  // namespace sinter::simt
