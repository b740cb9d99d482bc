#include "tests/cuda_recorder.h"

#if SINTER_HAS_CUDA

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "core/device/cuda_stream.h"
#include "core/device/kept_choices.h"
#include "core/error.h"

namespace sinter::cuda {
namespace {

constexpr int64_t kWorkNs = 2000;
constexpr size_t kSharedAlways = 48 << 10;
constexpr const char *kGemm = "cublaslt_gemm", *kGraph = "cudnn_graph";
constexpr size_t kPoisoned = 1 << 20;  // of a block; the rest is not touched
// Blocks lie so far behind a multiple of 256. A flag in a kernel's parameters may stand in front of
// padding that holds the rest of some old address; together they end in a byte of 0 or 1, which no
// block's begin does.
constexpr size_t kOffset = 16;
constexpr uintptr_t kTag = uintptr_t{1} << 62;  // no such address exists, so touching one crashes

enum class Id {
#define SINTER_ID(name) name,
  SINTER_CUDA_CALLS(SINTER_ID)
#undef SINTER_ID
};
constexpr const char* kNames[] = {
#define SINTER_NAME(name) #name,
    SINTER_CUDA_CALLS(SINTER_NAME)
#undef SINTER_NAME
};
template <Id id> using Call = std::integral_constant<Id, id>;
template <Id id> constexpr std::string_view kName = kNames[int(id)];

constexpr bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}
constexpr bool releases(std::string_view name) {
  return has(name, "Destroy") || has(name, "Free") || has(name, "Unload");
}
constexpr bool makes(std::string_view name) {
  return has(name, "Create") || has(name, "Alloc") || has(name, "Instantiate") ||
         has(name, "FuncGet") || has(name, "FuncSet");
}

// What the log calls the handles of a type; "" for what is no handle.
template <class T> constexpr std::string_view kKind = "";
template <> constexpr std::string_view kKind<cudaStream_t> = "stream";
template <> constexpr std::string_view kKind<cudaEvent_t> = "event";
template <> constexpr std::string_view kKind<cudaGraph_t> = "graph";
template <> constexpr std::string_view kKind<cudaGraphExec_t> = "executable graph";
template <> constexpr std::string_view kKind<cudaLibrary_t> = "library";
template <> constexpr std::string_view kKind<cublasLtHandle_t> = "cublasLt";
template <> constexpr std::string_view kKind<cublasLtMatmulDesc_t> = "matmul";
template <> constexpr std::string_view kKind<cublasLtMatrixLayout_t> = "layout";
template <> constexpr std::string_view kKind<cublasLtMatmulPreference_t> = "preference";
#if SINTER_HAS_CUDNN
template <> constexpr std::string_view kKind<cudnnHandle_t> = "cudnn";
template <> constexpr std::string_view kKind<cudnnTensorDescriptor_t> = "tensor";
template <> constexpr std::string_view kKind<cudnnFilterDescriptor_t> = "filter";
template <> constexpr std::string_view kKind<cudnnActivationDescriptor_t> = "activation";
template <> constexpr std::string_view kKind<cudnnConvolutionDescriptor_t> = "convolution";
#endif
uintptr_t word(const void* p) { return reinterpret_cast<uintptr_t>(p); }

struct Capture {
  FakeToolkit::Graph graph;
  std::vector<cudaStream_t> streams;           // the first is the origin
  std::map<cudaStream_t, std::set<int>> last;  // per stream: nodes that the next one follows
  std::thread::id thread = std::this_thread::get_id();
  bool valid = true;
};
using CapturePtr = std::shared_ptr<Capture>;

struct State {
  std::mutex mutex;
  FakeToolkit::Machine machine;
  std::vector<std::string> calls, executed;
  struct Failure {
    std::string name;  // "": any
    int64_t n;
    int answer;
    bool for_good = false;  // and so do all later calls of the runtime
  };
  std::vector<Failure> failures;
  std::string failed;
  uintptr_t next_handle = kTag;
  int64_t device_ns = 0;
  std::map<cudaEvent_t, int64_t> stamps;
  std::map<cudaEvent_t, unsigned> event_flags;  // as they were made with
  std::set<cudaEvent_t> captured_events;        // recorded last inside a capture
  std::map<const void*, size_t> shared_limits;  // of kernels that asked for more
  std::map<uintptr_t, std::string> handles;     // alive
  std::map<uintptr_t, size_t> blocks;           // alive: address -> bytes
  std::map<uintptr_t, int64_t> made;            // when each block was: it tells two of one address
  std::map<cudaStream_t, CapturePtr> capturing;
  // What a stream has still to do, in order: a copy from the host, or (to is null) what another
  // stream had to do up to some work.
  struct LateWork {
    int64_t number;
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
    cudaStream_t other = nullptr;
    int64_t up_to = 0;
  };
  std::map<cudaStream_t, std::deque<LateWork>> late;
  int64_t late_number = 0, allocations = 0;
  std::map<cudaEvent_t, std::pair<cudaStream_t, int64_t>> records;  // outside captures
  std::map<cudaEvent_t, std::pair<CapturePtr, std::set<int>>> events;
  std::map<uintptr_t, FakeToolkit::Graph> graphs;  // captured
  std::vector<FakeToolkit::Graph> executables;
  std::map<uintptr_t, size_t> executable_of;
  std::map<uintptr_t, FakeToolkit::Matrix> layouts;
  std::map<uintptr_t, std::map<int, std::vector<char>>> attributes;
  std::vector<FakeToolkit::Matmul> matmuls;
  std::vector<FakeToolkit::Convolution> convolutions;
  std::vector<FakeToolkit::GraphRun> graph_runs;
  std::vector<FakeToolkit::Copy> copies;

  template <class H> int make(H* to, std::string_view what = kKind<H>) {
    next_handle += 16;
    handles[next_handle] = what;
    *to = reinterpret_cast<H>(next_handle);
    return 0;
  }
  template <class H> int give_back(H handle) { return handles.erase(word(handle)) ? 0 : 1; }
  int allocate(void** to, size_t bytes, const char* what) {
    size_t used = 0;
    for (const auto& [address, size] : blocks) used += size;
    if (used + bytes > machine.memory) return cudaErrorMemoryAllocation;
    char* const memory =
        static_cast<char*>(std::aligned_alloc(256, (bytes + kOffset + 255) / 256 * 256)) + kOffset;
    std::memset(memory, 0xA5, std::min(bytes, kPoisoned));
    const uintptr_t address = word(memory) | kTag;
    blocks[address] = bytes;
    made[address] = ++allocations;
    handles[address] = str(what, " ", bytes);
    *to = reinterpret_cast<void*>(address);
    return 0;
  }
  static void free_block(uintptr_t address) {
    std::free(reinterpret_cast<void*>((address & ~kTag) - kOffset));
  }
  int free(void* p) {
    const auto address = word(p);
    if (!blocks.erase(address)) return cudaErrorInvalidValue;
    handles.erase(address);
    free_block(address);
    return 0;
  }
  // (begin, bytes), or nothing.
  std::pair<uintptr_t, size_t> block_of(uintptr_t address) const {
    const auto next = blocks.upper_bound(address);
    if (next == blocks.begin()) return {};
    const auto [begin, bytes] = *std::prev(next);
    return {begin, address < begin + bytes ? bytes : 0};
  }
  bool reachable(const void* p, size_t bytes) const {
    const auto address = word(p);
    const auto [begin, size] = block_of(address);
    return !(address & kTag) || (size && address + bytes <= begin + size);
  }
  bool is_memory(uintptr_t word) const {
    const auto [begin, size] = block_of(word);
    return size && word % 256 > 1 && has(handles.at(begin), "cudaMalloc");
  }
  // All that a node names is in the blocks that it was captured with.
  bool memory_lives(const FakeToolkit::Node& node) const {
    for (size_t i = 0; i < node.memory.size(); ++i) {
      const auto [begin, bytes] = block_of(node.memory[i]);
      if (!bytes || made.at(begin) != node.made[i]) return false;
    }
    return true;
  }
  // The card's memory, or pinned memory by either of its addresses; ordinary memory of the host.
  bool on_card(const void* p) const { return block_of(word(p) | kTag).second; }
  static bool on_host(const void* p) { return !(word(p) & kTag); }
  // Runs what the stream has to do, up to that number.
  void finish(cudaStream_t stream, int64_t up_to) {
    std::deque<LateWork>& works = late[stream];
    while (!works.empty() && works.front().number <= up_to) {
      const LateWork work = works.front();
      works.pop_front();
      if (work.to)
        std::memcpy(work.to, work.from, work.bytes);
      else
        finish(work.other, work.up_to);
    }
  }
  void finish(cudaStream_t stream) { finish(stream, late_number); }
  static bool lies_in(const void* p, const void* block, size_t bytes) {
    return block <= p && p < static_cast<const char*>(block) + bytes;
  }
  bool reads_late(const void* block, size_t bytes) const {
    return std::ranges::any_of(late, [&](const auto& row) {
      return std::ranges::any_of(
          row.second, [&](const LateWork& work) { return lies_in(work.from, block, bytes); });
    });
  }
  void forget_copies_to(const void* block, size_t bytes) {
    for (auto& [stream, works] : late)
      std::erase_if(works, [&](const LateWork& work) { return lies_in(work.to, block, bytes); });
  }
  int64_t ns_of(const std::string& name) const {
    return name == kGemm ? machine.gemm_ns : name == kGraph ? machine.graph_ns : kWorkNs;
  }
  // A kernel, copy or product with these words in its parameters: runs, or becomes a node. Returns
  // whether it runs.
  bool put(cudaStream_t stream, std::string name, std::vector<uintptr_t> words = {}) {
    const auto it = capturing.find(stream);
    if (it == capturing.end()) {
      device_ns += ns_of(name);
      executed.push_back(std::move(name));
      return true;
    }
    Capture& c = *it->second;
    std::set<int>& last = c.last[stream];
    const auto branch = std::find(c.streams.begin(), c.streams.end(), stream) - c.streams.begin();
    std::erase_if(words, [&](uintptr_t word) { return !is_memory(word); });
    std::vector<int64_t> blocks_made;
    for (const uintptr_t word : words) blocks_made.push_back(made.at(block_of(word).first));
    c.graph.nodes.push_back({.name = std::move(name),
        .after = {last.begin(), last.end()},
        .branch = int(branch),
        .memory = std::move(words),
        .made = std::move(blocks_made)});
    last = {int(c.graph.nodes.size()) - 1};
    return false;
  }
  // The capture that the calling thread has begun.
  Capture* capture_of_thread() const {
    for (const auto& [stream, capture] : capturing) {
      if (capture->thread == std::this_thread::get_id()) return capture.get();
    }
    return nullptr;
  }
  void forget_capture(const Capture* capture) {
    std::erase_if(capturing, [&](const auto& row) { return row.second.get() == capture; });
    std::erase_if(events, [&](const auto& row) { return row.second.first.get() == capture; });
  }
  template <class T> T attribute(const void* desc, int name) {
    T value{};
    const auto& bytes = attributes[word(desc)][name];
    if (bytes.size() == sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  int set_bytes(const void* desc, int name, const void* value, size_t bytes) {
    const auto* begin = static_cast<const char*>(value);
    attributes[word(desc)][name].assign(begin, begin + bytes);
    return 0;
  }
  template <class T> int set_attribute(const void* desc, int name, const T& value) {
    return set_bytes(desc, name, &value, sizeof value);
  }
};
State* state = nullptr;

// ---- what calls do

// One that makes a handle, or gives it back, and does no more.
template <Id id, class H>
  requires(!kKind<H>.empty() && makes(kName<id>))
int on(Call<id>, State& s, H* handle) {
  return s.make(handle);
}
template <Id id, class H>
  requires(!kKind<H>.empty() && releases(kName<id>))
int on(Call<id>, State& s, H handle) {
  return s.give_back(handle);
}
int on(Call<Id::cudaSetDevice>, State& s, int device) {
  return device >= 0 && device < s.machine.cards ? 0 : int(cudaErrorInvalidDevice);
}
int on(Call<Id::cudaGetLastError>, State&) { return 0; }
int on(Call<Id::cudaFuncGetAttributes>, State&, cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  return 0;
}
int on(Call<Id::cudaGraphUpload>, State&, cudaGraphExec_t, cudaStream_t) { return 0; }
int on(Call<Id::cudaProfilerStart>, State&) { return 0; }
int on(Call<Id::cudaProfilerStop>, State&) { return 0; }
int on(Call<Id::cudaGetDeviceCount>, State& s, int* count) {
  if (s.machine.driver < CUDART_VERSION) return cudaErrorInsufficientDriver;
  *count = s.machine.cards;
  return s.machine.cards ? 0 : int(cudaErrorNoDevice);
}
int on(Call<Id::cudaDriverGetVersion>, State& s, int* version) {
  *version = s.machine.driver;
  return 0;
}
int on(Call<Id::cudaDeviceGetAttribute>, State& s, int* value, cudaDeviceAttr attribute, int) {
  const std::map<cudaDeviceAttr, int> values{
      {cudaDevAttrComputeCapabilityMajor, s.machine.capability / 10},
      {cudaDevAttrComputeCapabilityMinor, s.machine.capability % 10},
      {cudaDevAttrMultiProcessorCount, 132}, {cudaDevAttrL2CacheSize, 50 << 20},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, int(s.machine.shared_bytes())}};
  *value = values.at(attribute);
  return 0;
}
int on(Call<Id::cudaGetDeviceProperties>, State& s, cudaDeviceProp* properties, int) {
  s.machine.name.copy(properties->name, sizeof properties->name - 1);
  return 0;
}
int on(Call<Id::cudaMalloc>, State& s, void** p, size_t bytes) {
  return s.allocate(p, bytes, "cudaMalloc");
}
int on(Call<Id::cudaFree>, State& s, void* p) {
  s.forget_copies_to(FakeToolkit::host(p), s.block_of(word(p)).second);
  return s.free(p);
}
int on(Call<Id::cudaHostAlloc>, State& s, void** p, size_t bytes, unsigned) {
  const int answer = s.allocate(p, bytes, "cudaHostAlloc");
  if (answer == 0) *p = FakeToolkit::host(*p);
  return answer;
}
int on(Call<Id::cudaFreeHost>, State& s, void* p) {
  const uintptr_t block = word(p) | kTag;
  if (s.reads_late(p, s.block_of(block).second)) return cudaErrorInvalidValue;
  return s.free(reinterpret_cast<void*>(block));
}
int on(Call<Id::cudaHostGetDevicePointer>, State&, void** to, void* p, unsigned) {
  *to = reinterpret_cast<void*>(word(p) | kTag);
  return 0;
}
int on(Call<Id::cudaMemGetInfo>, State& s, size_t* free, size_t* total) {
  *free = *total = s.machine.memory;
  for (const auto& [address, bytes] : s.blocks) *free -= bytes;
  return 0;
}
int copy(State& s, void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (!s.reachable(to, bytes) || !s.reachable(from, bytes)) return cudaErrorInvalidValue;
  if (!s.put(stream, "memcpy", {word(to), word(from)})) return 0;
  s.finish(stream);
  std::memmove(FakeToolkit::host(to), FakeToolkit::host(from), bytes);
  return 0;
}
int on(Call<Id::cudaMemcpyAsync>, State& s, void* to, const void* from, size_t bytes,
    cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_card = kind != cudaMemcpyDeviceToHost, from_card = kind != cudaMemcpyHostToDevice;
  if (!(to_card ? s.on_card(to) : State::on_host(to)) ||
      !(from_card ? s.on_card(from) : State::on_host(from)))
    return cudaErrorInvalidValue;
  if (kind != cudaMemcpyHostToDevice || s.capturing.contains(stream))
    return copy(s, to, from, bytes, stream);
  if (!s.reachable(to, bytes)) return cudaErrorInvalidValue;
  s.put(stream, "memcpy", {word(to), word(from)});
  s.copies.push_back({stream, s.block_of(word(from) | kTag).second > 0});
  s.late[stream].push_back({++s.late_number, FakeToolkit::host(to), from, bytes});
  return 0;
}
int on(
    Call<Id::cudaMemsetAsync>, State& s, void* to, int value, size_t bytes, cudaStream_t stream) {
  if (!s.reachable(to, bytes)) return cudaErrorInvalidValue;
  if (!s.put(stream, "memset", {word(to)})) return 0;
  s.finish(stream);
  std::memset(FakeToolkit::host(to), value, bytes);
  return 0;
}
int on(Call<Id::cudaStreamCreateWithFlags>, State& s, cudaStream_t* stream, unsigned) {
  return s.make(stream);
}
int on(Call<Id::cudaStreamSynchronize>, State& s, cudaStream_t stream) {
  if (const auto it = s.capturing.find(stream); it != s.capturing.end()) {
    it->second->valid = false;  // whoever's thread it is
    return cudaErrorStreamCaptureUnsupported;
  }
  s.finish(stream);
  return 0;
}
int on(Call<Id::cudaEventCreateWithFlags>, State& s, cudaEvent_t* event, unsigned flags) {
  s.make(event);
  s.event_flags[*event] = flags;
  return 0;
}
int on(Call<Id::cudaEventSynchronize>, State& s, cudaEvent_t event) {
  if (s.captured_events.contains(event)) return cudaErrorCapturedEvent;
  if (const auto it = s.records.find(event); it != s.records.end())
    s.finish(it->second.first, it->second.second);
  return 0;
}
int on(Call<Id::cudaEventDestroy>, State& s, cudaEvent_t event) {
  s.events.erase(event);
  s.records.erase(event);
  return s.give_back(event);
}
int on(Call<Id::cudaEventRecord>, State& s, cudaEvent_t event, cudaStream_t stream) {
  s.events.erase(event);
  s.records.erase(event);
  s.captured_events.erase(event);
  if (const auto it = s.capturing.find(stream); it != s.capturing.end()) {
    s.events[event] = {it->second, it->second->last[stream]};
    s.captured_events.insert(event);
  } else {
    s.stamps[event] = s.device_ns;
    s.records[event] = {stream, s.late_number};
  }
  return 0;
}
int on(Call<Id::cudaEventElapsedTime>, State& s, float* ms, cudaEvent_t begin, cudaEvent_t end) {
  for (const cudaEvent_t event : {begin, end}) {
    if (s.captured_events.contains(event)) return cudaErrorCapturedEvent;
    if (s.event_flags[event] & cudaEventDisableTiming || !s.stamps.contains(event))
      return cudaErrorInvalidResourceHandle;
  }
  *ms = float(double(s.stamps[end] - s.stamps[begin]) * 1e-6);
  return 0;
}
int on(Call<Id::cudaStreamWaitEvent>, State& s, cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto it = s.events.find(event);
  if (it == s.events.end()) {
    if (s.capturing.contains(stream)) return cudaErrorStreamCaptureIsolation;
    if (const auto record = s.records.find(event); record != s.records.end())
      s.late[stream].push_back({.number = ++s.late_number,
          .other = record->second.first,
          .up_to = record->second.second});
    return 0;
  }
  const CapturePtr& capture = it->second.first;
  if (!s.capturing.contains(stream)) {
    s.capturing[stream] = capture;
    capture->streams.push_back(stream);
  }
  capture->last[stream].insert(it->second.second.begin(), it->second.second.end());
  return 0;
}
int on(Call<Id::cudaStreamBeginCapture>, State& s, cudaStream_t stream, cudaStreamCaptureMode) {
  if (s.capturing.contains(stream)) return cudaErrorIllegalState;
  s.capturing[stream] = std::make_shared<Capture>();
  s.capturing[stream]->streams.push_back(stream);
  return 0;
}
int on(Call<Id::cudaStreamEndCapture>, State& s, cudaStream_t stream, cudaGraph_t* graph) {
  const auto it = s.capturing.find(stream);
  if (it == s.capturing.end()) return cudaErrorIllegalState;
  const CapturePtr capture = it->second;
  s.forget_capture(capture.get());
  *graph = nullptr;
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  // Every branch must have come back to the stream that the capture began on.
  const FakeToolkit::Graph& g = capture->graph;
  for (const auto& [other, last] : capture->last) {
    for (const int n : last) {
      const std::set<int>& ends = capture->last[stream];
      const bool joined = std::any_of(
          ends.begin(), ends.end(), [&](int end) { return end == n || g.precedes(n, end); });
      if (!joined) return cudaErrorStreamCaptureUnjoined;
    }
  }
  s.make(graph);
  s.graphs[word(*graph)] = g;
  return 0;
}
// Of a graph, or of a capture that is going on. Node i is the handle i + 1.
int on(Call<Id::cudaGraphGetNodes>, State& s, cudaGraph_t graph, cudaGraphNode_t* nodes,
    size_t* count) {
  const Capture* capture = s.capture_of_thread();
  const bool open = capture == static_cast<void*>(graph);
  *count = open ? capture->graph.nodes.size() : s.graphs[word(graph)].nodes.size();
  for (uintptr_t i = 0; nodes && i < *count; ++i)
    nodes[i] = reinterpret_cast<cudaGraphNode_t>(i + 1);
  return 0;
}
int capture_info(
    State& s, cudaStream_t stream, cudaStreamCaptureStatus* status, cudaGraph_t* graph) {
  const auto it = s.capturing.find(stream);
  *status = it == s.capturing.end() ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  if (it != s.capturing.end())
    *graph = static_cast<cudaGraph_t>(static_cast<void*>(it->second.get()));
  return 0;
}
#if CUDART_VERSION >= 13000
int on(Call<Id::cudaStreamGetCaptureInfo>, State& s, cudaStream_t stream,
    cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t* graph,
    const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  return capture_info(s, stream, status, graph);
}
#else
int on(Call<Id::cudaStreamGetCaptureInfo_v2>, State& s, cudaStream_t stream,
    cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t* graph,
    const cudaGraphNode_t**, size_t*) {
  return capture_info(s, stream, status, graph);
}
#endif
int on(Call<Id::cudaGraphInstantiate>, State& s, cudaGraphExec_t* executable, cudaGraph_t graph,
    unsigned long long) {
  s.make(executable);
  s.executable_of[word(*executable)] = s.executables.size();
  s.executables.push_back(s.graphs[word(graph)]);
  return 0;
}
int on(Call<Id::cudaGraphLaunch>, State& s, cudaGraphExec_t executable, cudaStream_t) {
  const auto it = s.executable_of.find(word(executable));
  if (it == s.executable_of.end()) return cudaErrorInvalidValue;
  FakeToolkit::Graph& graph = s.executables[it->second];
  for (const FakeToolkit::Node& node : graph.nodes)
    if (!s.memory_lives(node)) return cudaErrorIllegalAddress;
  ++graph.launches;
  const int64_t by_script = s.machine.clock ? s.machine.clock(graph.names()) : 0;
  if (by_script < 0) return cudaErrorLaunchFailure;
  s.device_ns += by_script;
  for (const FakeToolkit::Node& node : graph.nodes)
    s.device_ns += s.machine.clock ? 0 : s.ns_of(node.name);
  return 0;
}
int on(Call<Id::cudaGraphDestroy>, State& s, cudaGraph_t graph) {
  s.graphs.erase(word(graph));
  return s.give_back(graph);
}
int on(Call<Id::cudaGraphExecDestroy>, State& s, cudaGraphExec_t executable) {
  s.executable_of.erase(word(executable));
  return s.give_back(executable);
}
int on(Call<Id::cudaFuncSetAttribute>, State& s, const void* kernel, cudaFuncAttribute, int bytes) {
  if (size_t(bytes) > s.machine.shared_bytes()) return cudaErrorInvalidValue;
  s.shared_limits[kernel] = size_t(bytes);
  return 0;
}
int on(Call<Id::cudaLaunchKernelExC>, State& s, const cudaLaunchConfig_t* config,
    const void* kernel, void** parameters) {
  // The programming guide's table of technical specifications.
  const auto &grid = config->gridDim, &block = config->blockDim;
  const auto outside = [](unsigned n, unsigned most) { return n == 0 || n > most; };
  if (outside(grid.x, 0x7fffffff) || outside(grid.y, 65535) || outside(grid.z, 65535) ||
      outside(block.x, 1024) || outside(block.y, 1024) || outside(block.z, 64) ||
      uint64_t{block.x} * block.y * block.z > 1024)
    return cudaErrorInvalidConfiguration;
  if (!s.handles.contains(word(config->stream))) return cudaErrorInvalidResourceHandle;
  if (config->dynamicSmemBytes > std::max(kSharedAlways, s.shared_limits[kernel]))
    return cudaErrorInvalidValue;
  std::vector<uintptr_t> words;
  for (const size_t bytes :
      parameters ? last_launch().parameter_bytes : std::span<const size_t>()) {
    const char* const parameter = static_cast<const char*>(*parameters++);
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t))
      std::memcpy(&words.emplace_back(), parameter + at, sizeof(uintptr_t));
  }
  s.put(config->stream, std::string(last_launch().kernel), std::move(words));
  return 0;
}
int on(Call<Id::cublasLtGetProperty>, State& s, libraryPropertyType part, int* value) {
  *value = part == MAJOR_VERSION ? s.machine.cublaslt : 0;
  return 0;
}
constexpr int kCompute = -1, kScale = -2;  // attributes that a descriptor is made with
int on(Call<Id::cublasLtMatmulDescCreate>, State& s, cublasLtMatmulDesc_t* desc,
    cublasComputeType_t compute, cudaDataType_t scale) {
  s.make(desc);
  s.set_attribute(*desc, kCompute, compute);
  return s.set_attribute(*desc, kScale, scale);
}
int on(Call<Id::cublasLtMatmulDescSetAttribute>, State& s, cublasLtMatmulDesc_t desc,
    cublasLtMatmulDescAttributes_t name, const void* value, size_t bytes) {
  return s.set_bytes(desc, name, value, bytes);
}
int on(Call<Id::cublasLtMatrixLayoutCreate>, State& s, cublasLtMatrixLayout_t* layout,
    cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
  s.make(layout);
  s.layouts[word(*layout)] = {type, int64_t(rows), int64_t(columns), ld};
  return 0;
}
int on(Call<Id::cublasLtMatrixLayoutSetAttribute>, State& s, cublasLtMatrixLayout_t layout,
    cublasLtMatrixLayoutAttribute_t name, const void* value, size_t bytes) {
  FakeToolkit::Matrix& matrix = s.layouts[word(layout)];
  if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(int32_t))
    return matrix.count = *static_cast<const int32_t*>(value), 0;
  if (name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(int64_t))
    return matrix.apart = *static_cast<const int64_t*>(value), 0;
  return CUBLAS_STATUS_INVALID_VALUE;
}
int on(Call<Id::cublasLtMatmulPreferenceSetAttribute>, State& s,
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
    const void* value, size_t bytes) {
  return s.set_bytes(preference, name, value, bytes);
}
// The library's rules for epilogues (cublasLt.h): a bias, and its gradient, is of D's type; rows of
// a pre-activation are multiples of 8 elements, on 16 bytes.
bool takes_epilogue(State& s, cublasLtMatmulDesc_t desc, const FakeToolkit::Matrix& d) {
  const auto form = s.attribute<cublasLtEpilogue_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE);
  const auto bias = s.attribute<cudaDataType>(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  const bool has_bias = (form & CUBLASLT_EPILOGUE_BIAS) || form == CUBLASLT_EPILOGUE_BGRADB;
  if (has_bias && bias != d.type) return false;
  constexpr int kAux = CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU;
  if (!(form & kAux)) return true;
  const auto ld = s.attribute<int64_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
  const auto* aux = s.attribute<const void*>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  return ld >= d.rows && ld % 8 == 0 && word(aux) % 16 == 0;
}
// A product as the library was asked for it.
struct Question {
  FakeToolkit::Matrix a, b, c, d;
  bool transpose_a, transpose_b;
  int epilogue, compute, scale;

  Question(State& s, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a_layout,
      cublasLtMatrixLayout_t b_layout, cublasLtMatrixLayout_t c_layout,
      cublasLtMatrixLayout_t d_layout)
      : a(s.layouts[word(a_layout)]),
        b(s.layouts[word(b_layout)]),
        c(s.layouts[word(c_layout)]),
        d(s.layouts[word(d_layout)]),
        transpose_a(
            s.attribute<cublasOperation_t>(desc, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T),
        transpose_b(
            s.attribute<cublasOperation_t>(desc, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T),
        epilogue(s.attribute<cublasLtEpilogue_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE)),
        compute(s.attribute<cublasComputeType_t>(desc, kCompute)),
        scale(s.attribute<cudaDataType_t>(desc, kScale)) {}

  // op(A) [m, k] times op(B) [k, n] gives D [m, n], and so is C; a column begins behind the last.
  bool sizes_agree() const {
    const auto [m, k] = transpose_a ? std::pair(a.columns, a.rows) : std::pair(a.rows, a.columns);
    const auto [inner, n] =
        transpose_b ? std::pair(b.columns, b.rows) : std::pair(b.rows, b.columns);
    const auto fits = [](const FakeToolkit::Matrix& x) { return x.ld >= x.rows; };
    const bool as_many = a.count == b.count && b.count == c.count && c.count == d.count;
    return k == inner && d.rows == m && d.columns == n && c.rows == m && c.columns == n &&
           as_many && fits(a) && fits(b) && fits(c) && fits(d);
  }
  // Of the table of types in cuBLASLt's reference (cublasLtMatmul), the rows of our types.
  bool types_go_together() const {
    if (a.type != b.type || c.type != d.type) return false;
    if (a.type == CUDA_R_64F)
      return d.type == CUDA_R_64F && scale == CUDA_R_64F && compute == CUBLAS_COMPUTE_64F;
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F;
    if (scale != CUDA_R_32F || !(compute == CUBLAS_COMPUTE_32F || tf32)) return false;
    return a.type == CUDA_R_32F ? d.type == CUDA_R_32F
                                : d.type == CUDA_R_16BF || d.type == CUDA_R_32F;
  }
  int answer() const {
    if (!sizes_agree()) return CUBLAS_STATUS_INVALID_VALUE;
    return types_go_together() ? 0 : int(CUBLAS_STATUS_NOT_SUPPORTED);
  }
  // An algorithm holds for the question that it was proposed for.
  uint64_t hash() const {
    std::string text = str(transpose_a, transpose_b, " ", epilogue, " ", compute);
    for (const FakeToolkit::Matrix& x : {a, b, c, d})
      text +=
          str(" ", int(x.type), " ", x.rows, " ", x.columns, " ", x.ld, " ", x.count, " ", x.apart);
    return std::hash<std::string>()(text);
  }
};
int on(Call<Id::cublasLtMatmulAlgoGetHeuristic>, State& s, cublasLtHandle_t,
    cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
    int wanted, cublasLtMatmulHeuristicResult_t* results, int* count) {
  *count = 0;
  const Question question(s, desc, a, b, c, d);
  if (const int answer = question.answer()) return answer;
  const auto most = s.attribute<uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  if (takes_epilogue(s, desc, question.d) && s.machine.gemm_workspace <= most)
    *count = std::min(wanted, s.machine.proposals);
  for (int i = 0; i < *count; ++i) {
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].workspaceSize = s.machine.gemm_workspace;
    results[i].algo.data[0] = uint64_t(i);
    results[i].algo.data[1] = question.hash();
  }
  return *count ? 0 : int(CUBLAS_STATUS_NOT_SUPPORTED);
}
int on(Call<Id::cublasLtMatmul>, State& s, cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void*,
    const void* a, cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
    const void* beta, const void*, cublasLtMatrixLayout_t c_layout, void* d,
    cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
    size_t workspace_bytes, cudaStream_t stream) {
  const Question question(s, desc, a_layout, b_layout, c_layout, d_layout);
  if (const int answer = question.answer()) return answer;
  if (workspace_bytes < s.machine.gemm_workspace) return CUBLAS_STATUS_INVALID_VALUE;
  if (algo->data[1] != question.hash()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algo->data[0] < uint64_t(s.machine.broken)) return CUBLAS_STATUS_EXECUTION_FAILED;
  const FakeToolkit::Matrix result = question.d;
  s.matmuls.push_back({.a = question.a,
      .b = question.b,
      .c = result,
      .transpose_a = question.transpose_a,
      .transpose_b = question.transpose_b,
      .epilogue = question.epilogue,
      .bias_type = s.attribute<cudaDataType>(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE),
      .pa = a,
      .pb = b,
      .bias = s.attribute<const void*>(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER),
      .aux = s.attribute<const void*>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
      .aux_ld = s.attribute<int64_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD),
      .pc = d,
      .beta = result.type == CUDA_R_64F ? float(*static_cast<const double*>(beta))
                                        : *static_cast<const float*>(beta),
      .workspace = workspace,
      .stream = stream});
  const FakeToolkit::Matmul& q = s.matmuls.back();
  for (int i = 0; i < s.machine.gemm_kernels; ++i)
    s.put(stream, kGemm,
        {word(q.pa), word(q.pb), word(q.bias), word(q.aux), word(q.pc), word(q.workspace)});
  return 0;
}
#if SINTER_HAS_CUDNN
int on(Call<Id::cudnnGetProperty>, State& s, libraryPropertyType part, int* value) {
  *value = part == MAJOR_VERSION ? s.machine.cudnn : 0;
  return s.machine.cudnn ? 0 : CUDNN_STATUS_NOT_INITIALIZED;
}
int on(Call<Id::cudnnSetStream>, State& s, cudnnHandle_t handle, cudaStream_t stream) {
  return s.set_attribute(handle, 0, stream);
}
constexpr int kFormat = 1, kMath = 1, kComputeType = 2;  // attributes beside the sizes
int on(Call<Id::cudnnSetTensor4dDescriptor>, State& s, cudnnTensorDescriptor_t desc,
    cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c, int h, int w) {
  s.set_attribute(desc, kFormat, format);
  return s.set_attribute(desc, 0, FakeToolkit::Images{type, n, c, h, w});
}
int on(Call<Id::cudnnSetFilter4dDescriptor>, State& s, cudnnFilterDescriptor_t desc,
    cudnnDataType_t type, cudnnTensorFormat_t format, int o, int c, int h, int w) {
  s.set_attribute(desc, kFormat, format);
  return s.set_attribute(desc, 0, FakeToolkit::Images{type, o, c, h, w});
}
int on(Call<Id::cudnnSetActivationDescriptor>, State& s, cudnnActivationDescriptor_t desc,
    cudnnActivationMode_t mode, cudnnNanPropagation_t, double) {
  return s.set_attribute(desc, 0, int(mode));
}
int on(Call<Id::cudnnSetConvolution2dDescriptor>, State& s, cudnnConvolutionDescriptor_t desc,
    int pad_h, int pad_w, int stride_h, int stride_w, int, int, cudnnConvolutionMode_t,
    cudnnDataType_t compute) {
  s.set_attribute(desc, kComputeType, compute);
  return s.set_attribute(desc, 0, std::array{pad_h, pad_w, stride_h, stride_w});
}
int on(Call<Id::cudnnSetConvolutionMathType>, State& s, cudnnConvolutionDescriptor_t desc,
    cudnnMathType_t math) {
  return s.set_attribute(desc, kMath, int(math));
}
// The library's rule: all of one type.
template <class Perf>
int conv_proposals(
    State& s, const void* image, const void* filter, int wanted, int* found, Perf* results) {
  const auto type_of = [&](const void* desc) {
    return s.attribute<FakeToolkit::Images>(desc, 0).type;
  };
  if (type_of(image) != type_of(filter)) return CUDNN_STATUS_NOT_SUPPORTED;
  *found = 0;
  for (const FakeToolkit::ConvProposal& p : s.machine.conv_proposals) {
    if (*found == wanted) break;
    Perf& result = results[(*found)++];
    result.algo = static_cast<decltype(result.algo)>(p.algorithm);
    result.status = static_cast<cudnnStatus_t>(p.status);
    result.memory = p.memory;
    result.mathType = static_cast<cudnnMathType_t>(p.math);
  }
  return 0;
}
int on(Call<Id::cudnnGetConvolutionForwardAlgorithm_v7>, State& s, cudnnHandle_t,
    cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t filter, cudnnConvolutionDescriptor_t,
    cudnnTensorDescriptor_t, int wanted, int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
  return conv_proposals(s, x, filter, wanted, found, results);
}
int on(Call<Id::cudnnGetConvolutionBackwardDataAlgorithm_v7>, State& s, cudnnHandle_t,
    cudnnFilterDescriptor_t filter, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t,
    cudnnTensorDescriptor_t, int wanted, int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return conv_proposals(s, dy, filter, wanted, found, results);
}
int on(Call<Id::cudnnGetConvolutionBackwardFilterAlgorithm_v7>, State& s, cudnnHandle_t,
    cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
    cudnnFilterDescriptor_t filter, int wanted, int* found,
    cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return conv_proposals(s, x, filter, wanted, found, results);
}
// Graphs of operations. A descriptor is its attributes, as they were set, and these two.
constexpr int kBackendType = -1, kFinalized = -2;
constexpr const char* kBackend = "backend descriptor";
size_t size_of_attribute(cudnnBackendAttributeType_t type) {
  return type == CUDNN_TYPE_BOOLEAN ? sizeof(bool)
         : type == CUDNN_TYPE_DATA_TYPE || type == CUDNN_TYPE_HEUR_MODE ||
                 type == CUDNN_TYPE_POINTWISE_MODE
             ? sizeof(int)
             : sizeof(int64_t);
}
bool is_finalized(State& s, const void* desc) {
  const auto it = s.handles.find(word(desc));
  return it != s.handles.end() && it->second == kBackend && s.attribute<bool>(desc, kFinalized);
}
template <class T>
std::vector<T> list_of(State& s, const void* desc, cudnnBackendAttributeName_t name) {
  const std::vector<char>& bytes = s.attributes[word(desc)][name];
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
int on(Call<Id::cudnnBackendCreateDescriptor>, State& s, cudnnBackendDescriptorType_t type,
    cudnnBackendDescriptor_t* desc) {
  s.make(desc, kBackend);
  s.attributes.erase(word(*desc));
  return s.set_attribute(*desc, kBackendType, type);
}
int on(Call<Id::cudnnBackendDestroyDescriptor>, State& s, cudnnBackendDescriptor_t desc) {
  return s.give_back(desc);
}
int on(Call<Id::cudnnBackendSetAttribute>, State& s, cudnnBackendDescriptor_t desc,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
    const void* values) {
  if (is_finalized(s, desc)) return CUDNN_STATUS_BAD_PARAM;
  s.set_bytes(desc, name, values, size_t(count) * size_of_attribute(type));
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return 0;
  for (const void* part : list_of<const void*>(s, desc, name))
    if (!is_finalized(s, part)) return CUDNN_STATUS_BAD_PARAM;
  return 0;
}
FakeToolkit::GraphTensor graph_tensor(State& s, const void* desc) {
  if (!desc) return {};
  return {s.attribute<int64_t>(desc, CUDNN_ATTR_TENSOR_UNIQUE_ID),
      s.attribute<int>(desc, CUDNN_ATTR_TENSOR_DATA_TYPE),
      list_of<int64_t>(s, desc, CUDNN_ATTR_TENSOR_DIMENSIONS),
      list_of<int64_t>(s, desc, CUDNN_ATTR_TENSOR_STRIDES),
      s.attribute<bool>(desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL)};
}
FakeToolkit::GraphOperation graph_operation(State& s, const void* desc) {
  const auto part = [&](cudnnBackendAttributeName_t name) {
    return graph_tensor(s, s.attribute<const void*>(desc, name));
  };
  if (s.attribute<int>(desc, kBackendType) == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
    return {-1, part(CUDNN_ATTR_OPERATION_MATMUL_ADESC), part(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
        part(CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
  const int mode =
      s.attribute<int>(s.attribute<const void*>(desc, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
          CUDNN_ATTR_POINTWISE_MODE);
  const auto dy = part(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC),
             x = part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  if (!dy.dims.empty()) return {mode, dy, x, part(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC)};
  return {mode, x, part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
      part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
}
// Sizes go together: a product's as a product's, others are equal or of one row or column.
bool sizes_agree(const FakeToolkit::GraphOperation& o) {
  const auto &x = o.x.dims, &other = o.other.dims, &y = o.y.dims;
  if (x.size() != 3 || y.size() != 3) return false;
  if (o.mode < 0) return other.size() == 3 && x[2] == other[1] && y[1] == x[1] && y[2] == other[2];
  for (size_t d = 0; d < 3; ++d)
    if (x[d] != y[d] || (!other.empty() && other[d] != y[d] && other[d] != 1)) return false;
  return true;
}
// All lies on 16 bytes, and nothing that is written is read: it does not work in place.
bool is_runnable(const FakeToolkit::GraphRun& run) {
  std::map<const void*, std::pair<bool, bool>> uses;  // is it read, and written?
  const auto note = [&](const FakeToolkit::GraphTensor& t, bool written) {
    if (t.dims.empty() || t.is_virtual) return;
    auto& use = uses[run.memory.at(t.id)];
    (written ? use.second : use.first) = true;
  };
  for (const FakeToolkit::GraphOperation& o : run.operations) {
    note(o.x, false);
    note(o.other, false);
    note(o.y, true);
  }
  return std::ranges::none_of(uses, [](const auto& use) {
    return word(use.first) % 16 != 0 || (use.second.first && use.second.second);
  });
}
int on(Call<Id::cudnnBackendFinalize>, State& s, cudnnBackendDescriptor_t desc) {
  const auto type = s.attribute<cudnnBackendDescriptorType_t>(desc, kBackendType);
  if (type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    int products = 0;
    for (const void* part : list_of<const void*>(s, desc, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
      const FakeToolkit::GraphOperation operation = graph_operation(s, part);
      if (!sizes_agree(operation)) return CUDNN_STATUS_BAD_PARAM;
      products += operation.mode < 0;
    }
    if (products != 1) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && s.machine.graph_proposals == 0)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return s.set_attribute(desc, kFinalized, true);
}
int on(Call<Id::cudnnBackendGetAttribute>, State& s, cudnnBackendDescriptor_t desc,
    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t, int64_t wanted, int64_t* count,
    void* values) {
  if (!is_finalized(s, desc)) return CUDNN_STATUS_BAD_PARAM;
  *count = 1;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *count = s.machine.graph_proposals;  // all that it has, of which it writes what was wanted
    for (int64_t i = 0; i < std::min(wanted, *count); ++i) {
      const void* const config = static_cast<void**>(values)[i];
      s.set_attribute(config, kFinalized, true);
      s.set_attribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
      s.set_attribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
          s.attribute<const void*>(desc, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    }
  } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    const void* const engine = *static_cast<void**>(values);
    s.set_attribute(engine, kFinalized, true);
    s.set_attribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
        s.attribute<int64_t>(desc, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) <
                s.machine.graphs_unrepeatable
            ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
            : CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    *static_cast<int*>(values) = s.attribute<int>(desc, name);
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *static_cast<int64_t*>(values) = 1 << 20;
  } else {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return 0;
}
int on(Call<Id::cudnnBackendExecute>, State& s, cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
    cudnnBackendDescriptor_t pack) {
  if (!is_finalized(s, plan) || !is_finalized(s, pack)) return CUDNN_STATUS_BAD_PARAM;
  if (s.machine.graphs_fail) return CUDNN_STATUS_EXECUTION_FAILED;
  FakeToolkit::GraphRun run;
  const auto ids = list_of<int64_t>(s, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto memory = list_of<const void*>(s, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::vector<uintptr_t> words;
  for (size_t i = 0; i < ids.size(); ++i) {
    run.memory[ids[i]] = memory[i];
    words.push_back(word(memory[i]));
  }
  words.push_back(word(s.attribute<const void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)));
  const auto part = [&](const void* of, cudnnBackendAttributeName_t name) {
    return s.attribute<const void*>(of, name);
  };
  // A proposal keeps the graph that it is for, in place of an engine.
  const void* const graph =
      part(part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
  for (const void* operation : list_of<const void*>(s, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS))
    run.operations.push_back(graph_operation(s, operation));
  if (!is_runnable(run)) return CUDNN_STATUS_BAD_PARAM;
  s.graph_runs.push_back(std::move(run));
  s.put(s.attribute<cudaStream_t>(handle, 0), kGraph, std::move(words));
  return 0;
}
struct ConvDescriptors {
  const void *x, *weight, *y, *bias, *convolution;
};
// x [n, c, h, w] * weight [o, c, r, s] gives y [n, o, p, q]; a bias is [1, o, 1, 1].
bool sizes_agree(const FakeToolkit::Convolution& q) {
  const auto size = [](int in, int window, int pad, int stride) {
    return (in + 2 * pad - window) / stride + 1;
  };
  const bool bias =
      !q.bias.n || (q.bias.n == 1 && q.bias.c == q.weight.n && q.bias.h == 1 && q.bias.w == 1);
  return q.x.c == q.weight.c && q.y.n == q.x.n && q.y.c == q.weight.n &&
         q.y.h == size(q.x.h, q.weight.h, q.pad_h, q.stride_h) &&
         q.y.w == size(q.x.w, q.weight.w, q.pad_w, q.stride_w) && bias;
}
bool formats_agree(State& s, const ConvDescriptors& d) {
  const auto format = [&](const void* desc) {
    return s.attribute<cudnnTensorFormat_t>(desc, kFormat);
  };
  return format(d.x) == format(d.weight) && format(d.x) == format(d.y);
}
struct ConvOperands {
  const void *x, *weight, *y, *bias;
};
int convolve(State& s, cudnnHandle_t handle, const char* name, const ConvDescriptors& d,
    const ConvOperands& at, int algorithm, const void* workspace, size_t workspace_bytes) {
  const auto images = [&](const void* desc) {
    return desc ? s.attribute<FakeToolkit::Images>(desc, 0) : FakeToolkit::Images{};
  };
  const auto [pad_h, pad_w, stride_h, stride_w] = s.attribute<std::array<int, 4>>(d.convolution, 0);
  const FakeToolkit::Convolution q{name, images(d.x), images(d.weight), images(d.y), images(d.bias),
      pad_h, pad_w, stride_h, stride_w, s.attribute<int>(d.convolution, kMath), algorithm, at.x,
      at.weight, at.y, at.bias, workspace, workspace_bytes, s.attribute<cudaStream_t>(handle, 0)};
  if (!sizes_agree(q) || !formats_agree(s, d)) return CUDNN_STATUS_BAD_PARAM;
  const auto compute = s.attribute<cudnnDataType_t>(d.convolution, kComputeType);
  if (compute != (q.x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) ||
      q.x.type != q.weight.type || q.x.type != q.y.type)
    return CUDNN_STATUS_NOT_SUPPORTED;
  // The least that any proposal of the algorithm wants.
  size_t wanted = q.workspace_bytes + 1;
  for (const FakeToolkit::ConvProposal& p : s.machine.conv_proposals)
    if (p.algorithm == q.algorithm) wanted = std::min(wanted, p.memory);
  const bool known = std::ranges::any_of(s.machine.conv_proposals,
      [&](const FakeToolkit::ConvProposal& p) { return p.algorithm == q.algorithm; });
  if (known && wanted > q.workspace_bytes) return CUDNN_STATUS_BAD_PARAM;
  s.convolutions.push_back(q);
  for (int i = 0; i < s.machine.conv_kernels; ++i)
    s.put(q.stream, name,
        {word(q.px), word(q.pweight), word(q.py), word(q.pbias), word(q.workspace)});
  return 0;
}
int on(Call<Id::cudnnConvolutionForward>, State& s, cudnnHandle_t handle, const void*,
    cudnnTensorDescriptor_t x, const void* px, cudnnFilterDescriptor_t w, const void* pw,
    cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
    size_t bytes, const void*, cudnnTensorDescriptor_t y, void* py) {
  return convolve(s, handle, "cudnn_conv2d", {x, w, y, nullptr, convolution}, {px, pw, py, nullptr},
      algorithm, workspace, bytes);
}
// Without an activation the library has one algorithm.
int on(Call<Id::cudnnConvolutionBiasActivationForward>, State& s, cudnnHandle_t handle, const void*,
    cudnnTensorDescriptor_t x, const void* px, cudnnFilterDescriptor_t w, const void* pw,
    cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
    size_t bytes, const void*, cudnnTensorDescriptor_t, const void*, cudnnTensorDescriptor_t bias,
    const void* pbias, cudnnActivationDescriptor_t act, cudnnTensorDescriptor_t y, void* py) {
  const bool relu = s.attribute<int>(act, 0) == CUDNN_ACTIVATION_RELU;
  if (!relu && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
    return CUDNN_STATUS_NOT_SUPPORTED;
  return convolve(s, handle, relu ? "cudnn_conv2d_relu" : "cudnn_conv2d",
      {x, w, y, bias, convolution}, {px, pw, py, pbias}, algorithm, workspace, bytes);
}
int on(Call<Id::cudnnConvolutionBackwardData>, State& s, cudnnHandle_t handle, const void*,
    cudnnFilterDescriptor_t w, const void* pw, cudnnTensorDescriptor_t y, const void* py,
    cudnnConvolutionDescriptor_t convolution, cudnnConvolutionBwdDataAlgo_t algorithm,
    void* workspace, size_t bytes, const void*, cudnnTensorDescriptor_t x, void* px) {
  return convolve(s, handle, "cudnn_conv2d_input_grad", {x, w, y, nullptr, convolution},
      {px, pw, py, nullptr}, algorithm, workspace, bytes);
}
int on(Call<Id::cudnnConvolutionBackwardFilter>, State& s, cudnnHandle_t handle, const void*,
    cudnnTensorDescriptor_t x, const void* px, cudnnTensorDescriptor_t y, const void* py,
    cudnnConvolutionDescriptor_t convolution, cudnnConvolutionBwdFilterAlgo_t algorithm,
    void* workspace, size_t bytes, const void*, cudnnFilterDescriptor_t w, void* pw) {
  return convolve(s, handle, "cudnn_conv2d_weight_grad", {x, w, y, nullptr, convolution},
      {px, pw, py, nullptr}, algorithm, workspace, bytes);
}
#endif

// ---- the table

template <class R>
constexpr int kUnknown =
    std::is_same_v<R, cudaError_t> ? int(cudaErrorUnknown) : int(CUBLAS_STATUS_INTERNAL_ERROR);

template <class R> constexpr int dead_handle() {
  if constexpr (std::is_same_v<R, cudaError_t>) return cudaErrorInvalidResourceHandle;
#if SINTER_HAS_CUDNN
  if constexpr (std::is_same_v<R, cudnnStatus_t>) return CUDNN_STATUS_BAD_PARAM;
#endif
  return CUBLAS_STATUS_INVALID_VALUE;
}

// An argument that is a handle must be one that was made and not given back.
template <class T> bool is_alive(const State& s, const T& argument) {
  if constexpr (kKind<T>.empty()) {
    return true;
  } else {
    const auto it = s.handles.find(word(argument));
    if (it != s.handles.end()) return it->second == kKind<T>;
    if constexpr (std::is_same_v<T, cudaGraph_t>)  // of a capture that is going on
      return s.capture_of_thread() == static_cast<void*>(argument);
    return false;
  }
}

template <class F> struct Stub;
template <class R, class... A> struct Stub<R (*)(A...)> {
  template <Id id> static R call(A... args) {
    constexpr std::string_view name = kName<id>;
    State& s = *state;
    const std::lock_guard lock(s.mutex);
    s.calls.emplace_back(name);
    int answer = 0;
    for (State::Failure& f : s.failures) {
      const bool any = f.name.empty();
      const bool broken = f.for_good && f.n <= 0 && std::is_same_v<R, cudaError_t>;
      if (broken && !releases(name) && name != "cudaGetLastError") answer = f.answer;
      if ((any || f.name == name) && name != "cudaGetLastError" && --f.n == 0) {
        answer = any ? kUnknown<R> : f.answer;
        if (any) s.failed = name;
      }
    }
    Capture* capture = s.capture_of_thread();
    // What a graph of cuDNN's is described with is the host's.
    const bool of_card = !has(name, "Backend");
    if (capture && of_card && (makes(name) || releases(name) || has(name, "Synchronize"))) {
      capture->valid = false;
      answer = kUnknown<R>;
    }
    // One that frees does so even if it reports an error (of earlier work, say).
    if (answer == 0 && !(is_alive(s, args) && ...)) return static_cast<R>(dead_handle<R>());
    if (answer == 0) return static_cast<R>(on(Call<id>(), s, args...));
    if (releases(name) || id == Id::cudaStreamEndCapture) on(Call<id>(), s, args...);
    if constexpr (id == Id::cudaStreamEndCapture) drop(s, args...);
    return static_cast<R>(answer);
  }
  // A capture that failed leaves no graph.
  static void drop(State& s, cudaStream_t, cudaGraph_t* graph) {
    if (*graph) s.give_back(*graph);
    *graph = nullptr;
  }
};

Api& recorder_api() {
  static Api api = [] {
    Api a;
#define SINTER_STUB(name) a.name = Stub<decltype(a.name)>::call<Id::name>;
    SINTER_CUDA_CALLS(SINTER_STUB)
#undef SINTER_STUB
    return a;
  }();
  return api;
}

}  // namespace

FakeToolkit::FakeToolkit() {
  SINTER_ASSERT(!state, "two recorders at once");
  state = new State;
  recorder_api().architectures = state->machine.architectures;
  set_api(recorder_api());
  set_keep_choices(false);
}

FakeToolkit::~FakeToolkit() {
  set_api(real_api());
  set_keep_choices(true);
  for (const auto& [address, bytes] : state->blocks) State::free_block(address);
  delete std::exchange(state, nullptr);
}

void FakeToolkit::set(const Machine& machine) {
  const std::lock_guard lock(state->mutex);
  state->machine = machine;
  recorder_api().architectures = machine.architectures;
}

template <class T> static T copy_of(T State::*part) {
  const std::lock_guard lock(state->mutex);
  return state->*part;
}
std::vector<std::string> FakeToolkit::calls() const { return copy_of(&State::calls); }
int64_t FakeToolkit::count(const std::string& name) const {
  const std::lock_guard lock(state->mutex);
  return std::count(state->calls.begin(), state->calls.end(), name);
}
std::vector<std::string> FakeToolkit::executed() const { return copy_of(&State::executed); }
int64_t FakeToolkit::device_ns() const { return copy_of(&State::device_ns); }

void FakeToolkit::clear_log() {
  const std::lock_guard lock(state->mutex);
  state->calls.clear();
  state->executed.clear();
  state->matmuls.clear();
  state->convolutions.clear();
  state->graph_runs.clear();
  state->copies.clear();
}

void FakeToolkit::fail(const std::string& name, int n, int answer) {
  const std::lock_guard lock(state->mutex);
  state->failures.push_back({name, n, answer});
}
void FakeToolkit::fail_for_good(const std::string& name, int answer) {
  const std::lock_guard lock(state->mutex);
  state->failures.push_back({name, 1, answer, true});
}
void FakeToolkit::fail_any(int64_t n) {
  const std::lock_guard lock(state->mutex);
  state->failures.push_back({"", n, 0});
  state->failed.clear();
}
std::string FakeToolkit::failed() const { return copy_of(&State::failed); }

std::vector<FakeToolkit::Graph> FakeToolkit::graphs() const { return copy_of(&State::executables); }
size_t FakeToolkit::captured_nodes() const {
  const std::lock_guard lock(state->mutex);
  const Capture* capture = state->capture_of_thread();
  return capture ? capture->graph.nodes.size() : 0;
}
std::pair<uintptr_t, size_t> FakeToolkit::block_of(uintptr_t address) const {
  const std::lock_guard lock(state->mutex);
  return state->block_of(address);
}
// Of the programming guide's table of compute capabilities.
size_t FakeToolkit::Machine::shared_bytes() const {
  return capability == 80 ? 163 << 10 : capability / 10 == 9 ? 227 << 10 : 99 << 10;
}
std::vector<FakeToolkit::Matmul> FakeToolkit::matmuls() const { return copy_of(&State::matmuls); }
std::vector<FakeToolkit::Convolution> FakeToolkit::convolutions() const {
  return copy_of(&State::convolutions);
}
std::vector<FakeToolkit::GraphRun> FakeToolkit::graph_runs() const {
  return copy_of(&State::graph_runs);
}
std::vector<FakeToolkit::Copy> FakeToolkit::copies() const { return copy_of(&State::copies); }
std::vector<std::string> FakeToolkit::alive() const {
  const std::lock_guard lock(state->mutex);
  std::vector<std::string> names;
  for (const auto& [handle, name] : state->handles) names.push_back(name);
  return names;
}

std::vector<std::string> FakeToolkit::leaks() {
  set_api(recorder_api());
  return alive();
}

void* FakeToolkit::host(const void* address) {
  return reinterpret_cast<void*>(word(address) & ~kTag);
}

bool FakeToolkit::Graph::precedes(int a, int b) const {
  const std::vector<int>& after = nodes[size_t(b)].after;
  return std::any_of(
      after.begin(), after.end(), [&](int n) { return n == a || (n > a && precedes(a, n)); });
}
std::vector<std::string> FakeToolkit::Graph::names() const {
  std::vector<std::string> names;
  for (const Node& n : nodes) names.push_back(n.name);
  return names;
}

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
