#include "core/parallel.h"

#include <sched.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if SINTER_HAS_OPENMP
#include <omp.h>
#endif

#include "core/error.h"

namespace sinter {
namespace {

std::atomic<int>& thread_setting() {
  static std::atomic<int> setting{available_cores()};
  return setting;
}
thread_local bool inside = false;

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

int num_threads() { return thread_setting().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  SINTER_CHECK(n >= 1, usage, cat("threads: out of range: ", n, "; at least 1"));
  thread_setting() = n;
#if SINTER_HAS_OPENMP
  omp_set_num_threads(n);
#endif
}

namespace detail {

bool in_parallel() { return inside; }

void run_parallel(int64_t n, int threads, ParallelBody body, void* context) {
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto part = [&](int t) {
    inside = true;
    try {
      body(context, n * t / threads, n * (t + 1) / threads);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      error = std::current_exception();
    }
    inside = false;
  };
#if SINTER_HAS_OPENMP
#pragma omp parallel num_threads(threads)
  {
    // The runtime may grant fewer threads than asked for: the parts are dealt out, none is lost.
    for (int t = omp_get_thread_num(); t < threads; t += omp_get_num_threads()) part(t);
  }
#else
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(part, t);
  part(0);
  for (std::thread& worker : workers) worker.join();
#endif
  if (error) std::rethrow_exception(error);
}

}  // namespace detail
}  // namespace sinter
