// What libsinter_mpi.so holds: the calls of MPI that mpi.cpp makes, in types that need no mpi.h. It
// is a library of its own because MPI takes longer to load than all the rest of a program, and most
// runs are one process.
#pragma once

namespace sinter::distributed {

using MpiRequest = void*;  // room for an MPI_Request, of whatever MPI

// All speak of MPI_COMM_WORLD. What gives an int gives MPI's status, 0 for success.
struct MpiCalls {
  bool (*started)();
  int (*start)(int* rank, int* size);
  void (*end)();
  void (*abort)(int exit_status);
  const char* (*version)();
  const char* (*text_of)(int status);

  // Each begins what test() sees the end of.
  int (*gather)(const void* own, int bytes, void* all, const int* sizes, const int* begins,
      MpiRequest* request);
  int (*sum)(void* data, int count, bool f64, MpiRequest* request);
  int (*test)(MpiRequest* request, int* done);

  // A byte that is not waited for.
  void (*send_note)(int rank);
  bool (*receive_note)(int* from);
};
extern "C" const MpiCalls sinter_mpi_calls;

}  // namespace sinter::distributed
