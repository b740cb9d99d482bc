#include "measure/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/atomic_file.h"
#include "core/cache.h"
#include "core/classic.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/timer.h"
#include "profiler/roofs.h"
#include "profiler/stats.h"
#include "profiler/thresholds.h"

namespace sinter::measure {
namespace {

constexpr double kLongUs = 2.5e5;  // steps so long are tried once
constexpr double kWindowUs = 5e3;  // a window: longer than the scheduler's share of a busy core
constexpr int kWindows = 5;        // it is kept: a moment must not decide

constexpr const char* kStem = "threads";  // of the files

// What is kept of a work.
struct Choice {
  std::string key;
  int64_t threads = 0;
  SINTER_FIELD_LIST(key, threads)
};

// The mean of steps that take `least_us` together; not the median: where a core is shared, few
// steps take all the time.
double window_us(const std::function<void()>& step, double least_us = kWindowUs) {
  const Timer all;
  int steps = 0;
  do {
    step();
    ++steps;
  } while (all.us() < least_us);
  return all.us() / steps;
}

}  // namespace

Tried try_threads(const std::function<void()>& step) {
  const int cores = available_cores();
  if (cores == 1) {
    set_num_threads(1);
    return {};
  }
  Tried tried;
  for (int n = 1; n < cores; n *= 2) tried.push_back({n, 0});
  tried.push_back({cores, 0});
  set_num_threads(cores);
  step();  // the first touches its memory
  bool is_long = false;
  std::vector<std::vector<double>> windows(tried.size());
  for (auto& [n, us] : tried) {
    set_num_threads(n);
    us = window_us(step, 0);
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

Tried choose_threads(
    const std::string& work, const std::function<std::function<void()>()>& make_step) {
  set_num_threads(available_cores());  // the key says how many there are
  const std::string key = str(kStem, "/1 ", profiler::roofs_key(kCpu), ", ", work),
                    file = cache_file(kStem, key);
  Choice kept;
  ClassicStream<std::ifstream> in(file);
  try {
    read_json(Json::parse(in, nullptr, false), kept, kStem);
  } catch (const Error&) {  // none, or an earlier build's
  }
  if (kept.key == key && kept.threads >= 1 && kept.threads <= available_cores()) {
    set_num_threads(int(kept.threads));
    return {};
  }
  Tried tried = try_threads(make_step());
  if (file.empty() || tried.empty()) return tried;
  try {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    write_file(file, json_text(Choice{key, num_threads()}, 1) + "\n");
  } catch (const std::exception&) {  // tried again next time
  }
  return tried;
}

int forget_threads() {
  int forgotten = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(cache_folder(), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with(str(kStem, "-")))
      forgotten += std::filesystem::remove(it->path(), error);
  }
  return forgotten;
}

std::string why_distrusted(const std::function<void()>& step, double us) {
  const int threads = num_threads();
  if (threads == 1) return "";
  set_num_threads(1);
  double one = window_us(step, 0);
  for (int i = 0; i < 4 && one < kLongUs; ++i) one = std::min(one, window_us(step, 0));
  set_num_threads(threads);
  if (one * profiler::kSlowThreads >= us) return "";
  return fmt::format("one thread takes {} us", profiler::time_text(one));
}

void be_multithreaded() {
  [[maybe_unused]] static const bool once = (std::thread([] {}).join(), true);
}

}  // namespace sinter::measure
