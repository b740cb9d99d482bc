#include "core/device/nvtx.h"

#if SINTER_HAS_CUDA

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

namespace sinter {

const RangeCalls* attached_ranges() noexcept {
  static const RangeCalls calls{
      [](const char* name) { nvtxRangePushA(name); }, [] { nvtxRangePop(); }};
  return std::getenv("NVTX_INJECTION64_PATH") ? &calls : nullptr;
}

}  // namespace sinter

#else

namespace sinter {
const RangeCalls* attached_ranges() noexcept { return nullptr; }
}  // namespace sinter

#endif  // SINTER_HAS_CUDA
