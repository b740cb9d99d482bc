// Kernels that are compiled while the program runs, by NVRTC. The library is looked for when the
// first such kernel is wanted, and never linked: where it is absent, or a source does not compile
// or load, the caller is told why and runs another kernel. No header of the toolkit is needed; the
// functions are defined in builds with CUDA only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sinter::cuda {

// The functions of NVRTC in use; each answers a status, 0: done. The first argument but for the
// first function is the program.
#define SINTER_NVRTC_CALLS(X)                                                      \
  X(nvrtcCreateProgram, void**, const char* source, const char* name, int headers, \
      const char* const* texts, const char* const* names)                          \
  X(nvrtcCompileProgram, void*, int, const char* const* options)                   \
  X(nvrtcDestroyProgram, void**)                                                   \
  X(nvrtcGetProgramLogSize, void*, size_t*)                                        \
  X(nvrtcGetProgramLog, void*, char*)                                              \
  X(nvrtcGetPTXSize, void*, size_t*)                                               \
  X(nvrtcGetPTX, void*, char*)                                                     \
  X(nvrtcGetCUBINSize, void*, size_t*)                                             \
  X(nvrtcGetCUBIN, void*, char*)
struct Nvrtc {
#define SINTER_POINTER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  SINTER_NVRTC_CALLS(SINTER_POINTER)
#undef SINTER_POINTER
};
// The library of this toolkit's version, where the loader finds it or the toolkit was; nullptr and,
// in `why`, the loader's words otherwise.
const Nvrtc* load_nvrtc(std::string* why);
// For tests: another table in place of the library's, nullptr: the library again. Without one a
// recorder has none (tests/cuda_recorder.h).
void set_nvrtc(const Nvrtc* table);

// What a source includes: nothing is read from disk.
struct SourceHeader {
  const char *name, *text;
};
struct CompiledSource {
  std::string code, error;  // one of them is empty
};
// C++20 without contraction, as nvcc is used here. arch "sm_90" gives machine code, "compute_90"
// PTX.
CompiledSource compile_source(const Nvrtc& nvrtc, const std::string& source,
    std::span<const SourceHeader> headers, const std::string& arch);

struct SourceKernel {
  const void* function = nullptr;  // for cuda::launch()
  std::string why;                 // there is none
};
// The extern "C" kernel `name` of a source, compiled for the card in use and loaded at the first
// call with that source. REQUIRES: that call is outside of a capture, as in its rehearsal; the
// result is used before the next set_api().
const SourceKernel& kernel_of_source(
    const std::string& source, const char* name, std::span<const SourceHeader> headers);

}  // namespace sinter::cuda
