// The CUDA device as the rest of the framework sees it: memory, copies, launches. No header of the
// toolkit is needed to include this, and all of it is there in every build: without the toolkit, or
// without a driver, calls throw not_built or device and say which of the two. Work goes to one
// stream per thread; copies to the host wait for it, nothing else does. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <functional>

#include "core/allocator.h"
#include "core/device/grid.h"

namespace sinter::cuda {

// Number of cards; 0 without a driver. Throws not_built in a build without CUDA.
int device_count();
// Of the card in use, for what is kept between runs: "cc 9.0, 132 SMs, driver 13.0".
struct CardFacts {
  int64_t l2_bytes = 0;
  std::string text{};
};
CardFacts card_facts();
int multiprocessors();
size_t shared_memory_limit();  // of a block that asks; each launch of a product wants to know
// Throws device if kernels cannot run on that card: no driver, an old one, no such card, no code
// for it.
void check_device(int device);
// A process uses one card: the first that is asked for here.
Allocator& allocator(int device);
// Opens what the first step would wait for: the card, cuBLASLt, the choices kept, and for one with
// convolutions cuDNN. For a thread beside one that loads data, which waits
// for a library before it captures: should that wait for the whole card, it would invalidate a
// capture of whatever thread, so no other is opened here. Kernels are loaded one by one, when they
// are rehearsed: the toolkits that this builds with do so by themselves. What fails is skipped: who
// needs it will be told.
void warm_up(int device, bool convolves);

void copy_to_device(void* to, const void* from, size_t bytes);  // `from` may be changed on return
void copy_to_host(void* to, const void* from, size_t bytes);  // after all that was launched before
void copy_on_device(void* to, const void* from, size_t bytes);
void fill(void* to, uint8_t byte, size_t bytes);
// The stream's own `bytes`, as sinter::scratch() has them; made now, even in a rehearsal. The first
// `zeros` of them begin as 0.
void* scratch(size_t bytes, size_t zeros);
// Waits for the thread's stream. Throws what kernels reported (fault()) and how they failed.
void synchronize();

// Starts a kernel on the thread's stream; `arguments` point to its parameters.
// waits: it may begin before the one before has ended (launch_waiting).
void launch(const void* kernel, const LaunchShape& shape, void** arguments, bool waits = false);
// True while a graph is rehearsed: launches load their kernels, and neither run nor count.
bool rehearsing();
// Memory that kernels and the host both reach: the first Fault since the last synchronize().
uint32_t* fault_flag();
// Called by set_api() before streams and memory go; for handles, plans and tensors that are kept.
// In a build without CUDA nothing goes, and nothing is called.
void at_reset(std::function<void()> function);

}  // namespace sinter::cuda
