#include "core/device/timing.h"

#if SINTER_HAS_CUDA

#include <cstdio>

#include "core/device/cuda_stream.h"
#include "core/device/cupti.h"
#include "core/device/library.h"

namespace sinter::cuda {
namespace {

// 0 where the runtime does not say.
int attribute(cudaDeviceAttr what) {
  int value = 0;
  return api().cudaDeviceGetAttribute(&value, what, device().index) == cudaSuccess ? value : 0;
}

}  // namespace

std::unique_ptr<DeviceTimer> make_timer(std::string& why, bool records) {
  thread_state();  // opens the card
  if (auto timer = records ? make_cupti_timer(why) : nullptr) return timer;
  return std::make_unique<CardTimer>();
}

void CardTimer::wait() noexcept { api().cudaStreamSynchronize(stream()); }

void watch(bool begin) noexcept {
  // Fails where another profiler is attached; then there is nobody to tell.
  if (begin) {
    api().cudaProfilerStart();
  } else {
    api().cudaProfilerStop();
  }
}

DeviceTimer::SmClock CardTimer::sm_clock() noexcept {
  if (!api().real) return {};
  struct Nvml {
    int (*init)() = nullptr;
    int (*device)(const char* bus, void** device) = nullptr;
    int (*clock)(void* device, int domain, unsigned* mhz) = nullptr;
  };
  static const Nvml nvml = [] {
    Nvml n;
    Library library({"libnvidia-ml.so.1"});
    library.find("nvmlInit_v2", n.init);
    library.find("nvmlDeviceGetHandleByPciBusId_v2", n.device);
    library.find("nvmlDeviceGetClockInfo", n.clock);
    return library.why().empty() && n.init() == 0 ? n : Nvml{};
  }();
  constexpr int kSmDomain = 1;
  char bus[32];
  std::snprintf(bus, sizeof bus, "%08x:%02x:%02x.0", attribute(cudaDevAttrPciDomainId),
      attribute(cudaDevAttrPciBusId), attribute(cudaDevAttrPciDeviceId));
  void* card = nullptr;
  unsigned mhz = 0;
  if (!nvml.clock || nvml.device(bus, &card) != 0 || nvml.clock(card, kSmDomain, &mhz) != 0)
    return {};
  return {double(mhz), attribute(cudaDevAttrClockRate) * 1e-3};
}

Card CardTimer::card() noexcept {
  return {10 * attribute(cudaDevAttrComputeCapabilityMajor) +
              attribute(cudaDevAttrComputeCapabilityMinor),
      attribute(cudaDevAttrMultiProcessorCount)};
}

}  // namespace sinter::cuda

#else

namespace sinter::cuda {
std::unique_ptr<DeviceTimer> make_timer(std::string&, bool) { return nullptr; }
int records_turn() noexcept { return 0; }
void watch(bool) noexcept {}
}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
