#include "core/device/timing.h"

#if SINTER_HAS_CUDA

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/device/cuda_stream.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

constexpr int kBrackets = 64;

class EventTimer final : public DeviceTimer {
 public:
  explicit EventTimer(int marks) {
    try {
      while (static_cast<int>(events_.size()) < marks) {
        events_.push_back(nullptr);
        SINTER_CUDA_CALL(cudaEventCreateWithFlags(&events_.back(), cudaEventDefault));
      }
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~EventTimer() override { destroy(); }

  void wait() noexcept override { api().cudaStreamSynchronize(stream()); }

  int mark() noexcept override {
    const size_t i = used_.fetch_add(1, std::memory_order_relaxed);
    if (i >= events_.size() || api().cudaEventRecord(events_[i], stream()) != cudaSuccess) return -1;
    return static_cast<int>(i);
  }

  Edge edge(const std::function<int64_t()>& host_now) override {
    const cudaStream_t on = stream();
    if (api().cudaStreamSynchronize(on) != cudaSuccess) return {};
    Edge best;
    for (int i = 0; i < kBrackets; ++i) {
      const int64_t before = host_now();
      const int here = mark();
      if (here < 0 || api().cudaStreamSynchronize(on) != cudaSuccess) break;
      const int64_t half = (host_now() - before) / 2;
      if (best.mark < 0 || half < best.half_ns) best = {here, before + half, half};
    }
    return best;
  }

  std::vector<int64_t> read() override {
    const size_t n = std::min(used_.exchange(0), events_.size());
    std::vector<int64_t> ns(n, kLost);
    for (size_t i = 0; i < n; ++i) {
      float ms = 0;
      if (api().cudaEventElapsedTime(&ms, events_[0], events_[i]) == cudaSuccess)
        ns[i] = std::llround(static_cast<double>(ms) * 1e6);
      else
        api().cudaGetLastError();
    }
    return ns;
  }

 private:
  void destroy() noexcept {
    for (const cudaEvent_t event : events_) {
      if (event) api().cudaEventDestroy(event);
    }
  }
  std::vector<cudaEvent_t> events_;
  std::atomic<size_t> used_{0};
};

}  // namespace

std::unique_ptr<DeviceTimer> make_event_timer(int marks) {
  thread_state();  // opens the card
  return std::make_unique<EventTimer>(marks);
}

}  // namespace sinter::cuda

#else

namespace sinter::cuda {
std::unique_ptr<DeviceTimer> make_event_timer(int) { return nullptr; }
}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
