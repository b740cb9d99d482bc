#include "distributed/nccl.h"

#include "core/error.h"

#if SINTER_HAS_CUDA
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/device/cuda_stream.h"
#include "core/device/launch_hook.h"
#include "core/device/launch_log.h"
#include "core/device/library.h"
#endif

namespace sinter::distributed {

#if SINTER_HAS_CUDA
namespace {

using cuda::api;

const Nccl* nccl_of_test = nullptr;

const Nccl* find_nccl(std::string* why) {
  static Nccl table;
  static const std::string& problem = *new std::string([] {
    Library library({"libnccl.so.2"}, SINTER_CUDA_LIBRARY_DIR);
#define SINTER_FIND(result, name, ...) library.find(#name, table.name);
    SINTER_NCCL_CALLS(SINTER_FIND)
#undef SINTER_FIND
    return library.why();
  }());
  if (nccl_of_test) return nccl_of_test;
  *why = problem;
  return problem.empty() ? &table : nullptr;
}

constexpr std::chrono::milliseconds kWatchEvery{200};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Nccl& nccl, std::unique_ptr<Communicator> host)
      : Communicator(host->rank(), host->size()), nccl_(nccl), host_(std::move(host)) {
    cuda::thread_state();  // opens the card
    set_timeout(host_->timeout());
    NcclId id{};
    if (rank() == 0) check(nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId");
    const std::string own(id.bytes, sizeof id);
    host_->gather(own)[0].copy(id.bytes, sizeof id);
    SINTER_CUDA_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    try {
      check(nccl_.ncclCommInitRank(&comm_, size(), id, rank()), "ncclCommInitRank");
      watcher_ = std::thread([this] { watch(); });
    } catch (...) {
      if (comm_) nccl_.ncclCommAbort(comm_);
      api().cudaStreamDestroy(stream_);
      throw;
    }
  }
  // While an error ends the process the others may not come to an end in order.
  ~NcclCommunicator() override {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    ended_.notify_one();
    watcher_.join();
    const bool in_order = std::uncaught_exceptions() == 0 && lost_ == 0;
    if (in_order) api().cudaStreamSynchronize(stream_);
    if (comm_) (in_order ? nccl_.ncclCommDestroy : nccl_.ncclCommAbort)(comm_);
    for (const auto& [_, bucket] : buckets_) {
      if (bucket.ready) api().cudaEventDestroy(bucket.ready);
      if (bucket.done) api().cudaEventDestroy(bucket.done);
    }
    api().cudaStreamDestroy(stream_);
  }

  std::string describe() const override {
    std::string why;
    return str(nccl_version(&why), ", ", host_->describe());
  }
  double sum(double value) override {
    check_ranks();
    return host_->sum(value);
  }
  std::vector<std::string> gather(const std::string& own) override {
    check_ranks();
    return host_->gather(own);
  }
  [[noreturn]] void abort(int exit_status) override {
    host_->abort(exit_status);
    std::_Exit(exit_status);  // g++ takes a virtual function for one that may return
  }

 protected:
  void start(
      int64_t bucket, std::span<const SumPiece> pieces, DType dtype, Device device) override {
    Bucket& sum = buckets_[bucket];
    sum.on_card = device.type == Device::Type::cuda;
    if (!sum.on_card) return host_->start_sum(bucket, pieces, dtype, device);
    for (cudaEvent_t* event : {&sum.ready, &sum.done}) {
      if (!*event) SINTER_CUDA_CALL(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    if (cuda::thread_state().mode == cuda::Mode::rehearse) return;
    const std::lock_guard lock(mutex_);
    check_ranks();
    SINTER_CUDA_CALL(cudaEventRecord(sum.ready, cuda::stream()));
    SINTER_CUDA_CALL(cudaStreamWaitEvent(stream_, sum.ready, 0));
    log_launch({.kernel = "nccl_all_reduce", .grid = {}, .block = 1, .shared_bytes = 0});
    const HookedCall hooked(
        DeviceWork::kernel, Device::Type::cuda, "nccl_all_reduce", 0, !cuda::capturing());
    check(nccl_.ncclGroupStart(), "ncclGroupStart");
    int answer = 0;
    for (const SumPiece& piece : pieces) {
      if (answer != 0) break;
      answer = nccl_.ncclAllReduce(piece.data, piece.data, static_cast<size_t>(piece.count),
          dtype == DType::f32 ? kNcclFloat : kNcclDouble, kNcclSum, comm_, stream_);
    }
    const int end = nccl_.ncclGroupEnd();  // whatever was answered: a group must not stay open
    check(answer, "ncclAllReduce");
    check(end, "ncclGroupEnd");
    SINTER_CUDA_CALL(cudaEventRecord(sum.done, stream_));
  }

  Time finish(int64_t bucket) override {
    const std::lock_guard lock(mutex_);
    check_ranks();
    const Bucket& sum = buckets_.at(bucket);
    if (!sum.on_card) {
      host_->finish_sum(bucket);
    } else if (cuda::thread_state().mode != cuda::Mode::rehearse) {
      SINTER_CUDA_CALL(cudaStreamWaitEvent(cuda::stream(), sum.done, 0));
      if (!cuda::capturing()) check_async();
    }
    return std::chrono::steady_clock::now();
  }

 private:
  struct Bucket {
    cudaEvent_t ready = nullptr, done = nullptr;
    bool on_card = false;
  };

  void check(int status, const char* call) const {
    SINTER_CHECK(status == 0, device,
        str("NCCL: the call failed on rank ", rank(), " of ", size(), ": ",
            nccl_.ncclGetErrorString(status), " (", call, " says ", status, ")"),
        "NCCL_DEBUG=INFO in the environment says more");
  }
  // What went wrong on the card since.
  void check_async() const {
    int status = 0;
    check(nccl_.ncclCommGetAsyncError(comm_, &status), "ncclCommGetAsyncError");
    check(status, "a sum");
  }

  // Note [A rank that NCCL has lost]
  //   The card knows no timeout: a sum with a rank that has ended, on another machine say, goes on
  //   for good, and the host, which waits for the card, with it. But NCCL sees the connection end.
  //   So a thread asks it, also while graphs are replayed, and takes its sums off the card: what
  //   waits goes on, with sums that are none, and the next call here throws before they are used.
  void watch() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kWatchEvery, [this] { return end_; })) {
      int status = 0;
      if (nccl_.ncclCommGetAsyncError(comm_, &status) != 0 || status == 0) continue;
      lost_ = status;
      nccl_.ncclCommAbort(std::exchange(comm_, nullptr));
      return;
    }
  }
  void check_ranks() const {
    SINTER_CHECK(lost_ == 0, state,
        str("NCCL: another rank is lost: rank ", rank(), " of ", size(), " finds ",
            nccl_.ncclGetErrorString(lost_), " (ncclCommGetAsyncError says ", lost_.load(), ")"));
  }

  const Nccl& nccl_;
  const std::unique_ptr<Communicator> host_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;  // of NCCL's calls
  std::condition_variable ended_;
  bool end_ = false;
  std::atomic<int> lost_{0};  // NCCL's status
  void* comm_ = nullptr;      // null: taken off the card
  std::thread watcher_;
  std::map<int64_t, Bucket> buckets_;
};

}  // namespace

void set_nccl(const Nccl* table) { nccl_of_test = table; }

std::string nccl_version(std::string* why) {
  const Nccl* nccl = find_nccl(why);
  int version = 0;
  if (!nccl || nccl->ncclGetVersion(&version) != 0) return "";
  return str("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host) {
  std::string why;
  const Nccl* nccl = find_nccl(&why);
  SINTER_CHECK(nccl, device, str("NCCL: not loaded: ", why),
      "install libnccl2, or add its folder to LD_LIBRARY_PATH");
  return std::make_unique<NcclCommunicator>(*nccl, std::move(host));
}

#else

std::string nccl_version(std::string* why) {
  *why = "CUDA kernels are off";
  return "";
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator>) {
  throw Error(Error::Kind::not_built, "NCCL: not in this build: CUDA kernels are off",
      "configure with -DSINTER_CUDA=ON");
}

#endif

}  // namespace sinter::distributed
