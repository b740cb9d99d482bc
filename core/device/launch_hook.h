// Where a profiler hangs itself into the device layer: told before and after every host call that
// submits work to a device (kernels, library calls, copies, fills, launches of CUDA graphs), every
// wait, and every block of memory taken or given back. One atomic load while nobody listens. What
// is rehearsed or captured into a graph is not told: nothing runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "core/device/device.h"
#include "core/device/grid.h"

namespace sinter {

enum class DeviceWork : uint8_t { kernel, copy, fill, graph, wait };

// One call, on the stack of the thread that makes it. `begin`, `id` and `token` are the listener's.
struct DeviceCall {
  DeviceWork work;
  Device::Type device;
  std::string_view name;  // of the kernel; lives as long as the process
  int64_t bytes = 0;      // of a copy or a fill
  int launches = 1;  // kernels that it stands for: of a library call, as many as were counted; 0:
                     // not known, at least one
  const LaunchShape* shape = nullptr;  // of a kernel of ours
  int64_t begin = 0;
  uint64_t id = 0;  // of the launch, for a timer with records
  void* token = nullptr;
};

// All on the calling thread. REQUIRES: a listener lives until process exit; calls that have begun
// still end in it.
struct LaunchHook {
  virtual void before(DeviceCall& call) noexcept = 0;
  virtual void after(DeviceCall& call) noexcept = 0;
  // `change`: bytes of the block that was taken, or, below 0, given back; the allocator is locked.
  virtual void memory(
      const void* allocator, const void* block, int64_t change, int64_t live_bytes) noexcept = 0;

 protected:
  ~LaunchHook() = default;
};
inline std::atomic<LaunchHook*> g_launch_hook{nullptr};

class HookedCall {
 public:
  HookedCall(DeviceWork work, Device::Type device, std::string_view name, size_t bytes = 0,
      bool on = true, int launches = 1) noexcept
      : hook_(on ? g_launch_hook.load(std::memory_order_acquire) : nullptr),
        call_{work, device, name, int64_t(bytes), launches} {
    if (hook_) hook_->before(call_);
  }
  // A kernel of ours. REQUIRES: `shape` outlives it.
  HookedCall(Device::Type device, const LaunchShape& shape, bool on = true) noexcept
      : HookedCall(DeviceWork::kernel, device, shape.kernel, 0, on) {
    call_.shape = &shape;
  }
  ~HookedCall() {
    if (hook_) hook_->after(call_);
  }
  HookedCall(const HookedCall&) = delete;
  HookedCall& operator=(const HookedCall&) = delete;

 private:
  LaunchHook* hook_;
  DeviceCall call_;
};

}  // namespace sinter
