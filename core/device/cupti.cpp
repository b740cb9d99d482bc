#include "core/device/cupti.h"

#if SINTER_HAS_CUDA

#include "core/device/compiled_kernels.h"
#include "core/device/cuda_stream.h"
#include "core/device/library.h"
#include "core/error.h"

#if SINTER_HAS_CUPTI

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <vector>

namespace sinter::cuda {
namespace {

constexpr size_t kBuffer = size_t{4} << 20;
constexpr size_t kMostBuffers = 32;  // 128 MiB
constexpr int kBrackets = 64;
// Records of API calls carry an id of ours to those of the kernels; libraries may launch by either
// API. Not GRAPH_TRACE: a graph would be one record.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};

// The library's callbacks have no pointer for us, so there is one.
struct Cupti {
  std::mutex mutex;
  const CuptiCalls* calls = nullptr;                  // whose callbacks are registered
  std::vector<std::pair<uint8_t*, size_t>> full;      // buffers to be read
  size_t buffers = 0;                                 // full, or with the library
  std::map<uint64_t, uint32_t> op_of;                 // executable << 32 | node -> op
  std::map<uint64_t, std::map<uint32_t, int>> nodes;  // executable -> op -> how many
  std::set<std::string> kernels;                      // names, as a person reads them
  std::atomic<int> turn{0};
  int turns = 0;
};
Cupti& cupti() {
  static Cupti& all = *new Cupti;  // a callback may come after the end of main
  return all;
}
const CuptiCalls* g_instead = nullptr;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most) {
  Cupti& c = cupti();
  const std::lock_guard lock(c.mutex);
  *most = 0;
  // None: the library drops records, and counts them.
  *buffer =
      c.buffers < kMostBuffers ? static_cast<uint8_t*>(std::aligned_alloc(64, kBuffer)) : nullptr;
  *size = *buffer ? kBuffer : 0;
  c.buffers += *buffer != nullptr;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Cupti& c = cupti();
  const std::lock_guard lock(c.mutex);
  if (buffer) c.full.emplace_back(buffer, valid);
}

// One kernel, copy or fill.
struct Span {
  uint32_t correlation;
  uint64_t begin, end, node;
  const char* kernel = nullptr;  // mangled; one pointer for all records of a kernel
  Footprint footprint{};
};

class CuptiTimer final : public CardTimer {
 public:
  explicit CuptiTimer(const CuptiCalls& calls) : calls_(calls) { cupti().turn = ++cupti().turns; }
  ~CuptiTimer() override {
    for (const CUpti_ActivityKind kind : kKinds) calls_.cuptiActivityDisable(kind);
    cupti().turn = 0;
    flush([](const CUpti_Activity&) {});
  }

  bool has_records() const override { return true; }
  void submitting(uint64_t launch) noexcept override {
    calls_.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, launch);
  }
  void submitted() noexcept override {
    uint64_t launch = 0;
    calls_.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &launch);
  }

  void begin(const HostClock& now) override {
    wait();
    flush([](const CUpti_Activity&) {});
    begin_ = bracket(now);
  }

  Records end(const HostClock& now) override {
    wait();
    const Bracket end = bracket(now);
    std::map<uint32_t, uint64_t> launch_of;
    std::vector<Span> spans;
    const auto add = [&](const auto& r) {
      spans.push_back({r.correlationId, r.start, r.end, r.graphNodeId});
    };
    Records out;
    out.dropped = flush([&](const CUpti_Activity& r) {
      // Later versions of a record only append to it.
      if (r.kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
        const auto& link = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(r);
        launch_of[link.correlationId] = link.externalId;
      }
      if (r.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const auto& k = reinterpret_cast<const CUpti_ActivityKernel9&>(r);
        add(k);
        spans.back().kernel = k.name;
        spans.back().footprint = {.grid = {k.gridX, k.gridY, k.gridZ},
            .block = {k.blockX, k.blockY, k.blockZ},
            .registers = int{k.registersPerThread},
            .static_shared = int{k.staticSharedMemory},
            .dynamic_shared = int{k.dynamicSharedMemory}};
      }
      if (r.kind == CUPTI_ACTIVITY_KIND_MEMCPY)
        add(reinterpret_cast<const CUpti_ActivityMemcpy5&>(r));
      if (r.kind == CUPTI_ACTIVITY_KIND_MEMSET)
        add(reinterpret_cast<const CUpti_ActivityMemset4&>(r));
    });
    const int64_t half_ns = std::max(begin_.half_ns, end.half_ns);
    if (half_ns == Bracket{}.half_ns || end.device_ns <= begin_.device_ns) return out;
    out.axis_ns = half_ns;
    const double scale =
        double(end.host_ns - begin_.host_ns) / double(end.device_ns - begin_.device_ns);
    const auto host = [&](uint64_t t) {
      return begin_.host_ns + int64_t(double(int64_t(t) - begin_.device_ns) * scale);
    };
    Cupti& c = cupti();
    const std::lock_guard lock(c.mutex);
    struct Op {
      Ran ran;
      const Span* longest = nullptr;  // kernel
    };
    std::map<std::pair<uint64_t, uint32_t>, Op> ops;
    std::map<uint64_t, uint64_t> executables;  // launch -> what it launched
    for (const Span& s : spans) {
      const auto launch = launch_of.find(s.correlation);
      const auto op = c.op_of.find(s.node);
      if (launch == launch_of.end() || (s.node != 0 && op == c.op_of.end())) continue;
      const uint32_t node = s.node != 0 ? op->second + 1 : 0;
      if (node > 0) executables[launch->second] = s.node >> 32;
      auto& [r, longest] = ops[{launch->second, node}];
      const bool is_first = r.kernels++ == 0;
      const bool stamped = (s.begin != 0 || s.end != 0) && (is_first || r.begin != 0);
      const int64_t begin = is_first ? host(s.begin) : std::min(r.begin, host(s.begin));
      r.begin = stamped ? begin : 0;
      r.end = stamped ? std::max(r.end, host(s.end)) : 0;
      if (s.kernel && (!longest || s.end - s.begin > longest->end - longest->begin)) longest = &s;
    }
    // A graph says how many nodes each op has; one that does not have them all was not timed.
    for (const auto& [launch, executable] : executables) {
      for (const auto& [op, nodes] : c.nodes[executable]) {
        Op& found = ops[{launch, op + 1}];
        if (found.ran.kernels != nodes) found = {};
      }
    }
    for (auto& [key, op] : ops) {
      auto& [r, longest] = op;
      std::tie(r.launch, r.node) = key;
      if (longest) {
        r.kernel = *c.kernels.insert(demangled(longest->kernel)).first;
        r.footprint = longest->footprint;
      }
      out.ran.push_back(r);
    }
    return out;
  }

 private:
  // One moment on both clocks: half_ns is how sure the host's is.
  struct Bracket {
    int64_t host_ns = 0, half_ns = INT64_MAX, device_ns = 0;
  };

  // The narrowest of several. REQUIRES: the stream is idle.
  Bracket bracket(const HostClock& now) {
    Bracket best;
    for (int i = 0; i < kBrackets; ++i) {
      const int64_t before = now();
      uint64_t device = 0;
      if (calls_.cuptiGetTimestamp(&device) != CUPTI_SUCCESS) break;
      const int64_t half = (now() - before) / 2;
      if (half < best.half_ns) best = {before + half, half, static_cast<int64_t>(device)};
    }
    return best;
  }

  // Reads and gives up all records so far; how many were dropped.
  template <class F> int64_t flush(F&& take) {
    // Forced: else one record of another thread's work holds back its buffer.
    calls_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    size_t dropped = 0;
    calls_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
    Cupti& c = cupti();
    const std::lock_guard lock(c.mutex);
    for (const auto& [buffer, valid] : c.full) {
      CUpti_Activity* record = nullptr;
      while (
          valid > 0 && calls_.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        take(*record);
      std::free(buffer);
    }
    c.buffers -= c.full.size();
    c.full.clear();
    return static_cast<int64_t>(dropped);
  }
  const CuptiCalls& calls_;
  Bracket begin_;
};

const CuptiCalls* load(std::string& why) {
  static CuptiCalls calls;
  static const std::string problem = [] {
    Library library({"libcupti.so.13", "libcupti.so.12", "libcupti.so"}, SINTER_CUDA_LIBRARY_DIR);
#define SINTER_LOAD(name) library.find(#name, calls.name);
    SINTER_CUPTI_CALLS(SINTER_LOAD)
#undef SINTER_LOAD
    return library.why();
  }();
  why = problem;
  return problem.empty() ? &calls : nullptr;
}

}  // namespace

void set_cupti(const CuptiCalls* calls) {
  Cupti& c = cupti();
  g_instead = calls;
  c.calls = nullptr;
  c.op_of.clear();
  c.nodes.clear();
}

std::unique_ptr<DeviceTimer> make_cupti_timer(std::string& why) {
  why = "the card is not real";
  const CuptiCalls* calls = g_instead;
  if (!calls && api().real) calls = load(why);
  if (!calls) return nullptr;
  uint32_t version = 0;
  if (calls->cuptiGetVersion(&version) != CUPTI_SUCCESS || version < CUPTI_API_VERSION) {
    why = str("libcupti is of version ", version, ", the build's header of ", CUPTI_API_VERSION);
    return nullptr;
  }
  Cupti& c = cupti();
  why = "CUPTI serves another session";
  if (c.turn != 0) return nullptr;
  thread_state();  // opens the card
  CUptiResult answer = CUPTI_SUCCESS;
  if (c.calls != calls) answer = calls->cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  if (answer == CUPTI_SUCCESS) c.calls = calls;
  for (const CUpti_ActivityKind kind : kKinds) {
    if (answer == CUPTI_SUCCESS) answer = calls->cuptiActivityEnable(kind);
  }
  if (answer == CUPTI_SUCCESS) {
    why.clear();
    return std::make_unique<CuptiTimer>(*calls);
  }
  for (const CUpti_ActivityKind kind : kKinds) calls->cuptiActivityDisable(kind);
  why = str("CUPTI refuses (", static_cast<int>(answer), ")");
  if (answer == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) why += ": no privilege";
  if (answer == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) why += ": another tool is attached";
  return nullptr;
}

int records_turn() noexcept { return cupti().turn; }

void remember_nodes(cudaGraphExec_t executable, const std::map<void*, int>& op_of_node) {
  Cupti& c = cupti();
  uint32_t number = 0;
  if (op_of_node.empty() || !c.calls ||
      c.calls->cuptiGetGraphExecId(executable, &number) != CUPTI_SUCCESS)
    return;
  const std::lock_guard lock(c.mutex);
  for (const auto& [node, op] : op_of_node) {
    uint64_t id = 0;
    ++c.nodes[number][static_cast<uint32_t>(op)];
    // Where it fails the node's records will be missing.
    if (c.calls->cuptiGetGraphNodeId(static_cast<cudaGraphNode_t>(node), &id) == CUPTI_SUCCESS)
      c.op_of[uint64_t{number} << 32 | (id & UINT32_MAX)] = static_cast<uint32_t>(op);
  }
}

}  // namespace sinter::cuda

#else

namespace sinter::cuda {
std::unique_ptr<DeviceTimer> make_cupti_timer(std::string& why) {
  why = "built without cupti.h";
  return nullptr;
}
int records_turn() noexcept { return 0; }
void remember_nodes(cudaGraphExec_t, const std::map<void*, int>&) {}
}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUPTI

#endif  // SINTER_HAS_CUDA
