// Sums between cards, on a toolkit without a card and an NCCL without its library: calls, streams,
// graphs and failures.
#include "distributed/nccl.h"

#include <gtest/gtest.h>

#include "tests/test_util.h"

#if SINTER_HAS_CUDA
#include <atomic>
#include <cstring>
#include <thread>

#include "core/device/cuda_graph.h"
#include "core/device/cuda_stream.h"
#include "core/device/launch_log.h"
#include "tests/cuda_recorder.h"
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif
#endif

namespace sinter::distributed {
namespace {

#if !SINTER_HAS_CUDA

TEST(Nccl, NotInThisBuild) {
  test::expect_error(
      Error::Kind::not_built, {"NCCL: not in this build"}, [] { make_nccl_communicator(nullptr); });
  std::string why;
  EXPECT_EQ(nccl_version(&why), "");
  GTEST_SKIP() << "the recorder needs the headers of the CUDA toolkit";
}

#else

#ifdef NCCL_MAJOR
TEST(Nccl, DeclaresWhatTheHeaderDoes) {
  EXPECT_EQ(sizeof(NcclId), sizeof(ncclUniqueId));
  EXPECT_EQ(kNcclFloat, ncclFloat32);
  EXPECT_EQ(kNcclDouble, ncclFloat64);
  EXPECT_EQ(kNcclSum, ncclSum);
  static_assert(std::is_same_v<decltype(&::ncclAllReduce),
      ncclResult_t (*)(
          const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t)>);
  static_assert(std::is_same_v<decltype(&::ncclCommInitRank),
      ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int)>);
}
#endif

using Words = std::vector<std::string>;

// Of a sum it makes a copy on the stream that it is given. One at a time.
class FakeNccl {
 public:
  FakeNccl() {
    calls = {};
    fails = "";
    async = aborts = 0;
    set_nccl(&table_);
  }
  ~FakeNccl() { set_nccl(nullptr); }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  static inline Words calls;
  static inline std::string fails;                       // the call that answers 3
  static inline std::atomic<int> async = 0, aborts = 0;  // what ncclCommGetAsyncError gives
  static inline std::string id;                          // of ncclCommInitRank
  static inline void* stream = nullptr;

 private:
  static int answer(const std::string& name) {
    calls.push_back(name);
    return name == fails ? 3 : 0;
  }
  static int version(int* v) {
    *v = 22809;
    return 0;
  }
  static const char* text(int) { return "internal error"; }
  static int unique_id(NcclId* made) {
    std::strcpy(made->bytes, "the id");
    return answer("unique_id");
  }
  static int init(void** comm, int, NcclId given, int) {
    id = given.bytes;
    *comm = &calls;
    return answer("init");
  }
  static int destroy(void*) { return answer("destroy"); }
  static int abort(void*) {
    ++aborts;
    return 0;
  }
  static int async_error(void*, int* status) {
    *status = async;
    return 0;
  }
  static int begin() { return answer("group_start"); }
  static int end() { return answer("group_end"); }
  static int all_reduce(const void* from, void* to, size_t count, int dtype, int, void*, void* on) {
    stream = on;
    cuda::api().cudaMemcpyAsync(to, from, count * (dtype == kNcclDouble ? 8 : 4),
        cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(on));
    return answer("all_reduce");
  }

  const Nccl table_{
      version, text, unique_id, init, destroy, abort, async_error, begin, end, all_reduce};
};

// Two ranks, of which this is one; rank 0's bytes are "from rank 0".
class Host final : public Communicator {
 public:
  explicit Host(int rank) : Communicator(rank, 2) {}
  std::string describe() const override { return "host"; }
  double sum(double value) override { return 2 * value; }
  std::vector<std::string> gather(const std::string& own) override {
    std::string first = own;
    if (rank() > 0) std::strcpy(first.data(), "from rank 0");
    return {first, own};
  }
  [[noreturn]] void abort(int) override { std::abort(); }

 protected:
  void start(int64_t, std::span<const SumPiece> pieces, DType, Device) override {
    for (const SumPiece& piece : pieces) *static_cast<double*>(piece.data) *= 2;
  }
  Time finish(int64_t) override { return std::chrono::steady_clock::now(); }
};

std::unique_ptr<Communicator> of_rank(int rank) {
  return make_nccl_communicator(std::make_unique<Host>(rank));
}

constexpr Device kCard{Device::Type::cuda, 0};
const char kernel = 0;  // an address that stands for one
void launch_named(const char* name) {
  void* none[] = {nullptr};
  cuda::launch(&kernel, {.kernel = name, .grid = {1, 1, 1}, .block = 64, .shared_bytes = 0}, none);
}

// Memory of the card for two pieces.
struct Pieces {
  float* const memory = static_cast<float*>(cuda::allocator(0).allocate(4096));
  const std::vector<SumPiece> list{{memory, 256}, {memory + 512, 100}};
  ~Pieces() { cuda::allocator(0).release(memory, 4096); }
};

TEST(NcclRecorder, TheIdTravelsByTheHostAndSoDoesWhatIsTheHosts) {
  cuda::FakeToolkit toolkit;
  const FakeNccl nccl;
  for (const int rank : {0, 1}) {
    const auto ranks = of_rank(rank);
    EXPECT_EQ(FakeNccl::id, rank == 0 ? "the id" : "from rank 0");
    EXPECT_EQ(ranks->describe(), "NCCL 2.28.9, host");
    EXPECT_EQ(ranks->sum(3), 6);
    double number = 4;
    const SumPiece piece{&number, 1};
    ranks->start_sum(0, {&piece, 1}, DType::f64, kCpu);
    ranks->finish_sum(0);
    EXPECT_EQ(number, 8);
  }
  EXPECT_EQ(FakeNccl::calls, (Words{"unique_id", "init", "destroy", "init", "destroy"}));
}

TEST(NcclRecorder, ASumRunsOnAStreamOfItsOwnBehindWhatIsThere) {
  cuda::FakeToolkit toolkit;
  const FakeNccl nccl;
  {
    const auto ranks = of_rank(0);
    const Pieces pieces;
    FakeNccl::calls = {};
    toolkit.clear_log();
    ranks->start_sum(7, pieces.list, DType::f32, kCard);
    EXPECT_EQ(FakeNccl::calls, (Words{"group_start", "all_reduce", "all_reduce", "group_end"}));
    EXPECT_NE(FakeNccl::stream, cuda::stream());
    launch_named("beside");
    ranks->finish_sum(7);
    Words calls = toolkit.calls();
    std::erase(calls, "cudaEventCreateWithFlags");
    std::erase(calls, "cudaGetLastError");
    EXPECT_EQ(calls,
        (Words{"cudaEventRecord", "cudaStreamWaitEvent", "cudaMemcpyAsync", "cudaMemcpyAsync",
            "cudaEventRecord", "cudaLaunchKernelExC", "cudaStreamWaitEvent"}));
    EXPECT_EQ(ranks->stats().bytes, 4 * 356);
    // The events are made once.
    toolkit.clear_log();
    ranks->start_sum(7, pieces.list, DType::f32, kCard);
    ranks->finish_sum(7);
    EXPECT_EQ(toolkit.count("cudaEventCreateWithFlags"), 0);
  }
  EXPECT_EQ(toolkit.leaks(), Words{});
}

TEST(NcclRecorder, InAGraphTheSumIsABranch) {
  cuda::FakeToolkit toolkit;
  const FakeNccl nccl;
  {
    const auto ranks = of_rank(0);
    const Pieces pieces;
    cuda::GraphBuilder builder(0, false);
    const auto step = [&] {
      launch_named("gradient");
      ranks->start_sum(0, {&pieces.list[0], 1}, DType::f32, kCard);
      launch_named("beside");
      ranks->finish_sum(0);
      launch_named("update");
    };
    FakeNccl::calls = {};
    builder.begin(cuda::Pass::rehearsal);
    step();
    builder.end();
    EXPECT_EQ(FakeNccl::calls, Words{});  // nothing runs
    builder.begin(cuda::Pass::capture);
    step();
    const auto graph = builder.end();
    ASSERT_EQ(toolkit.graphs().size(), 1U);
    const cuda::FakeToolkit::Graph nodes = toolkit.graphs()[0];
    ASSERT_EQ(nodes.nodes.size(), 4U);  // gradient, the sum, beside, update
    EXPECT_EQ(nodes.nodes[1].branch, 1);
    EXPECT_TRUE(nodes.precedes(0, 1));
    EXPECT_TRUE(nodes.precedes(1, 3));
    EXPECT_TRUE(nodes.precedes(2, 3));
    EXPECT_FALSE(nodes.precedes(1, 2));
    graph->launch();
    EXPECT_EQ(
        FakeNccl::calls, (Words{"group_start", "all_reduce", "group_end"}));  // at capture alone
  }
  EXPECT_EQ(toolkit.leaks(), Words{});
}

TEST(NcclRecorder, FailuresNameTheRankAndLeaveNoGroupOpen) {
  cuda::FakeToolkit toolkit;
  const FakeNccl nccl;
  for (const char* call : {"unique_id", "init"}) {
    FakeNccl::fails = call;
    test::expect_error(Error::Kind::device,
        {"NCCL: the call failed on rank 0 of 2: internal error"}, [] { of_rank(0); });
  }
  FakeNccl::fails = "";
  {
    const auto ranks = of_rank(1);
    const Pieces pieces;
    FakeNccl::fails = "all_reduce";
    FakeNccl::calls = {};
    test::expect_error(Error::Kind::device, {"rank 1 of 2", "ncclAllReduce says 3"},
        [&] { ranks->start_sum(0, pieces.list, DType::f32, kCard); });
    EXPECT_EQ(FakeNccl::calls, (Words{"group_start", "all_reduce", "group_end"}));
    FakeNccl::fails = "";
    ranks->start_sum(1, pieces.list, DType::f32, kCard);
    FakeNccl::async = 6;
    test::expect_error(Error::Kind::device, {"a sum says 6"}, [&] { ranks->finish_sum(1); });
  }
  EXPECT_EQ(toolkit.leaks(), Words{});
}

// The card would wait for it for good.
TEST(NcclRecorder, ARankThatIsLostEndsTheSumsAndIsTold) {
  cuda::FakeToolkit toolkit;
  const FakeNccl nccl;
  {
    const auto ranks = of_rank(1);
    const Pieces pieces;
    ranks->start_sum(0, pieces.list, DType::f32, kCard);
    EXPECT_EQ(ranks->sum(3), 6);
    FakeNccl::async = 6;
    for (int i = 0; i < 1000 && FakeNccl::aborts == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(FakeNccl::aborts, 1);
    const std::vector<std::string> facts{
        "NCCL: another rank is lost: rank 1 of 2 finds internal "
        "error (ncclCommGetAsyncError says 6)"};
    test::expect_error(Error::Kind::state, facts, [&] { ranks->finish_sum(0); });
    test::expect_error(Error::Kind::state, facts, [&] { ranks->sum(3); });
    test::expect_error(Error::Kind::state, facts, [&] { ranks->gather("a"); });
    test::expect_error(
        Error::Kind::state, facts, [&] { ranks->start_sum(1, pieces.list, DType::f32, kCard); });
  }
  EXPECT_EQ(FakeNccl::aborts, 1) << "once, and nothing is left to destroy";
  EXPECT_FALSE(std::ranges::count(FakeNccl::calls, "destroy"));
  EXPECT_EQ(toolkit.leaks(), Words{});
}

#endif

}  // namespace
}  // namespace sinter::distributed
