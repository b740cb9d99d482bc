#include "core/device/cuda.h"

#if SINTER_HAS_CUDA

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <unordered_map>

#include "core/allocator.h"
#include "core/classic.h"
#include "core/device/cuda_stream.h"
#include "core/device/launch_hook.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

constexpr size_t kSharedAlways = 48 << 10;  // beyond it a kernel must ask

struct Owners {
  Stream* allocated_by = nullptr;
  Stream* released_by = nullptr;
};

// Memory of the card. May a thread whose stream is T take a block that was released? The block's
// streams are those of who allocated and of who released it.
//
//   the block's        that capture          then
//   T alone, or none   whatever              reuse: the stream's order is enough
//   another            none of them, nor T   wait for the others, then reuse
//   another            one of them, or T     refuse: waiting would invalidate the capture
//
// So a capture may be refused what its rehearsal was given. It is given that once more, by size: it
// was kept meanwhile, and no other thread has it.
class CudaAllocator final : public Allocator {
 public:
  CudaAllocator() : Allocator("cuda", true) {}

  void* allocate(size_t bytes) override {
    const ThreadState& thread = thread_state();
    if (auto* const blocks = thread.rehearsed) {
      const auto same = std::ranges::find(
          *blocks, size_class(bytes), [](const auto& b) { return size_class(b.second); });
      if (same != blocks->end()) {
        void* const block = same->first;
        blocks->erase(same);
        return block;
      }
    }
    void* block = nullptr;
    try {
      block = Allocator::allocate(bytes);
    } catch (const Error& e) {
      if (e.kind() != Error::Kind::memory) throw;
      throw out_of_memory(bytes);
    }
    if (!block) return nullptr;
    const std::lock_guard lock(waits_for_streams());
    owners_[block] = {.allocated_by = thread.main};
    return block;
  }

  void release(void* block, size_t bytes) noexcept override;

  // Tensors have gone; streams go next.
  void reset() {
    trim();
    owners_.clear();
  }

 private:
  Error out_of_memory(size_t bytes) {
    const auto gib = [](double b) { return std::round(b / (1 << 30) * 10) / 10; };
    size_t free = 0, total = 0;
    api().cudaMemGetInfo(&free, &total);
    const MemoryStats now = stats();
    return Error(Error::Kind::memory,
        str("cuda: out of memory asking ", (bytes + (1 << 20) - 1) >> 20, " MiB; ",
            gib(static_cast<double>(total - free)), " of ", gib(static_cast<double>(total)),
            " GiB in use (ours ", gib(static_cast<double>(now.live_bytes)), ")"),
        "a smaller batch takes less");
  }

  bool may_reuse(void* block, bool wait) override {
    Stream* const mine = thread_state().main;
    const std::lock_guard lock(waits_for_streams());
    const Owners owners = owners_[block];
    std::set<Stream*> others{owners.allocated_by, owners.released_by};
    others.erase(nullptr);
    others.erase(mine);
    if (others.empty()) return true;
    if (!wait || mine->captures || std::ranges::any_of(others, &Stream::captures)) return false;
    for (const Stream* other : others)
      api().cudaStreamSynchronize(other->handle);  // what failed there is that thread's to hear
    return true;
  }

  void* system_allocate(size_t bytes) override {
    SINTER_CHECK(!capturing(), state,
        str("cuda: ", bytes,
            " bytes asked from the card while a step is captured; the rehearsal asked for less"));
    void* block = nullptr;
    const cudaError_t answer = api().cudaMalloc(&block, bytes);
    if (answer == cudaErrorMemoryAllocation) {
      api().cudaGetLastError();
      return nullptr;
    }
    check(answer, "cudaMalloc");
    return block;
  }
  void system_free(void* block, size_t) noexcept override { api().cudaFree(block); }

  std::unordered_map<void*, Owners> owners_;  // guarded by waits_for_streams()
};

// Everything on the card that lives longer than a call. set_api() starts a new generation.
struct Runtime {
  const Api* api = &real_api();
  std::mutex mutex;
  int device = -1;  // -1: not chosen yet
  bool opened = false;
  uint64_t generation = 0;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Stream*> idle;
  std::vector<std::function<void()>> at_reset;
  std::unordered_map<const void*, size_t>
      shared_limits;  // kernels that asked for more shared memory
};

// Never destroyed: tensors in static storage may outlive any order of destruction.
Runtime& runtime() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}
CudaAllocator& card_memory() {
  static CudaAllocator& memory = *new CudaAllocator;
  return memory;
}

std::string version_text(int version) { return str(version / 1000, ".", version % 1000 / 10); }

// Machine code of 80 runs on cards from 8.0 on below 9.0, and its PTX on all later ones; code of
// 100f, PTX or not, on those of 10.x; code of 90a on 9.0 alone.
bool has_code_for(int capability) {
  ClassicStream<std::istringstream> list(api().architectures);
  bool has_ptx = true;
  for (std::string one; std::getline(list, one, ','); has_ptx = false) {
    const int of = std::atoi(one.c_str());
    const bool same_major = capability / 10 == of / 10, plain = std::isdigit(one.back());
    if (capability == of) return true;
    if (capability > of && one.back() != 'a' && (same_major || (has_ptx && plain))) return true;
  }
  return false;
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  SINTER_CUDA_CALL(cudaDeviceGetAttribute(&value, which, device().index));
  return value;
}

// A side stream shares its main stream's flag.
Stream* make_stream(Stream* main) {
  auto s = std::make_unique<Stream>();
  SINTER_CUDA_CALL(cudaStreamCreateWithFlags(&s->handle, cudaStreamNonBlocking));
  if (main) {
    s->fault_device = main->fault_device;
  } else {
    void *host = nullptr, *device = nullptr;
    SINTER_CUDA_CALL(cudaHostAlloc(&host, sizeof(uint32_t), cudaHostAllocMapped));
    s->fault_host = static_cast<uint32_t*>(host);
    *s->fault_host = 0;
    SINTER_CUDA_CALL(cudaHostGetDevicePointer(&device, host, 0));
    s->fault_device = static_cast<uint32_t*>(device);
  }
  return runtime().streams.emplace_back(std::move(s)).get();
}

struct ThreadSlot {
  ThreadState state;
  uint64_t generation = 0;
  bool current() const { return state.main && generation == runtime().generation; }
  ~ThreadSlot() {
    const std::lock_guard lock(runtime().mutex);
    if (current()) runtime().idle.push_back(state.main);
  }
};
thread_local ThreadSlot slot;

void CudaAllocator::release(void* block, size_t bytes) noexcept {
  if (!block) return;
  if (slot.current()) {
    if (slot.state.kept) {
      slot.state.kept->emplace_back(block, bytes);
      return;
    }
    const std::lock_guard lock(waits_for_streams());
    owners_[block].released_by = slot.state.main;
  }
  Allocator::release(block, bytes);
}

}  // namespace

const Api& api() { return *runtime().api; }
Allocator& memory() { return card_memory(); }
Device device() { return {Device::Type::cuda, static_cast<int8_t>(std::max(runtime().device, 0))}; }

void set_api(const Api& table) {
  Runtime& r = runtime();
  for (const auto& function : r.at_reset) function();
  for (const auto& s : r.streams) s->scratch.clear();
  card_memory().reset();
  const std::lock_guard lock(r.mutex);
  r.streams.clear();
  r.idle.clear();
  r.shared_limits.clear();
  r.device = -1;
  r.opened = false;
  ++r.generation;
  r.api = &table;
}

void at_reset(std::function<void()> function) {
  const std::lock_guard lock(runtime().mutex);
  runtime().at_reset.push_back(std::move(function));
}

ThreadState& thread_state() {
  if (slot.current()) return slot.state;
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  if (r.device < 0) r.device = 0;
  if (!r.opened) {
    check_device(r.device);
    r.opened = true;
  }
  SINTER_CUDA_CALL(cudaSetDevice(r.device));
  Stream* main = nullptr;
  if (r.idle.empty()) {
    main = make_stream(nullptr);
  } else {
    main = r.idle.back();
    r.idle.pop_back();
  }
  slot.state = {.main = main, .now = main};
  slot.generation = r.generation;
  return slot.state;
}

Stream& side_stream(Stream& main) {
  const std::lock_guard lock(runtime().mutex);
  if (!main.side) main.side = make_stream(&main);
  return *main.side;
}

std::mutex& waits_for_streams() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

const LaunchShape& last_launch() { return thread_state().now->last_launch; }

int device_count() {
  int count = 0;
  const cudaError_t answer = api().cudaGetDeviceCount(&count);
  if (answer == cudaErrorInsufficientDriver || answer == cudaErrorNoDevice) {
    api().cudaGetLastError();
    return 0;
  }
  check(answer, "cudaGetDeviceCount");
  return count;
}

CardFacts card_facts() {
  thread_state();
  int driver = 0;
  SINTER_CUDA_CALL(cudaDriverGetVersion(&driver));
  return {.l2_bytes = attribute(cudaDevAttrL2CacheSize),
      .text = str("cc ", attribute(cudaDevAttrComputeCapabilityMajor), ".",
          attribute(cudaDevAttrComputeCapabilityMinor), ", ", multiprocessors(), " SMs, driver ",
          version_text(driver))};
}

void check_device(int device) {
  int count = 0, driver = 0;
  const cudaError_t answer = api().cudaGetDeviceCount(&count);
  if (answer == cudaErrorInsufficientDriver) {
    api().cudaGetLastError();
    api().cudaDriverGetVersion(&driver);
    SINTER_CHECK(driver != 0, device,
        str("cuda: no CUDA device: no driver (cudaGetDeviceCount says ", static_cast<int>(answer),
            ")"),
        devices_without_cuda());
    throw Error(Error::Kind::device,
        str("cuda: the driver is too old: it is for CUDA ", version_text(driver),
            ", this build needs ", version_text(CUDART_VERSION), " (cudaGetDeviceCount says ",
            static_cast<int>(answer), ")"),
        "update the driver, or build with the toolkit of its version");
  }
  if (answer == cudaErrorNoDevice || (answer == cudaSuccess && count == 0)) {
    throw Error(Error::Kind::device,
        str("cuda: no CUDA device: the driver shows no card (cudaGetDeviceCount says ",
            static_cast<int>(answer), ")"),
        "CUDA_VISIBLE_DEVICES may hide it");
  }
  check(answer, "cudaGetDeviceCount");
  SINTER_CHECK(device < count, device,
      str("cuda:", device, ": no such card: there are ", count,
          "; allowed cuda:0..cuda:", count - 1));
  int major = 0, minor = 0;
  SINTER_CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  SINTER_CUDA_CALL(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  SINTER_CHECK(has_code_for(10 * major + minor), device,
      str("cuda:", device, ": no code for this card: its compute capability is ", major, ".", minor,
          ", SINTER_CUDA_ARCHITECTURES of this build is ", api().architectures),
      "configure with its number there; \"80;90a\" serves every card from 8.0 on, and a number "
      "that ends in a only its own");
}

int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

size_t shared_memory_limit() {
  thread_state();  // opens the card
  return static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

Allocator& allocator(int device) {
  Runtime& r = runtime();
  const std::lock_guard lock(r.mutex);
  if (r.device < 0) r.device = device;
  SINTER_CHECK(r.device == device, usage,
      str("cuda:", device, ": a process uses one card, and it uses cuda:", r.device, " already"),
      "CUDA_VISIBLE_DEVICES chooses cards");
  return memory();
}

bool rehearsing() { return thread_state().mode == Mode::rehearse; }

// Machine code for the card: of PTX of an earlier one the driver would make kernels that do not
// wait.
static bool has_dependent_launch() {
  static const char* const wanted = std::getenv("SINTER_DEPENDENT_LAUNCH");
  if (!wanted || *wanted != '1') return false;
  const int major = attribute(cudaDevAttrComputeCapabilityMajor);
  return major >= 9 &&
         str(",", api().architectures).find(str(",", major, "0")) != std::string::npos;
}

void launch(const void* kernel, const LaunchShape& shape, void** arguments, bool waits) {
  ThreadState& t = thread_state();
  Stream& s = *t.now;
  s.last_launch = shape;
  if (shape.shared_bytes > kSharedAlways) {
    Runtime& r = runtime();
    const std::lock_guard lock(r.mutex);
    size_t& limit = r.shared_limits[kernel];
    if (limit < shape.shared_bytes) {
      const auto answer = api().cudaFuncSetAttribute(kernel,
          cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
      check(answer, "cudaFuncSetAttribute", shape.kernel);
      limit = shape.shared_bytes;
    }
  }
  if (t.mode == Mode::rehearse) {
    // Loads the kernel: the first launch of one may synchronize, which a capture must not.
    cudaFuncAttributes attributes{};
    return check(
        api().cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes", shape.kernel);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.grid.x), static_cast<unsigned>(shape.grid.y),
      static_cast<unsigned>(shape.grid.z));
  config.blockDim = dim3(static_cast<unsigned>(shape.block));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = s.handle;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (waits && has_dependent_launch()) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
  const HookedCall hooked(Device::Type::cuda, shape, t.mode == Mode::run);
  check(api().cudaLaunchKernelExC(&config, kernel, arguments), "cudaLaunchKernelExC", shape.kernel);
}

uint32_t* fault_flag() { return thread_state().now->fault_device; }

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
