#include "core/parallel.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/error.h"

namespace sinter {
namespace {

thread_local bool inside = false;

// A call of parallel_for: part t of `threads` is [n t / threads, n (t + 1) / threads).
struct Region {
  const int64_t n;
  const int threads;
  const detail::ParallelBody body;
  void* const context;
  std::atomic<int> left = threads;  // parts that are not done
  std::exception_ptr error{};
  std::mutex error_mutex{};

  void run(int t) {
    inside = true;
    try {
      body(context, n * t / threads, n * (t + 1) / threads);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      error = std::current_exception();
    }
    inside = false;
  }
};

// A thread waits for is_there() by spinning for 0.1 ms, as most of a step's serial parts are
// shorter; then it offers its core to others between two looks, until a core of a virtual machine,
// which takes 0.1 ms to wake, has been asked for long enough; then asleep. Whoever makes is_there()
// true calls wake(). Both sides' atomics are in one order for all (seq_cst), so either the one sees
// who sleeps or the other what is there.
class Signal {
  static constexpr std::chrono::microseconds kAlone{100}, kAwake{4000};

 public:
  template <class IsThere> void wait(const IsThere& is_there) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (Clock::duration waited{}; waited < kAwake; waited = Clock::now() - begin) {
      for (int i = 0; i < 64; ++i) {
        if (is_there()) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
      if (waited > kAlone) std::this_thread::yield();
    }
    std::unique_lock lock(mutex_);
    ++asleep_;
    changed_.wait(lock, is_there);
    --asleep_;
  }
  void wake() {
    if (asleep_ == 0) return;
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> asleep_{0};
};

// Note [Threads that do not run]
//   Each thread is offered a part of its own, of which its caches hold what it made of it in the
//   region before. An offer that is still there when the caller is done with part 0 the caller
//   takes back and does itself: so where something else has the cores, or a thread could not
//   start, a region takes as long as on one thread, and no longer by the wait for a thread.
class Pool {
 public:
  // False: another region is running.
  bool try_run(Region& region) {
    if (busy_.test_and_set(std::memory_order_acquire)) return false;
    while (int(members_.size()) < region.threads) add();
    for (int t = 1; t < region.threads; ++t) {
      members_[size_t(t)].offer = &region;
      members_[size_t(t)].offered.wake();
    }
    finish(region, 0);
    for (int t = 1; t < region.threads; ++t) {
      if (members_[size_t(t)].offer.exchange(nullptr)) finish(region, t);
    }
    ended_.wait([&] { return region.left == 0; });
    busy_.clear(std::memory_order_release);
    return true;
  }

 private:
  struct alignas(64) Member {
    std::atomic<bool> runs{false};
    std::atomic<Region*> offer{nullptr};
    Signal offered;
  };

  // Returns when the thread runs: at a fork() one that begins might hold a lock of a sanitizer's
  // allocator, which the child would wait for.
  void add() {
    const int t = int(members_.size());
    Member& member = members_.emplace_back();
    if (t == 0) return;
    try {
      std::thread([this, t, &member] {
        member.runs = true;
        member.runs.notify_one();
        for (;;) {
          member.offered.wait([&] { return member.offer != nullptr; });
          if (Region* const region = member.offer.exchange(nullptr)) finish(*region, t);
        }
      }).detach();
      member.runs.wait(false);
    } catch (const std::system_error&) {  // the caller takes back what this one is offered
    }
  }
  // The region may be gone once its last part is done.
  void finish(Region& region, int t) {
    region.run(t);
    if (--region.left == 0) ended_.wake();
  }

  std::atomic_flag busy_;
  std::deque<Member> members_;  // the caller's place is the first
  Signal ended_;
};

// Never destroyed: its threads run until the process ends. A child of fork() has none of them, and
// begins anew.
Pool*& pool() {
  static Pool* pool = [] {
    pthread_atfork(nullptr, nullptr, [] { sinter::pool() = new Pool; });
    return new Pool;
  }();
  return pool;
}

std::atomic<int>& thread_setting() {
  static std::atomic<int> setting{std::min(available_cores(), kMostThreads)};
  return setting;
}

}  // namespace

int num_threads() { return thread_setting().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  SINTER_CHECK(n >= 1 && n <= kMostThreads, usage,
      str("threads: out of range: ", n, "; allowed 1..", kMostThreads));
  thread_setting() = n;
}

namespace detail {

bool in_parallel() { return inside; }

void run_parallel(int64_t n, int threads, ParallelBody body, void* context) {
  Region region{n, threads, body, context};
  if (!pool()->try_run(region)) {
    for (int t = 0; t < threads; ++t) region.run(t);
  }
  if (region.error) std::rethrow_exception(region.error);
}

}  // namespace detail
}  // namespace sinter
