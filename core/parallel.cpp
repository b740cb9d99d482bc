#include "core/parallel.h"

#include <pthread.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if SINTER_HAS_OPENMP
#include <omp.h>
#endif

#include "core/error.h"

namespace sinter {
namespace {

std::atomic<int>& thread_setting() {
  static std::atomic<int> setting{[] {
  // A child of fork() has one thread, and would wait for ever for a team that libgomp believes to
  // be there: so before a fork the team of the thread that forks is ended. Parent and child begin
  // anew.
#if SINTER_HAS_OPENMP
    pthread_atfork([] { omp_pause_resource_all(omp_pause_hard); }, nullptr, nullptr);
#endif
    return std::min(available_cores(), kMostThreads);
  }()};
  return setting;
}
thread_local bool inside = false;

}  // namespace

int num_threads() { return thread_setting().load(std::memory_order_relaxed); }

void set_num_threads(int n) {
  SINTER_CHECK(n >= 1 && n <= kMostThreads, usage,
      str("threads: out of range: ", n, "; allowed 1..", kMostThreads));
  thread_setting() = n;
}

namespace detail {

bool in_parallel() { return inside; }

int library_threads() {
#if SINTER_HAS_OPENMP
  static thread_local int told = 0;
  if (told != num_threads()) omp_set_num_threads(told = num_threads());
#endif
  return num_threads();
}

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
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int t = next++; t < threads; t = next++) part(t);
  };
  {
    std::vector<std::jthread> workers;  // joined when they leave the scope
    workers.reserve(size_t(threads));
    try {
      for (int t = 1; t < threads; ++t) workers.emplace_back(work);
    } catch (
        const std::system_error&) {  // no further thread can start: those there share the parts
    }
    work();
  }
#endif
  if (error) std::rethrow_exception(error);
}

}  // namespace detail
}  // namespace sinter
