// A Communicator whose gradients are summed by NCCL, between cards. NCCL is looked for when the
// first one is made, and never linked: its functions are declared here, and no header of it is
// needed. What is for the host (texts, single numbers, memory of the CPU) goes by the communicator
// of MPI, as does NCCL's unique id.
//
// Note [Sums beside backward on a card]
//   NCCL has a stream of its own. A sum waits there for what the thread's stream holds at its
//   start, and finish_sum() lets that stream wait for the sum: what is launched between the two
//   runs beside it. Inside a capture the same calls make a branch of the graph, which begins at
//   all_reduce and comes back at all_reduce_wait:
//
//       stream   dW3 -+- dW2 -------+- dW1 --+- wait - update
//       NCCL          +- sum of W3 -+ sum of W2 .. -+
//
//   All sums are on one stream, so they have one order on all ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/communicator.h"

namespace sinter::distributed {

struct NcclId {
  char bytes[128];
};
// The functions of NCCL in use; each but ncclGetErrorString answers a status, 0: done.
#define SINTER_NCCL_CALLS(X)                                                                     \
  X(int, ncclGetVersion, int*)                                                                   \
  X(const char*, ncclGetErrorString, int status)                                                 \
  X(int, ncclGetUniqueId, NcclId*)                                                               \
  X(int, ncclCommInitRank, void** comm, int ranks, NcclId, int rank)                             \
  X(int, ncclCommDestroy, void* comm)                                                            \
  X(int, ncclCommAbort, void* comm)                                                              \
  X(int, ncclCommGetAsyncError, void* comm, int* status)                                         \
  X(int, ncclGroupStart)                                                                         \
  X(int, ncclGroupEnd)                                                                           \
  X(int, ncclAllReduce, const void* from, void* to, size_t count, int dtype, int op, void* comm, \
      void* stream)
struct Nccl {
#define SINTER_POINTER(result, name, ...) result (*name)(__VA_ARGS__) = nullptr;
  SINTER_NCCL_CALLS(SINTER_POINTER)
#undef SINTER_POINTER
};
// As nccl.h has them.
inline constexpr int kNcclFloat = 7, kNcclDouble = 8, kNcclSum = 0;
// For tests: another table in place of the library's, nullptr: the library again.
void set_nccl(const Nccl* table);

// "NCCL 2.28.9"; "" and, in `why`, the reason where there is none.
std::string nccl_version(std::string* why);

// On the thread's card, all ranks together. Throws not_built, device. REQUIRES: captured steps that
// hold its sums go before it does, as NCCL waits for their graphs.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host);

}  // namespace sinter::distributed
