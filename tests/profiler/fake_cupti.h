// A card whose CUPTI keeps records: a table that stands in for the library over a recorder, on one
// fake clock.
#pragma once

#include "core/device/cupti.h"

#if SINTER_HAS_CUPTI

#include <cstring>

#include "core/device/cuda_stream.h"
#include "tests/cuda_recorder.h"
#include "tests/profiler/fake_clock.h"

namespace sinter::test {

using namespace cuda;
inline constexpr size_t kStride = size_t{1} << 20;  // of records in a buffer: 4 fill one
inline constexpr int64_t kOffset = 7'000'000'000;   // of the device's clock

// The library and the card behind it: each thing after the other, and as long as `next_ns` says.
struct Fake {
  profiler::FakeClock clock;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::vector<CUpti_ActivityKind> kinds;
  std::vector<uint64_t> ids;
  uint8_t* buffer = nullptr;
  size_t used = 0, size = 0, dropped = 0;
  uint32_t correlation = 0;
  int64_t free_at = 0, next_ns = 2000;
  int records = 0, lose = -1,
      zero = -1;                   // the records with these numbers, of those that stand for work
  bool twice = false;              // every call runs two kernels
  bool parallel = false;           // all that is launched runs at once
  CUpti_ActivityKernel9 kernel{};  // what all say of their name and footprint
  CUptiResult answer = CUPTI_SUCCESS;
  uint32_t version = CUPTI_API_VERSION;
  std::map<cudaGraphExec_t, std::pair<uint32_t, size_t>> graphs;  // number, nodes
  Api api{};                                                      // the recorder's

  template <class R> void put(const R& record) {
    if (buffer && used + kStride > size) hand_over();
    size_t most = 0;
    if (!buffer) {
      request(&buffer, &size, &most);
      used = 0;
    }
    if (!buffer) return void(++dropped);
    std::memcpy(buffer + used, &record, sizeof record);
    used += kStride;
  }
  void hand_over() {
    if (uint8_t* full = std::exchange(buffer, nullptr)) complete(nullptr, 0, full, size, used);
  }
  void call() {
    ++correlation;
    for (const uint64_t id : ids) {
      CUpti_ActivityExternalCorrelation link{};
      link.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
      link.externalId = id;
      link.correlationId = correlation;
      put(link);
    }
  }
  template <class R> void work(CUpti_ActivityKind kind, uint64_t node = 0) {
    const int64_t begin = parallel ? clock.now() : std::max(free_at, clock.now());
    free_at = begin + next_ns;
    if (kinds.empty() || records++ == lose) return;
    R r{};
    if constexpr (std::is_same_v<R, CUpti_ActivityKernel9>) r = kernel;
    r.kind = kind;
    r.correlationId = correlation;
    r.graphNodeId = node;
    if (records - 1 != zero) {
      r.start = uint64_t(begin + kOffset);
      r.end = uint64_t(free_at + kOffset);
    }
    put(r);
  }
};
inline Fake* fake = nullptr;

inline CuptiCalls fake_calls() {
  CuptiCalls c;
  c.cuptiGetVersion = [](uint32_t* v) { return *v = fake->version, CUPTI_SUCCESS; };
  c.cuptiGetTimestamp = [](uint64_t* t) {
    fake->clock.advance(100);
    *t = uint64_t(fake->clock.now() + kOffset);
    return fake->clock.advance(100), CUPTI_SUCCESS;
  };
  c.cuptiGetGraphNodeId = [](CUgraphNode node, uint64_t* id) {
    return *id = uint64_t{99} << 32 | reinterpret_cast<uintptr_t>(node),
           CUPTI_SUCCESS;  // the number of the graph, not of the executable
  };
  c.cuptiGetGraphExecId = [](CUgraphExec e, uint32_t* id) {
    return *id = fake->graphs[e].first, CUPTI_SUCCESS;
  };
  c.cuptiActivityRegisterCallbacks = [](CUpti_BuffersCallbackRequestFunc r,
                                         CUpti_BuffersCallbackCompleteFunc d) {
    return fake->request = r, fake->complete = d, CUPTI_SUCCESS;
  };
  c.cuptiActivityEnable = [](CUpti_ActivityKind kind) {
    if (fake->answer == CUPTI_SUCCESS) fake->kinds.push_back(kind);
    return fake->answer;
  };
  c.cuptiActivityDisable = [](CUpti_ActivityKind kind) {
    return std::erase(fake->kinds, kind), CUPTI_SUCCESS;
  };
  c.cuptiActivityFlushAll = [](uint32_t) { return fake->hand_over(), CUPTI_SUCCESS; };
  c.cuptiActivityGetNextRecord = [](uint8_t* buffer, size_t valid, CUpti_Activity** record) {
    uint8_t* const next = *record ? reinterpret_cast<uint8_t*>(*record) + kStride : buffer;
    if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    return *record = reinterpret_cast<CUpti_Activity*>(next), CUPTI_SUCCESS;
  };
  c.cuptiActivityGetNumDroppedRecords = [](CUcontext, uint32_t, size_t* n) {
    return *n = std::exchange(fake->dropped, 0), CUPTI_SUCCESS;
  };
  c.cuptiActivityPushExternalCorrelationId = [](CUpti_ExternalCorrelationKind, uint64_t id) {
    return fake->ids.push_back(id), CUPTI_SUCCESS;
  };
  c.cuptiActivityPopExternalCorrelationId = [](CUpti_ExternalCorrelationKind, uint64_t* id) {
    *id = fake->ids.back();
    return fake->ids.pop_back(), CUPTI_SUCCESS;
  };
  return c;
}

// The recorder's table, whose calls the library sees.
inline Api watched(const Api& of) {
  fake->api = of;
  Api a = of;
  a.cudaLaunchKernelExC = [](const cudaLaunchConfig_t* config, const void* kernel,
                              void** arguments) {
    if (!capturing()) {
      fake->call();
      for (int i = 0; i < 1 + fake->twice; ++i)
        fake->work<CUpti_ActivityKernel9>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    }
    return fake->api.cudaLaunchKernelExC(config, kernel, arguments);
  };
  a.cudaMemsetAsync = [](void* to, int value, size_t bytes, cudaStream_t stream) {
    fake->call();
    fake->work<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
    return fake->api.cudaMemsetAsync(to, value, bytes, stream);
  };
  a.cudaGraphInstantiate = [](cudaGraphExec_t* executable, cudaGraph_t graph,
                               unsigned long long flags) {
    const cudaError_t answer = fake->api.cudaGraphInstantiate(executable, graph, flags);
    size_t nodes = 0;
    fake->api.cudaGraphGetNodes(graph, nullptr, &nodes);
    fake->graphs[*executable] = {uint32_t(fake->graphs.size() + 1), nodes};
    return answer;
  };
  a.cudaGraphLaunch = [](cudaGraphExec_t executable, cudaStream_t stream) {
    const auto [number, nodes] = fake->graphs.at(executable);
    fake->call();
    for (uint64_t n = 1; n <= nodes; ++n)
      fake->work<CUpti_ActivityKernel9>(
          CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, uint64_t{number} << 32 | n);
    return fake->api.cudaGraphLaunch(executable, stream);
  };
  a.cudaStreamSynchronize = [](cudaStream_t stream) {
    fake->clock.advance(std::max<int64_t>(0, fake->free_at - fake->clock.now()));
    return fake->api.cudaStreamSynchronize(stream);
  };
  return a;
}

// Puts both in place, and the real ones back. REQUIRES: as FakeToolkit.
class FakeCupti {
 public:
  FakeCupti() {
    static const CuptiCalls calls = fake_calls();
    fake = &state;
    table_ = watched(api());
    set_api(table_);
    set_cupti(&calls);
  }
  ~FakeCupti() { set_cupti(nullptr); }

  Fake state;

 private:
  Api table_;

 public:
  cuda::FakeToolkit recorder;
};

}  // namespace sinter::test

#endif  // SINTER_HAS_CUPTI
