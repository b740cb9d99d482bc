#include "core/device/cuda_upload.h"

#if SINTER_HAS_CUDA

#include "core/device/cuda_stream.h"
#include "core/device/launch_hook.h"

namespace sinter::cuda {
namespace {

cudaEvent_t upload_event(void* event) { return static_cast<cudaEvent_t>(event); }

void* new_upload_event() {
  cudaEvent_t event = nullptr;
  SINTER_CUDA_CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

}  // namespace

Upload::Upload(size_t bytes) {
  thread_state();  // opens the card
  SINTER_CUDA_CALL(cudaHostAlloc(&memory_, bytes, cudaHostAllocDefault));
  try {
    launched_ = new_upload_event();
    copied_ = new_upload_event();
  } catch (...) {
    if (launched_) api().cudaEventDestroy(upload_event(launched_));
    api().cudaFreeHost(memory_);
    throw;
  }
}

Upload::~Upload() {
  if (stream_) api().cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));
  api().cudaEventDestroy(upload_event(launched_));
  api().cudaEventDestroy(upload_event(copied_));
  api().cudaFreeHost(memory_);
}

void Upload::start(std::initializer_list<Part> parts) {
  Stream& main = *thread_state().main;
  const cudaStream_t side = side_stream(main).handle;
  SINTER_CUDA_CALL(cudaEventRecord(upload_event(launched_), main.handle));
  SINTER_CUDA_CALL(cudaStreamWaitEvent(side, upload_event(launched_), 0));
  stream_ = side;
  for (const Part& part : parts) {
    const HookedCall hooked(DeviceWork::copy, Device::Type::cuda, "memcpy", part.bytes);
    SINTER_CUDA_CALL(cudaMemcpyAsync(part.to, part.from, part.bytes, cudaMemcpyHostToDevice, side));
  }
  SINTER_CUDA_CALL(cudaEventRecord(upload_event(copied_), side));
}

void Upload::wait() {
  SINTER_CUDA_CALL(cudaStreamWaitEvent(thread_state().main->handle, upload_event(copied_), 0));
}

void Upload::wait_on_host() {
  SINTER_CUDA_CALL(cudaEventSynchronize(upload_event(copied_)));
  stream_ = nullptr;
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
