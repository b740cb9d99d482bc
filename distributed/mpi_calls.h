// What libsinter_mpi.so holds: the calls of MPI that mpi.cpp makes, in types that need no mpi.h. It
// is a library of its own because MPI takes longer to load than all the rest of a program, and most
// runs are one process.
#pragma once

namespace sinter::distributed {

using MpiRequest = void*;  // room for an MPI_Request, of whatever MPI

// All speak of MPI_COMM_WORLD. A call that fails ends the processes of all ranks, with what MPI
// says of it.
struct MpiCalls {
  bool (*start)(int* rank, int* size);  // false: it was started before
  void (*end)();
  void (*abort)(int exit_status);
  const char* (*version)();

  // Each begins what test() sees the end of.
  void (*gather)(const void* own, int bytes, void* all, const int* sizes, const int* begins,
      MpiRequest* request);
  void (*sum)(void* data, int count, bool f64, MpiRequest* request);
  bool (*test)(MpiRequest* request);

  // A byte that is not waited for.
  void (*send_note)(int rank);
  bool (*receive_note)(int* from);
};
extern "C" const MpiCalls sinter_mpi_calls;

}  // namespace sinter::distributed
