// One piece of device work as the profiler keeps it: when the host asked for it, when it ran, and
// who says so. Plain data.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/device/footprint.h"
#include "profiler/names.h"

namespace sinter::profiler {

// Who measured the device times: the host (cpu: the kernel call itself), or the device's activity
// records. `emul`: counted, never timed. `none`: not measured.
enum class Source : uint8_t { none, host, cupti, emul };
constexpr auto names_of(Source) {
  return std::to_array<std::string_view>({"none", "host", "cupti", "emul"});
}

// graph: the launch of a whole CUDA graph; its nodes are records of their own, of the same API
// times and with a graph_node.
enum class LaunchKind : uint8_t { kernel, memcpy, memset, graph };
constexpr auto names_of(LaunchKind) {
  return std::to_array<std::string_view>({"kernel", "memcpy", "memset", "graph"});
}

struct LaunchRecord {
  int64_t api_t0 = 0, api_t1 = 0;  // the host's call
  // On the device, on the host's axis; cpu: the call itself. Both 0: not measured
  int64_t dev_t0 = 0, dev_t1 = 0;
  StaticName kernel;  // its name; cpu: empty
  // Innermost open scope, an index into the same piece of the same thread's records; -1: none
  int32_t record = -1;
  uint32_t step = 0;        // number of the step that was going on
  uint32_t stream = 0;      // 0: the main stream of the thread
  uint32_t graph_node = 0;  // from 1; 0: not of a graph
  int64_t bytes = 0;        // of a copy or a fill
  int32_t launches = 1;     // kernels it stands for; 0: a library's, unknown, at least one
  LaunchKind kind = LaunchKind::kernel;
  Source source = Source::none;
  Footprint footprint{};  // of a kernel, as far as it is known

  int64_t device_ns() const { return dev_t1 - dev_t0; }
  // What is counted for it.
  uint32_t at_least() const { return launches > 0 ? uint32_t(launches) : 1; }
};

}  // namespace sinter::profiler
