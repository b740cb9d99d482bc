// The one thread pool: parallel_for over a range, by OpenMP or, without it, by std::thread. No
// other file names OpenMP. A range is split only if every thread gets at least `grain` items, so
// work that costs less than the fork stays on the caller. The split depends on n, grain and
// num_threads() alone, so results are the same from run to run.
//
// Note [Waiting threads]
//   libgomp's threads, which are oneDNN's too, wait at the end of each parallel part by spinning
//   for milliseconds. Where something else wants the cores, a thread spins while the one it waits
//   for cannot run: training then takes 10 to 100 times as long. Sleeping at once costs several
//   times the step of a quiet machine. So on a machine that runs nothing else at the start a thread
//   spins for longer than what one thread has more to do than another in a step of milliseconds; on
//   a busy one hardly longer than it takes to sleep and to be woken. libgomp reads how long before
//   main(): a program of yours calls restart_with_short_spin() first, or is started with
//   GOMP_SPINCOUNT=12000, or 300 on a busy machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

namespace sinter {

// Threads that parallel_for may use (of this process); at first the number of cores this process
// may run on.
int num_threads();
// n in 1..kMostThreads; throws usage otherwise. oneDNN and Eigen follow.
void set_num_threads(int n);
// libgomp ends the process where a thread cannot start, of which a process may have some 30,000.
inline constexpr int kMostThreads = 4096;
// Cores this process may use, at least one: by its affinity, by OMP_NUM_THREADS, and by the CPU
// quota of its cgroup, rounded down. A thread more than the quota pays for is stopped for a part of
// each period, and so are all that wait for it.
int available_cores();

// Starts the program anew, as the same process, with a short spin (Note [Waiting threads]). Call it
// first in main(). Does nothing where OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, so it happens once;
// nothing without libgomp; and where the program cannot be started again, this one goes on.
void restart_with_short_spin(char** argv);

// Items for which a fork pays, where one item costs about `bytes` of memory traffic (or that many
// simple operations).
constexpr int64_t grain_of(int64_t bytes_per_item) {
  return std::max<int64_t>(1, 65536 / std::max<int64_t>(1, bytes_per_item));
}

namespace detail {
using ParallelBody = void (*)(void* context, int64_t begin, int64_t end);
void run_parallel(int64_t n, int threads, ParallelBody body, void* context);
bool in_parallel();
// num_threads(), for a library that asks OpenMP: told to its setting, which is each thread's own,
// and counts neither a cgroup's quota nor set_num_threads() by itself.
int library_threads();
// Is there work for the cores beside this thread's, now? By <root>/proc/loadavg; true where that
// cannot be read.
bool others_run(const std::string& root);
// Cores' worth of time that the cgroup of this process may use, whole ones, at least one; INT_MAX
// without a limit. `root` holds proc and sys: "", or a test's folder.
int quota_cores(const std::string& root);
}  // namespace detail

// f(begin, end) on disjoint ranges that cover [0, n). An exception in f reaches the caller. Nested
// calls run serially.
template <class F> void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int64_t threads = std::min<int64_t>(num_threads(), n / std::max<int64_t>(grain, 1));
  if (threads <= 1 || detail::in_parallel()) return f(int64_t{0}, n);
  detail::run_parallel(
      n, int(threads),
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<std::remove_reference_t<F>*>(context))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace sinter
