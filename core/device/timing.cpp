#include "core/device/timing.h"

#if SINTER_HAS_CUDA

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>

#include "core/device/cuda_stream.h"
#include "core/device/cupti.h"
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
  SmClock sm_clock() noexcept override { return cuda::sm_clock(); }

  int mark() noexcept override {
    const size_t i = used_.fetch_add(1, std::memory_order_relaxed);
    if (i >= events_.size() || api().cudaEventRecord(events_[i], stream()) != cudaSuccess)
      return -1;
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

std::unique_ptr<DeviceTimer> make_timer(int marks, std::string& why, bool records) {
  thread_state();  // opens the card
  if (auto timer = records ? make_cupti_timer(why) : nullptr) return timer;
  return std::make_unique<EventTimer>(marks);
}

bool has_records() {
  std::string why;
  return records_turn() != 0 || make_cupti_timer(why);
}

DeviceTimer::SmClock sm_clock() noexcept {
  if (!api().real) return {};
  struct Nvml {
    int (*init)() = nullptr;
    int (*device)(const char* bus, void** device) = nullptr;
    int (*clock)(void* device, int domain, unsigned* mhz) = nullptr;
  };
  static const Nvml nvml = [] {
    Nvml n;
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return n;
    n.init = reinterpret_cast<decltype(n.init)>(dlsym(library, "nvmlInit_v2"));
    n.device =
        reinterpret_cast<decltype(n.device)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    n.clock = reinterpret_cast<decltype(n.clock)>(dlsym(library, "nvmlDeviceGetClockInfo"));
    return n.init && n.device && n.clock && n.init() == 0 ? n : Nvml{};
  }();
  constexpr int kSmDomain = 1;
  const auto ask = [](cudaDeviceAttr what) {
    int value = 0;
    return api().cudaDeviceGetAttribute(&value, what, device().index) == cudaSuccess ? value : 0;
  };
  char bus[32];
  std::snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", ask(cudaDevAttrPciDomainId),
      ask(cudaDevAttrPciBusId), ask(cudaDevAttrPciDeviceId));
  void* card = nullptr;
  unsigned mhz = 0;
  if (!nvml.clock || nvml.device(bus, &card) != 0 || nvml.clock(card, kSmDomain, &mhz) != 0)
    return {};
  return {static_cast<double>(mhz), ask(cudaDevAttrClockRate) * 1e-3};
}

}  // namespace sinter::cuda

#else

namespace sinter::cuda {
std::unique_ptr<DeviceTimer> make_timer(int, std::string&, bool) { return nullptr; }
bool has_records() { return false; }
int records_turn() noexcept { return 0; }
DeviceTimer::SmClock sm_clock() noexcept { return {}; }
}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
