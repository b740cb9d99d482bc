#include "distributed/mpi.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

#if SINTER_HAS_MPI
#include <mpi.h>

#include <exception>
#include <limits>
#include <thread>
#endif

namespace sinter::distributed {

int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  }
  return 1;
}

#if SINTER_HAS_MPI
namespace {

using Clock = std::chrono::steady_clock;
using Requests = std::vector<MPI_Request>;

// Of the text that each rank sends to all others when it has waited too long.
constexpr int kLateTag = 21;
// Ranks begin to wait at different moments of a step. Whoever has not said within this time that it
// waits, too, is the one that all wait for.
constexpr std::chrono::seconds kGrace{2};

void check_mpi(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  SINTER_CHECK(false, state,
      cat("MPI: ", what, " failed: ", std::string_view(text, static_cast<size_t>(length)),
          "; its status must be MPI_SUCCESS"));
}

// MPI counts in int.
int count_of_bytes(size_t bytes) {
  SINTER_CHECK(bytes <= static_cast<size_t>(std::numeric_limits<int>::max()), usage,
      cat("MPI: a text of ", bytes, " bytes; at most 2^31 - 1"));
  return static_cast<int>(bytes);
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(int rank, int size) : Communicator(rank, size) {}
  // Not while an error ends the process: the others would be waited for.
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() == 0 && !failed_) MPI_Finalize();
  }
  std::string describe() const override { return mpi_version(); }

  void broadcast(void* data, size_t bytes) override {
    Requests requests(1);
    check_mpi(MPI_Ibcast(data, count_of_bytes(bytes), MPI_BYTE, 0, MPI_COMM_WORLD, &requests[0]),
        "MPI_Ibcast");
    wait(requests);
  }

  std::vector<std::string> gather(const std::string& own) override {
    const auto ranks = static_cast<size_t>(size());
    std::vector<int> sizes(ranks), begins(ranks);
    const int mine = count_of_bytes(own.size());
    Requests requests(1);
    check_mpi(
        MPI_Iallgather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD, &requests[0]),
        "MPI_Iallgather");
    wait(requests);
    size_t bytes = 0;
    for (size_t r = 0; r < ranks; ++r) {
      begins[r] = count_of_bytes(bytes);
      bytes += static_cast<size_t>(sizes[r]);
    }
    std::string text(bytes, 0);
    requests.resize(1);
    check_mpi(MPI_Iallgatherv(own.data(), mine, MPI_BYTE, text.data(), sizes.data(), begins.data(),
                  MPI_BYTE, MPI_COMM_WORLD, &requests[0]),
        "MPI_Iallgatherv");
    wait(requests);
    std::vector<std::string> all;
    for (size_t r = 0; r < ranks; ++r)
      all.push_back(text.substr(static_cast<size_t>(begins[r]), static_cast<size_t>(sizes[r])));
    return all;
  }

  [[noreturn]] void abort(int exit_status) override {
    MPI_Abort(MPI_COMM_WORLD, exit_status);
    std::_Exit(exit_status);
  }

 protected:
  // MPI gives all ranks identical bits (MPI 4.0, 6.9.6), and Open MPI adds in an order that follows
  // from the ranks and the size of the message.
  void start(
      int64_t bucket, std::span<const SumPiece> pieces, DType dtype, Device device) override {
    SINTER_CHECK(device.type != Device::Type::cuda, device,
        cat("sum over ranks: MPI sums memory of the host; the tensors are on ", device.str()),
        "use NCCL between cards");
    const MPI_Datatype type = dtype == DType::f32 ? MPI_FLOAT : MPI_DOUBLE;
    Requests& requests = sums_[bucket].requests;
    for (SumPiece piece : pieces) {
      constexpr int64_t kMost = 1 << 30;
      while (piece.count > 0) {
        const int64_t count = std::min(piece.count, kMost);
        check_mpi(MPI_Iallreduce(MPI_IN_PLACE, piece.data, static_cast<int>(count), type, MPI_SUM,
                      MPI_COMM_WORLD, &requests.emplace_back()),
            "MPI_Iallreduce");
        piece.data = static_cast<char*>(piece.data) + count * static_cast<int64_t>(size_of(dtype));
        piece.count -= count;
      }
    }
    // MPI works while it is called, so the sums before this one get on.
    for (auto& [_, sum] : sums_) {
      if (!sum.requests.empty() && test(sum.requests)) sum.there = Clock::now();
    }
  }

  Time finish(int64_t bucket) override {
    Sum& sum = sums_.at(bucket);
    if (!sum.requests.empty()) {
      wait(sum.requests);
      sum.there = Clock::now();
    }
    const Time there = sum.there;
    sums_.erase(bucket);
    return there;
  }

 private:
  struct Sum {
    Requests requests;  // none: done
    Time there{};
  };
  static bool test(Requests& requests) {
    int done = 0;
    check_mpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    if (done) requests.clear();
    return done;
  }

  // Looks again and again at first; then gives the core away between two looks, since ranks may be
  // more than cores; and sleeps where another rank has more to do than this one.
  void wait(Requests& requests) {
    const Clock::time_point begin = Clock::now();
    const auto since = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    for (int64_t looks = 0; !test(requests); ++looks) {
      const double waited = looks < 1000 ? 0 : since();
      if (waited > timeout()) throw_late();
      if (looks >= 1000) std::this_thread::yield();
      if (waited > 0.002) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Which of the ranks wait like this one? They tell each other. The lowest of them throws first;
  // the others give its caller time to end them.
  [[noreturn]] void throw_late() {
    failed_ = true;
    std::vector<char> waits(static_cast<size_t>(size()));
    waits[static_cast<size_t>(rank())] = 1;
    char note = 0;
    Requests sent(static_cast<size_t>(size()), MPI_REQUEST_NULL);  // never waited for
    for (int r = 0; r < size(); ++r) {
      if (r != rank())
        MPI_Isend(&note, 1, MPI_BYTE, r, kLateTag, MPI_COMM_WORLD, &sent[static_cast<size_t>(r)]);
    }
    for (const auto begin = Clock::now(); Clock::now() - begin < kGrace;) {
      int here = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, kLateTag, MPI_COMM_WORLD, &here, &status);
      if (here) {
        MPI_Recv(&note, 1, MPI_BYTE, status.MPI_SOURCE, kLateTag, MPI_COMM_WORLD, &status);
        waits[static_cast<size_t>(status.MPI_SOURCE)] = 1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::string missing;
    for (size_t r = 0; r < waits.size(); ++r) {
      if (!waits[r]) missing += cat(missing.empty() ? "rank " : ", ", r);
    }
    const bool lowest = std::find(waits.begin(), waits.end(), 1) - waits.begin() == rank();
    if (!lowest) std::this_thread::sleep_for(2 * kGrace);
    throw Error(Error::Kind::state,
        missing.empty()
            ? cat("sum over ranks: all ", size(), " ranks wait, each for another call; rank ",
                  rank(), " waited ", timeout(), " seconds")
            : cat("sum over ranks: ", missing, " of ", size(), " did not arrive; rank ", rank(),
                  " waited ", timeout(), " seconds"));
  }

  std::map<int64_t, Sum> sums_;
  bool failed_ = false;
};

}  // namespace

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string_view version(text, static_cast<size_t>(length));
  return std::string(version.substr(0, version.find_first_of(",\n")));  // "Open MPI v4.1.4"
}

std::unique_ptr<Communicator> make_mpi_communicator() {
  int started = 0, thread_level = 0, rank = 0, size = 0;
  MPI_Initialized(&started);
  SINTER_CHECK(!started, state, "MPI: it was started before; once in a process");
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &thread_level), "MPI_Init");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::make_unique<MpiCommunicator>(rank, size);
}

#else

std::string mpi_version() { return ""; }

std::unique_ptr<Communicator> make_mpi_communicator() {
  throw Error(Error::Kind::not_built, "MPI: not in this build: CMake did not find it",
      "apt-get install libopenmpi-dev, then configure and build again");
}

#endif

}  // namespace sinter::distributed
