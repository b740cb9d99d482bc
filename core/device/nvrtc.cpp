#include "core/device/nvrtc.h"

#if SINTER_HAS_CUDA

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

#include "core/device/cuda_stream.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

const Nvrtc* table_of_test = nullptr;

const Nvrtc* nvrtc_in_use(std::string* why) {
  if (table_of_test) return table_of_test;
  if (api().real) return load_nvrtc(why);
  *why = "no card";
  return nullptr;
}

struct Loaded {
  cudaLibrary_t library = nullptr;
  SourceKernel kernel;
};
struct Cache {
  std::mutex mutex;
  std::map<std::string, Loaded> by_source;
  Cache() {
    at_reset([this] {
      for (const auto& [source, loaded] : by_source) {
        if (loaded.library) api().cudaLibraryUnload(loaded.library);
      }
      by_source.clear();
    });
  }
};

// SourceKernel::why says what failed; its library is given back.
Loaded load(const std::string& source, const char* name, std::span<const SourceHeader> headers) {
  Loaded loaded;
  std::string& why = loaded.kernel.why;
  const Nvrtc* nvrtc = nvrtc_in_use(&why);
  if (!nvrtc) {
    why = "no NVRTC: " + why;
    return loaded;
  }
  int major = 0, minor = 0;
  SINTER_CUDA_CALL(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device().index));
  SINTER_CUDA_CALL(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device().index));
  const CompiledSource compiled = compile_source(*nvrtc, source, headers, cat("sm_", major, minor));
  if (!compiled.error.empty()) {
    why = "NVRTC: " + compiled.error;
    return loaded;
  }
  cudaKernel_t kernel = nullptr;
  cudaError_t answer = api().cudaLibraryLoadData(
      &loaded.library, compiled.code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (answer != cudaSuccess) {
    why = explain(answer, "cudaLibraryLoadData");
    return Loaded{.kernel = loaded.kernel};
  }
  answer = api().cudaLibraryGetKernel(&kernel, loaded.library, name);
  if (answer != cudaSuccess) {
    why = explain(answer, "cudaLibraryGetKernel");
    api().cudaLibraryUnload(loaded.library);
    return Loaded{.kernel = loaded.kernel};
  }
  loaded.kernel.function = kernel;
  return loaded;
}

}  // namespace

const Nvrtc* load_nvrtc(std::string* why) {
  struct Library {
    Nvrtc table;
    std::string why;
  };
  static const Library& library = *new Library([] {
    Library l;
    const std::string name = cat("libnvrtc.so.", CUDART_VERSION / 1000);
    void* handle = open_library(name, &l.why);
    if (!handle) return l;
    const char* missing = nullptr;
#define SINTER_FIND(name, ...)                                                   \
  l.table.name = reinterpret_cast<decltype(l.table.name)>(dlsym(handle, #name)); \
  if (!l.table.name) missing = #name;
    SINTER_NVRTC_CALLS(SINTER_FIND)
#undef SINTER_FIND
    if (missing) l.why = cat(name, " has no ", missing);
    return l;
  }());
  *why = library.why;
  return library.why.empty() ? &library.table : nullptr;
}

void set_nvrtc(const Nvrtc* table) { table_of_test = table; }

CompiledSource compile_source(const Nvrtc& nvrtc, const std::string& source,
    std::span<const SourceHeader> headers, const std::string& arch) {
  std::vector<const char*> names, texts;
  for (const SourceHeader& header : headers) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  void* program = nullptr;
  if (const int answer = nvrtc.nvrtcCreateProgram(&program, source.c_str(), "generated.cu",
          static_cast<int>(names.size()), texts.data(), names.data()))
    return {.code = "", .error = cat("nvrtcCreateProgram says ", answer)};
  const std::string target = "--gpu-architecture=" + arch;
  const char* const options[] = {"--std=c++20", "--fmad=false", "-default-device", target.c_str()};
  const auto text = [&](auto size_of, auto copy) {
    size_t bytes = 0;
    if (size_of(program, &bytes) != 0) bytes = 0;
    std::string all(bytes, '\0');
    return bytes && copy(program, all.data()) == 0 ? all : "";
  };
  CompiledSource compiled;
  if (const int answer = nvrtc.nvrtcCompileProgram(program, 4, options)) {
    const std::string log = text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog);
    compiled.error = cat(log.substr(0, log.find_first_of(std::string("\n\0", 2))),
        " (nvrtcCompileProgram says ", answer, ")");
  } else {
    compiled.code = arch.starts_with("sm_") ? text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
                                            : text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX);
    if (compiled.code.empty()) compiled.error = "it gives no code";
  }
  nvrtc.nvrtcDestroyProgram(&program);
  return compiled;
}

const SourceKernel& kernel_of_source(
    const std::string& source, const char* name, std::span<const SourceHeader> headers) {
  thread_state();  // opens the card
  static Cache& cache = *new Cache;
  const std::lock_guard lock(cache.mutex);
  const auto it = cache.by_source.find(source);
  return (it != cache.by_source.end()
              ? it
              : cache.by_source.emplace(source, load(source, name, headers)).first)
      ->second.kernel;
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
