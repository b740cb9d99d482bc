// What a thread is doing on the card: its stream, and whether launches run, are rehearsed or become
// nodes of a graph. For the .cpp files that call the toolkit on a stream (cuda.cpp, cuda_graph.cpp,
// the library ops); empty in a build without the toolkit. Streams are never given back while the
// process uses the card: a thread that ends leaves its own to the next, so work stays in order.
#pragma once

#if SINTER_HAS_CUDA

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/device/cuda.h"
#include "core/device/cuda_api.h"
#include "core/device/cuda_graph.h"
#include "core/storage.h"

namespace sinter::cuda {

enum class Mode : uint8_t {
  run,
  rehearse,  // nothing runs; kernels are loaded, plans made, memory asked for: all that a capture
             // may not do
  capture,   // launches become nodes of a graph
};

struct Stream {
  cudaStream_t handle = nullptr;
  uint32_t* fault_host = nullptr;  // mapped memory, the first 4 bytes of it; both views
  uint32_t* fault_device = nullptr;
  LaunchShape last_launch{"none", {}};
  Stream* side = nullptr;  // for the branches of a graph; made by side_stream()
  bool captures = false;   // guarded by waits_for_streams()
  std::map<size_t, std::unique_ptr<Storage>> scratch;  // by size: scratch()

  Stream() = default;
  ~Stream() {
    if (fault_host) api().cudaFreeHost(fault_host);
    if (handle) api().cudaStreamDestroy(handle);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

struct ThreadState {
  Stream* main = nullptr;
  Stream* now = nullptr;  // main, or its side stream inside a branch
  Mode mode = Mode::run;
  // During rehearsal and capture: blocks that were released, (block, bytes). The graph goes on
  // using them.
  std::vector<std::pair<void*, size_t>>* kept = nullptr;
  // During capture: what the rehearsal was given, to be given once more.
  std::vector<std::pair<void*, size_t>>* rehearsed = nullptr;
};

// Opens the card and makes the thread's stream at the first call. Throws device: no driver, no
// card, no code for the card.
ThreadState& thread_state();
inline cudaStream_t stream() { return thread_state().now->handle; }
inline Event make_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  SINTER_CUDA_CALL(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}
inline bool capturing() { return thread_state().mode == Mode::capture; }
Stream& side_stream(Stream& main);
// Who waits for another thread's stream holds it, and who begins or ends a capture: to wait for a
// stream that captures would invalidate its capture.
std::mutex& waits_for_streams();
// Steps out of what the thread is about, a rehearsal say: what is launched now runs, or goes into a
// graph of its own.
struct Aside {
  Aside() {
    thread.mode = Mode::run;
    thread.kept = thread.rehearsed = nullptr;
    thread.now = thread.main;
  }
  ~Aside() { thread = before; }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  ThreadState& thread = thread_state();
  const ThreadState before = thread;
};
// Of the card in use.
Allocator& memory();
Device device();
// What this thread launched last; for the recorder.
const LaunchShape& last_launch();

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
