// Copies, fills, scratch memory and waiting, on the thread's stream.
#if SINTER_HAS_CUDA

#include "core/device/cuda.h"
#include "core/device/cuda_stream.h"
#include "core/device/kernel.h"
#include "core/device/launch_hook.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

// True if the work is to be put on the stream; `what` may not happen inside a captured step if it
// `touches_host`.
bool runs(const char* what, bool touches_host) {
  SINTER_CHECK(!touches_host || !capturing(), state, str("cuda: ", what, " inside a captured step"),
      "let the step return the tensor, and copy it afterwards");
  return !rehearsing();
}

void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const HookedCall hooked(DeviceWork::copy, Device::Type::cuda, "memcpy", bytes, !capturing());
  SINTER_CUDA_CALL(cudaMemcpyAsync(to, from, bytes, kind, stream()));
}

}  // namespace

// cudaMemcpyAsync may read pageable memory after it has returned, where the card reaches all of the
// host's, and the caller may free it at once: so this waits. No step copies from the host.
void copy_to_device(void* to, const void* from, size_t bytes) {
  if (!bytes || !runs("a copy from the host", true)) return;
  copy(to, from, bytes, cudaMemcpyHostToDevice);
  SINTER_CUDA_CALL(cudaStreamSynchronize(stream()));
}
void copy_to_host(void* to, const void* from, size_t bytes) {
  if (!bytes || !runs("a copy to the host", true)) return;
  copy(to, from, bytes, cudaMemcpyDeviceToHost);
  synchronize();
}
void copy_on_device(void* to, const void* from, size_t bytes) {
  if (bytes && to != from && runs("a copy", false)) copy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
void fill(void* to, uint8_t byte, size_t bytes) {
  if (!bytes || !runs("a fill", false)) return;
  const HookedCall hooked(DeviceWork::fill, Device::Type::cuda, "memset", bytes, !capturing());
  SINTER_CUDA_CALL(cudaMemsetAsync(to, byte, bytes, stream()));
}

void* scratch(size_t bytes, size_t zeros) {
  auto& blocks = thread_state().now->scratch;
  if (const auto found = blocks.find(bytes); found != blocks.end()) return found->second->data();
  SINTER_ASSERT(!capturing(), "scratch memory that no rehearsal asked for");
  // In a rehearsal a fill would do nothing, and in the capture that follows nobody would think of
  // it. The main stream's work comes before every graph, and so before its branches.
  const Aside aside;
  auto block = std::make_unique<Storage>(bytes, device());
  fill(block->data(), 0, zeros);
  return blocks.emplace(bytes, std::move(block)).first->second->data();
}

void synchronize() {
  Stream& s = *thread_state().main;
  if (!runs("waiting for the card", true)) return;
  const cudaError_t answer = api().cudaStreamSynchronize(s.handle);
  SINTER_CHECK(answer == cudaSuccess, device,
      str("cuda: a kernel failed: ", explain(answer, "cudaStreamSynchronize"),
          "; launched last: ", s.last_launch.kernel),
      "device simt names the access");
  volatile uint32_t& flag = *s.fault_host;
  const auto fault = static_cast<Fault>(flag);
  flag = 0;
  SINTER_CHECK(fault == Fault::none, data,
      str("cuda: ", fault == Fault::label_out_of_range ? "label" : "index",
          " out of range: met by a kernel since the last wait; launched last: ",
          s.last_launch.kernel),
      str(devices_without_cuda(), " names the row"));
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
