#include "core/device/cuda_upload.h"

#if SINTER_HAS_CUDA

#include "core/device/cuda_stream.h"
#include "core/device/launch_hook.h"

namespace sinter::cuda {

Upload::Upload(size_t bytes) {
  thread_state();  // opens the card
  launched_ = make_event();
  copied_ = make_event();
  SINTER_CUDA_CALL(cudaHostAlloc(&memory_, bytes, cudaHostAllocDefault));
}

Upload::~Upload() {
  if (stream_) api().cudaStreamSynchronize(stream_);
  api().cudaFreeHost(memory_);
}

void Upload::start(std::initializer_list<Part> parts) {
  Stream& main = *thread_state().main;
  const cudaStream_t side = side_stream(main).handle;
  SINTER_CUDA_CALL(cudaEventRecord(launched_.get(), main.handle));
  SINTER_CUDA_CALL(cudaStreamWaitEvent(side, launched_.get(), 0));
  stream_ = side;
  for (const Part& part : parts) {
    const HookedCall hooked(DeviceWork::copy, Device::Type::cuda, "memcpy", part.bytes);
    SINTER_CUDA_CALL(cudaMemcpyAsync(part.to, part.from, part.bytes, cudaMemcpyHostToDevice, side));
  }
  SINTER_CUDA_CALL(cudaEventRecord(copied_.get(), side));
}

void Upload::wait() {
  SINTER_CUDA_CALL(cudaStreamWaitEvent(thread_state().main->handle, copied_.get(), 0));
}

void Upload::wait_on_host() {
  thread_state();  // for a thread that has chosen no card the runtime would open the first one
  SINTER_CUDA_CALL(cudaEventSynchronize(copied_.get()));
  stream_ = nullptr;
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
