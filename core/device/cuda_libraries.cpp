#include "core/device/cuda_libraries.h"

#if SINTER_HAS_CUDA

#include "core/device/kept_choices.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

template <class Handle> void open() {
  const std::lock_guard lock(Handle::get().mutex);
  Handle::get().on_stream();
}

}  // namespace

void warm_up(int device, [[maybe_unused]] bool convolves,
    const std::function<void(const char* what)>& done) {
  const auto open_first = [&](const char* what, const std::function<void()>& open) {
    try {
      open();
    } catch (const Error&) {  // who needs it will be told
    }
    done(what);
  };
  open_first("card", [&] {
    allocator(device);
    thread_state();
  });
  open_first("cuBLASLt", open<CublasLtHandle>);
  open_first("choices kept", [] { kept_choice(""); });
#if SINTER_HAS_CUDNN
  if (convolves) open_first("cuDNN", open<CudnnHandle>);
#endif
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
