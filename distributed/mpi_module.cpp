// libsinter_mpi.so: see mpi_calls.h.
#include <mpi.h>

#include <cstdlib>

#include "distributed/mpi_calls.h"

namespace sinter::distributed {
namespace {

constexpr int kNoteTag = 21;

MPI_Request* mpi(MpiRequest* request) {
  static_assert(sizeof(MPI_Request) <= sizeof(MpiRequest));
  return reinterpret_cast<MPI_Request*>(request);
}

// Note [How Open MPI sums]
//   Left to itself, Open MPI 4.1 sums in place along a binomial tree: whole tensors go up to rank 0
//   and down again, and of two ranks one always waits. We ask for Rabenseifner's algorithm: ranks
//   exchange and add halves, then quarters, until each holds the sum of its share; then they gather
//   the shares. That is 2 log2(N) messages and 2 (N-1)/N of the bytes for each rank. An element's
//   sum is made on one rank, so all get the same bits. A variable that the user has set
//   stays; other MPIs do not read it.
void choose_sum() { setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "3", 0); }

int start(int* rank, int* size) {
  choose_sum();
  int thread_level = 0;
  const int status = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &thread_level);
  if (status != MPI_SUCCESS) return status;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  return status;
}

const char* version() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

const char* text_of(int status) {
  static char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  return text;
}

int gather(const void* own, int bytes, void* all, const int* sizes, const int* begins,
    MpiRequest* request) {
  return MPI_Iallgatherv(
      own, bytes, MPI_BYTE, all, sizes, begins, MPI_BYTE, MPI_COMM_WORLD, mpi(request));
}

int sum(void* data, int count, bool f64, MpiRequest* request) {
  return MPI_Iallreduce(MPI_IN_PLACE, data, count, f64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM,
      MPI_COMM_WORLD, mpi(request));
}

void send_note(int rank) {
  static const char note = 0;
  MPI_Request request;
  MPI_Isend(&note, 1, MPI_BYTE, rank, kNoteTag, MPI_COMM_WORLD, &request);
  MPI_Request_free(&request);
}

bool receive_note(int* from) {
  int here = 0;
  char note = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, kNoteTag, MPI_COMM_WORLD, &here, &status);
  if (!here) return false;
  *from = status.MPI_SOURCE;
  MPI_Recv(&note, 1, MPI_BYTE, *from, kNoteTag, MPI_COMM_WORLD, &status);
  return true;
}

}  // namespace

const MpiCalls sinter_mpi_calls = {
    .started =
        [] {
          int started = 0;
          MPI_Initialized(&started);
          return started != 0;
        },
    .start = start,
    .end = [] { MPI_Finalize(); },
    .abort = [](int exit_status) { MPI_Abort(MPI_COMM_WORLD, exit_status); },
    .version = version,
    .text_of = text_of,
    .gather = gather,
    .sum = sum,
    .test = [](MpiRequest* request,
                int* done) { return MPI_Test(mpi(request), done, MPI_STATUS_IGNORE); },
    .send_note = send_note,
    .receive_note = receive_note,
};

}  // namespace sinter::distributed
