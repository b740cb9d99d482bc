// Named ranges for a tool that watches the process from outside (nsys): the calls of NVTX, or of a
// test that stands in for them.
#pragma once

namespace sinter {

struct RangeCalls {
  void (*push)(const char* name);
  void (*pop)();
};
// nullptr unless a tool is attached (it says so in NVTX_INJECTION64_PATH) and the build has the
// toolkit.
const RangeCalls* attached_ranges() noexcept;

}  // namespace sinter
