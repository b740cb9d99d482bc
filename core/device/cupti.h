// CUPTI's activity records: what the card itself says of when each kernel, copy and fill ran, in
// ns. libcupti is looked for at run time and never linked; where it is not there, too old, or
// refuses (another tool is attached, a container without the privilege), launches outside graphs
// have no device time and the table says why.
//
// The records are kept while a timer lives, one at a time. Launches outside graphs are known by an
// external correlation id; the nodes of a replay by the executable's number and the node's, which a
// graph must tell when it is captured, and only one that was captured while a timer lived has
// records at all. No timestamp callback is registered: from CUDA 12.6 U2 until 13.1 that yields
// stamps of zero. The library is never finalised: before 13.1 U1 it mixes up the launches of graphs
// when it begins anew.
#pragma once

#if SINTER_HAS_CUDA

#include <map>
#include <memory>
#include <string>

#include "core/device/cuda_api.h"
#include "core/device/timing.h"

#if __has_include(<cupti.h>)
#define SINTER_HAS_CUPTI 1
#include <cupti.h>

#define SINTER_CUPTI_CALLS(X)               \
  X(cuptiGetVersion)                        \
  X(cuptiGetTimestamp)                      \
  X(cuptiGetGraphNodeId)                    \
  X(cuptiGetGraphExecId)                    \
  X(cuptiActivityRegisterCallbacks)         \
  X(cuptiActivityEnable)                    \
  X(cuptiActivityDisable)                   \
  X(cuptiActivityFlushAll)                  \
  X(cuptiActivityGetNextRecord)             \
  X(cuptiActivityGetNumDroppedRecords)      \
  X(cuptiActivityPushExternalCorrelationId) \
  X(cuptiActivityPopExternalCorrelationId)

namespace sinter::cuda {
struct CuptiCalls {
#define SINTER_POINTER(name) decltype(&::name) name = nullptr;
  SINTER_CUPTI_CALLS(SINTER_POINTER)
#undef SINTER_POINTER
};
// For tests: a table that stands in for the library; null: the library again. REQUIRES: no timer
// lives.
void set_cupti(const CuptiCalls* calls);
}  // namespace sinter::cuda
#endif

namespace sinter::cuda {

// One without records, of the card in use. The clock is told by the driver's management library; it
// is not known where that is not there.
class CardTimer : public DeviceTimer {
 public:
  void wait() noexcept override;
  SmClock sm_clock() noexcept override;
  Card card() noexcept override;
};

// nullptr, and why not: no library, one older than the header, or one that refuses.
std::unique_ptr<DeviceTimer> make_cupti_timer(std::string& why);
// Which op each node of a captured graph belongs to, for the records of its replays.
void remember_nodes(cudaGraphExec_t executable, const std::map<void*, int>& op_of_node);

}  // namespace sinter::cuda

#endif  // SINTER_HAS_CUDA
