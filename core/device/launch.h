// launch<kernel>(grid, block, shared_bytes, args...): the only way to start a kernel, for the
// emulator and for CUDA alike. Checks the shape, counts, logs, and hands the kernel to the device's
// queue; it returns before the kernel has run. Included by .cu files only.
#pragma once

#include <array>
#include <tuple>

#include "core/device/kernel.h"
#include "core/device/launch_log.h"
#if defined(__CUDACC__)
#include "core/device/cuda.h"
#endif

namespace sinter::SINTER_KERNEL_NS {

// "pointwise_vec<pointwise::Gelu, float>"
template <auto kernel, class... P> std::string_view kernel_name(void (*)(P...)) {
  static const std::string name = kernel_name_in(__PRETTY_FUNCTION__);
  return name;
}

template <class... P>
inline constexpr std::array<size_t, sizeof...(P)> kParameterBytes{sizeof(P)...};

// Arguments are converted to the kernel's parameters. REQUIRES: at least one block; block <= 1024
// (checked).
template <auto kernel, class... P, class... A>
void launch_as(
    void (*)(P...), bool waits, const Grid& grid, int block, size_t shared_bytes, A&&... args) {
  const LaunchShape shape{
      kernel_name<kernel>(kernel), grid, block, shared_bytes, kParameterBytes<P...>};
#if defined(__CUDACC__)
  if (!cuda::rehearsing()) log_launch(shape);
#else
  log_launch(shape);
#endif
#if defined(__CUDACC__)
  std::tuple<P...> values(static_cast<P>(args)...);
  std::apply(
      [&](P&... p) {
        void* pointers[] = {static_cast<void*>(&p)..., nullptr};
        cuda::launch(reinterpret_cast<const void*>(kernel), shape, pointers, waits);
      },
      values);
#else
  simt::enqueue(
      shape, [values = std::tuple<P...>(static_cast<P>(args)...)] { std::apply(kernel, values); },
      waits);
#endif
}
template <auto kernel, class... A>
void launch(const Grid& grid, int block, size_t shared_bytes, A&&... args) {
  launch_as<kernel>(kernel, false, grid, block, shared_bytes, std::forward<A>(args)...);
}
// Of a kernel whose first words are wait_for_upstream() and begin_dependents(): where the process
// has SINTER_DEPENDENT_LAUNCH=1 in its environment, it may begin while the one before still runs.
template <auto kernel, class... A>
void launch_waiting(const Grid& grid, int block, size_t shared_bytes, A&&... args) {
  launch_as<kernel>(kernel, true, grid, block, shared_bytes, std::forward<A>(args)...);
}

#if defined(__CUDACC__)
inline constexpr Device kDevice{Device::Type::cuda, 0};
#else
inline constexpr Device kDevice{Device::Type::simt, 0};
#endif
// That blocks are spread over.
inline int multiprocessors() {
#if defined(__CUDACC__)
  return cuda::multiprocessors();
#else
  return simt::multiprocessors();
#endif
}

// What kernels pass to fault().
inline uint32_t* fault_flag() {
#if defined(__CUDACC__)
  return cuda::fault_flag();
#else
  return nullptr;
#endif
}

// Blocks of `per_block` items for n of them.
constexpr int64_t blocks_for(int64_t n, int64_t per_block) {
  return (n + per_block - 1) / per_block;
}

}  // namespace sinter::SINTER_KERNEL_NS
