#include "measure/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "core/parallel.h"
#include "measure/timer.h"
#include "profiler/stats.h"
#include "profiler/thresholds.h"

namespace sinter::measure {
namespace {

constexpr double kLongUs = 2.5e5;  // steps so long are tried once
constexpr double kWindowUs = 5e3;  // a window: longer than the scheduler's share of a busy core
constexpr int kWindows = 3;

double one_us(const std::function<void()>& step) { return ns_per_call(kCpu, 1, step) * 1e-3; }

// The mean, not the median: where a core is shared, few steps take all the time.
double window_us(const std::function<void()>& step) {
  const Timer all;
  int steps = 0;
  do {
    step();
    ++steps;
  } while (all.us() < kWindowUs);
  return all.us() / steps;
}

}  // namespace

std::vector<std::pair<int, double>> try_threads(const std::function<void()>& step) {
  const int cores = available_cores();
  if (cores == 1) {
    set_num_threads(1);
    return {};
  }
  std::vector<std::pair<int, double>> tried;
  for (int n = 1; n < cores; n *= 2) tried.push_back({n, 0});
  tried.push_back({cores, 0});
  set_num_threads(cores);
  step();  // the first touches its memory
  bool is_long = false;
  std::vector<std::vector<double>> windows(tried.size());
  for (auto& [n, us] : tried) {
    set_num_threads(n);
    us = one_us(step);
    is_long = is_long || us > kLongUs;
  }
  for (int w = 0; w < kWindows && !is_long; ++w) {
    for (size_t i = 0; i < tried.size(); ++i) {
      const size_t at = w % 2 == 0 ? i : tried.size() - 1 - i;
      set_num_threads(tried[at].first);
      step();  // with threads that have just begun
      windows[at].push_back(window_us(step));
      tried[at].second = profiler::median(windows[at]);
    }
  }
  set_num_threads(std::ranges::min_element(tried, {}, &std::pair<int, double>::second)->first);
  return tried;
}

std::string why_distrusted(const std::function<void()>& step, double us) {
  const int threads = num_threads();
  if (threads == 1) return "";
  set_num_threads(1);
  double one = one_us(step);
  for (int i = 0; i < 4 && one < kLongUs; ++i) one = std::min(one, one_us(step));
  set_num_threads(threads);
  if (one * profiler::kSlowThreads >= us) return "";
  return fmt::format("one thread takes {} us", profiler::time_text(one));
}

void be_multithreaded() {
  [[maybe_unused]] static const bool once = (std::thread([] {}).join(), true);
}

}  // namespace sinter::measure
