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

void warm_up(int device, [[maybe_unused]] bool convolves) {
  const auto try_to = [](const std::function<void()>& open) {
    try {
      open();
    } catch (const Error&) {  // who needs it will be told
    }
  };
  try_to([&] {
    allocator(device);
    thread_state();
  });
  try_to(open<CublasLtHandle>);
  try_to([] { kept_choice(""); });
#if SINTER_HAS_CUDNN
  if (convolves) try_to(open<CudnnHandle>);
#endif
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
