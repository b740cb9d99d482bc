// The one thread pool: parallel_for over a range. A range is split only if every thread gets at
// least `grain` items, so work that costs less than the fork stays on the caller. The split depends
// on n, grain and num_threads() alone, so results are the same from run to run. A library's own
// threads would want the same cores: it is asked for one, and called in each part.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

namespace sinter {

// Threads that parallel_for may use (of this process); at first the number of cores this process
// may run on.
int num_threads();
// n in 1..kMostThreads; throws usage otherwise.
void set_num_threads(int n);
// A process may have some 30,000.
inline constexpr int kMostThreads = 4096;
// Cores this process may use, at least one: by its affinity, by OMP_NUM_THREADS, and by the CPU
// quota of its cgroup, rounded down. A thread more than the quota pays for is stopped for a part of
// each period, and so are all that wait for it.
int available_cores();

// Items for which a fork pays, where one item costs about `bytes` of memory traffic (or that many
// simple operations): 0.5 us of a core, where a fork of a Zen 3 takes 0.2.
constexpr int64_t grain_of(int64_t bytes_per_item) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, bytes_per_item));
}

namespace detail {
using ParallelBody = void (*)(void* context, int64_t begin, int64_t end);
void run_parallel(int64_t n, int threads, ParallelBody body, void* context);
bool in_parallel();
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
