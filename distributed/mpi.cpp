#include "distributed/mpi.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>
#include <thread>

#include "core/device/library.h"
#include "core/error.h"
#include "distributed/mpi_calls.h"

namespace sinter::distributed {

namespace {

using Clock = std::chrono::steady_clock;
using Requests = std::vector<MpiRequest>;

// Ranks begin to wait at different moments of a step. Whoever has not said within this time that it
// waits, too, is the one that all wait for.
constexpr std::chrono::seconds kGrace{2};

struct MpiLibrary {
  const MpiCalls* calls = nullptr;
  std::string why;  // there are none
};
// The loader finds it by the program's RUNPATH: sinter_module() in cmake/SinterLibrary.cmake.
const MpiLibrary& mpi_library() {
  static const MpiLibrary found = [] {
    MpiLibrary mpi;
    // Global: plugins of some builds of Open MPI look for its names there.
    Library library({"libsinter_mpi.so"}, "", true);
    library.find("sinter_mpi_calls", mpi.calls);
    mpi.why = library.why();
    return mpi;
  }();
  return found;
}

void check_mpi(int status, const char* what) {
  if (status == 0) return;
  throw Error(
      Error::Kind::state, str("MPI: ", what, " failed: ", mpi_library().calls->text_of(status),
                              "; its status must be MPI_SUCCESS"));
}

// MPI counts in int.
int count_of_bytes(double bytes) {
  SINTER_CHECK(bytes <= std::numeric_limits<int>::max(), usage,
      str("MPI: texts of ", bytes, " bytes; at most 2^31 - 1"));
  return static_cast<int>(bytes);
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(const MpiCalls& mpi, int rank, int size) : Communicator(rank, size), mpi_(mpi) {}
  // Not while an error ends the process: the others would be waited for.
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() == 0 && !failed_) mpi_.end();
  }
  std::string describe() const override { return mpi_version(); }

  std::vector<std::string> gather(const std::string& own) override {
    const auto ranks = static_cast<size_t>(size());
    std::vector<double> lengths(ranks);
    lengths[static_cast<size_t>(rank())] = static_cast<double>(own.size());
    Requests requests(1);
    check_mpi(mpi_.sum(lengths.data(), size(), true, &requests[0]), "MPI_Iallreduce");
    wait(requests);
    std::vector<int> sizes, begins;
    double bytes = 0;
    for (const double length : lengths) {
      begins.push_back(count_of_bytes(bytes));
      sizes.push_back(count_of_bytes(length));
      bytes += length;
    }
    std::string text(static_cast<size_t>(count_of_bytes(bytes)), 0);
    requests.resize(1);
    check_mpi(mpi_.gather(own.data(), sizes[static_cast<size_t>(rank())], text.data(), sizes.data(),
                  begins.data(), &requests[0]),
        "MPI_Iallgatherv");
    wait(requests);
    std::vector<std::string> all;
    for (size_t r = 0; r < ranks; ++r)
      all.push_back(text.substr(static_cast<size_t>(begins[r]), static_cast<size_t>(sizes[r])));
    return all;
  }

  [[noreturn]] void abort(int exit_status) override {
    mpi_.abort(exit_status);
    std::_Exit(exit_status);
  }

 protected:
  // MPI gives all ranks identical bits (MPI 4.0, 6.9.6), and Open MPI adds in an order that follows
  // from the ranks and the size of the message.
  void start(
      int64_t bucket, std::span<const SumPiece> pieces, DType dtype, Device device) override {
    SINTER_CHECK(device.type != Device::Type::cuda, device,
        str("sum over ranks: MPI sums memory of the host; the tensors are on ", device.str()),
        "use NCCL between cards");
    Requests& requests = sums_[bucket].requests;
    for (SumPiece piece : pieces) {
      constexpr int64_t kMost = 1 << 30;
      while (piece.count > 0) {
        const int64_t count = std::min(piece.count, kMost);
        check_mpi(mpi_.sum(piece.data, static_cast<int>(count), dtype == DType::f64,
                      &requests.emplace_back()),
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
  // The last goes first: requests of a sum end in about the order in which they began.
  bool test(Requests& requests) {
    int done = 1;
    while (done && !requests.empty()) {
      check_mpi(mpi_.test(&requests.back(), &done), "MPI_Test");
      if (done) requests.pop_back();
    }
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
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) mpi_.send_note(r);
    }
    for (const auto begin = Clock::now(); Clock::now() - begin < kGrace;) {
      int from = 0;
      if (mpi_.receive_note(&from)) waits[static_cast<size_t>(from)] = 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::string missing;
    for (size_t r = 0; r < waits.size(); ++r) {
      if (!waits[r]) missing += str(missing.empty() ? "rank " : ", ", r);
    }
    const bool lowest = std::find(waits.begin(), waits.end(), 1) - waits.begin() == rank();
    if (!lowest) std::this_thread::sleep_for(2 * kGrace);
    throw Error(Error::Kind::state,
        missing.empty()
            ? str("sum over ranks: all ", size(), " ranks wait, each for another call; rank ",
                  rank(), " waited ", timeout(), " seconds")
            : str("sum over ranks: ", missing, " of ", size(), " did not arrive; rank ", rank(),
                  " waited ", timeout(), " seconds"));
  }

  const MpiCalls& mpi_;
  std::map<int64_t, Sum> sums_;
  bool failed_ = false;
};

}  // namespace

int launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  }
  // srun by PMIx says the rank, and how many there are only by Slurm's own variable, which a shell
  // inside an allocation has as well.
  const char* size = std::getenv("PMIX_RANK") ? std::getenv("SLURM_STEP_NUM_TASKS") : nullptr;
  return size ? std::max(1, std::atoi(size)) : 1;
}

std::string mpi_version(std::string* why) {
  const MpiLibrary& library = mpi_library();
  if (why) *why = library.why;
  if (!library.calls) return "";
  const std::string_view version = library.calls->version();
  return std::string(version.substr(0, version.find_first_of(",\n")));  // "Open MPI v4.1.4"
}

std::unique_ptr<Communicator> make_mpi_communicator() {
  const auto& [calls, why] = mpi_library();
  if (!calls) {
    throw Error(Error::Kind::not_built, str("MPI: not in this build: ", why),
        "scripts/setup mpi (libopenmpi-dev, openmpi-bin), then configure and build again");
  }
  SINTER_CHECK(!calls->started(), state, "MPI: it was started before; once in a process");
  int rank = 0, size = 0;
  check_mpi(calls->start(&rank, &size), "MPI_Init");
  return std::make_unique<MpiCommunicator>(*calls, rank, size);
}

}  // namespace sinter::distributed
