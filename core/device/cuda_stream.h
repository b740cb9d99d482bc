// What a thread is doing on the card: its stream, and whether launches run, are rehearsed or become
// nodes of a graph. For the .cpp files that call the toolkit on a stream (cuda.cpp, cuda_graph.cpp,
// the library ops); empty in a build without the toolkit. Streams are never given back while the
// process uses the card: a thread that ends leaves its own to the next, so work stays in order.
#pragma once

#if SINTER_HAS_CUDA

#include <functional>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/device/cuda.h"
#include "core/device/cuda_api.h"

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
  std::string_view last_kernel = "none";
  Stream* side = nullptr;  // for the branches of a graph; made by side_stream()
};

struct ThreadState {
  Stream* main = nullptr;
  Stream* now = nullptr;  // main, or its side stream inside a branch
  Mode mode = Mode::run;
  // During rehearsal and capture: blocks that were released, (block, bytes). The graph goes on
  // using them.
  std::vector<std::pair<void*, size_t>>* kept = nullptr;
};

// Opens the card and makes the thread's stream at the first call. Throws device: no driver, no
// card, no code for the card.
ThreadState& thread_state();
inline cudaStream_t stream() { return thread_state().now->handle; }
inline bool capturing() { return thread_state().mode == Mode::capture; }
Stream& side_stream(Stream& main);
// Of the card in use.
Allocator& memory();
Device device();
// Called by set_api() before streams and memory go; for handles and plans.
void at_reset(std::function<void()> function);
// The name of the kernel that this thread launched last, for messages and the recorder.
std::string_view last_kernel();

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
