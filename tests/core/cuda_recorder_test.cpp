// The CUDA device on a toolkit without a card: messages, streams, memory, graphs, and every call
// failing in turn.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/cuda_upload.h"
#include "core/device/memory.h"
#include "core/error.h"
#include "tests/test_util.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda_stream.h"
#include "tests/cuda_recorder.h"
#endif

namespace sinter::cuda {
namespace {

// The message of the Error that f throws, without its hint; "" without one.
std::string message_of(const std::function<void()>& f) {
  const std::string what = test::message_of(f);
  return what.substr(0, what.find('\n'));
}

#if !SINTER_HAS_CUDA

TEST(CudaRecorder, NotInThisBuild) {
  const char* want = "cuda: not in this build (configure with -DSINTER_CUDA=ON)";
  EXPECT_EQ(message_of([] { device_count(); }), want);
  EXPECT_EQ(message_of([] { allocator(0); }), want);
  EXPECT_EQ(message_of([] { GraphBuilder(0, false); }), want);
  EXPECT_EQ(message_of([] { Upload(64); }), want);
  GTEST_SKIP() << "the recorder needs the headers of the CUDA toolkit";
}

#else

bool is_loaded(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (library) dlclose(library);
  return library != nullptr;
}
const std::string kBlas = str("libcublasLt.so.", CUDART_VERSION / 1000);
// Before main(): other tests load it.
const bool kBlasAtStart = is_loaded(kBlas);

TEST(CudaLibraries, AreLoadedAtFirstUse) {
  EXPECT_FALSE(kBlasAtStart) << "the program links with cuBLASLt";
  EXPECT_NE(real_api().cublasLtCreate, nullptr);
  test::expect_facts(message_of([] { check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmul(x)"); }),
      {"not supported (cublasLtMatmul says 15)"});
  EXPECT_TRUE(is_loaded(kBlas));
}

TEST(CudaLibraries, AMissingOneIsNamed) {
  EXPECT_EQ(test::message_of([] { library_function("libnothing.so.1", "nothingCreate"); }),
      "cuda: no nothingCreate of libnothing.so.1: libnothing.so.1: cannot open shared object file: "
      "No such file or directory\n"
      "    hint: install the CUDA toolkit's libraries of the version that this program was built "
      "for, or add their folder to LD_LIBRARY_PATH");
}

const char kernel_a = 0, kernel_b = 0;  // addresses that stand for kernels

void launch_named(const char* name, const void* kernel = &kernel_a, size_t shared_bytes = 0) {
  void* none[] = {nullptr};
  launch(
      kernel, {.kernel = name, .grid = {2, 1, 1}, .block = 64, .shared_bytes = shared_bytes}, none);
}

// Memory that goes back at the end.
struct Block {
  explicit Block(size_t n) : bytes(n), at(allocator(0).allocate(n)) {}
  ~Block() { allocator(0).release(at, bytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  size_t bytes;
  void* at;
};

TEST(CudaRecorder, MachinesThatCannot) {
  const auto refusal = [](const FakeToolkit::Machine& machine, int device) {
    FakeToolkit recorder;
    recorder.set(machine);
    return message_of([&] { check_device(device); });
  };
  EXPECT_EQ(
      refusal({.driver = 0}, 0), "cuda: no CUDA device: no driver (cudaGetDeviceCount says 35)");
  EXPECT_EQ(refusal({.driver = 12020}, 0),
      str("cuda: the driver is too old: it is for CUDA 12.2, this build needs ",
          CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10, " (cudaGetDeviceCount says 35)"));
  EXPECT_EQ(refusal({.cards = 0}, 0),
      "cuda: no CUDA device: the driver shows no card (cudaGetDeviceCount says 100)");
  EXPECT_EQ(refusal({.cards = 2}, 2), "cuda:2: no such card: there are 2; allowed cuda:0..cuda:1");
  EXPECT_EQ(refusal({.capability = 75}, 0),
      "cuda:0: no code for this card: its compute capability is 7.5, SINTER_CUDA_ARCHITECTURES of "
      "this build is 80,90a");

  FakeToolkit recorder;
  recorder.set({.driver = 0});
  EXPECT_EQ(device_count(), 0);
  EXPECT_EQ(message_of([] { Block(64); }),
      "cuda: no CUDA device: no driver (cudaGetDeviceCount says 35)");
  recorder.set({.cards = 2});
  EXPECT_EQ(device_count(), 2);
  EXPECT_EQ(message_of([] { allocator(1); }),
      "cuda:1: a process uses one card, and it uses cuda:0 already");
}

// Before a first kernel would fail: code of 90a, and its PTX, runs on no later card.
TEST(CudaRecorder, CardsThatTheBuildHasCodeFor) {
  const std::map<std::string, std::vector<int> > served{{"80,90a", {80, 86, 89, 90, 100, 103, 120}},
      {"90a", {90}}, {"90a,80", {80, 86, 89, 90}}, {"86,90", {86, 89, 90, 100, 103, 120}},
      {"100f", {100, 103}}, {"100f,120a", {100, 103, 120}}};
  for (const auto& [architectures, cards] : served) {
    for (const int capability : {75, 80, 86, 89, 90, 100, 103, 120}) {
      FakeToolkit recorder;
      recorder.set({.capability = capability, .architectures = architectures});
      const bool refused = !message_of([] { launch_named("first"); }).empty();
      EXPECT_EQ(refused, !std::ranges::count(cards, capability))
          << capability << " by " << architectures;
    }
  }
}

TEST(CudaRecorder, TheRealLibraryWithoutADriver) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver != 0)
    GTEST_SKIP() << "there is a driver";
  EXPECT_EQ(device_count(), 0);
  EXPECT_EQ(message_of([] { check_device(0); }),
      "cuda: no CUDA device: no driver (cudaGetDeviceCount says 35)");
  EXPECT_EQ(message_of([] { allocator(0).allocate(64); }),
      "cuda: no CUDA device: no driver (cudaGetDeviceCount says 35)");
}

TEST(CudaRecorder, OutOfMemory) {
  FakeToolkit recorder;
  recorder.set({.memory = size_t{8} << 30});
  {
    const Block held(size_t{5} << 30);
    EXPECT_EQ(message_of([] { Block(size_t{4} << 30); }),
        "cuda: out of memory asking 4096 MiB; 5 of 8 GiB in use (ours 5)");
    { const Block cached(size_t{2} << 30); }
    const Block fits(size_t{5} << 29);  // cached memory of another size goes first
    EXPECT_EQ(recorder.count("cudaFree"), 1);
  }
  EXPECT_EQ(allocator(0).stats().live_bytes, 0);
  EXPECT_TRUE(recorder.leaks().empty());
}

TEST(CudaRecorder, LaunchesAndFaults) {
  FakeToolkit recorder;
  launch_named("softmax<float>");
  EXPECT_EQ(recorder.executed(), (std::vector<std::string>{"softmax<float>"}));
  recorder.fail("cudaLaunchKernelExC", 1, cudaErrorInvalidConfiguration);
  EXPECT_EQ(message_of([] { launch_named("softmax<float>"); }),
      "softmax<float>: the call failed: invalid configuration argument (cudaLaunchKernelExC says "
      "9)");
  recorder.fail("cudaLaunchKernelExC", 1, cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(message_of([] { launch_named("relu<float>"); }),
      "relu<float>: no code for this card: no kernel image is available for execution on the "
      "device (cudaLaunchKernelExC says 209)");
  recorder.fail("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
  EXPECT_EQ(message_of([] { synchronize(); }),
      "cuda: a kernel failed: an illegal memory access was encountered (cudaStreamSynchronize says "
      "700); launched last: relu<float>");
  synchronize();

  auto* flag = static_cast<uint32_t*>(FakeToolkit::host(fault_flag()));
  *flag = 1;
  EXPECT_EQ(message_of([] { synchronize(); }),
      "cuda: label out of range: met by a kernel since the last wait; launched last: relu<float>");
  synchronize();  // told once
  *flag = 2;
  float value = 0;
  const Block block(4);
  EXPECT_EQ(message_of([&] { copy_to_host(&value, block.at, 4); }),
      "cuda: index out of range: met by a kernel since the last wait; launched last: relu<float>");

  recorder.clear_log();
  launch_named("big", &kernel_b, 100 << 10);
  launch_named("big", &kernel_b, 60 << 10);
  launch_named("big", &kernel_b, 200 << 10);
  EXPECT_EQ(recorder.count("cudaFuncSetAttribute"), 2)
      << "asked for once per kernel, and again for more";
}

TEST(CudaRecorder, Copies) {
  FakeToolkit recorder;
  const Block a(4096), b(4096);
  std::vector<char> host(4096, 7), back(4096);
  copy_to_device(a.at, host.data(), 4096);
  copy_on_device(b.at, a.at, 4096);
  fill(a.at, 3, 4096);
  copy_to_host(back.data(), b.at, 4096);
  EXPECT_EQ(back, host);
  copy_to_host(back.data(), a.at, 4096);
  EXPECT_EQ(back, std::vector<char>(4096, 3));
  EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 3) << "only copies from and to the host wait";
  EXPECT_EQ(message_of([&] { copy_on_device(b.at, a.at, 8192); }),
      "cuda: the call failed: invalid argument (cudaMemcpyAsync says 1)");
}

TEST(CudaRecorder, EachThreadHasItsStream) {
  FakeToolkit recorder;
  const cudaStream_t mine = stream();
  cudaStream_t first = nullptr, second = nullptr;
  void* block = nullptr;
  std::thread([&] {
    first = stream();
    block = allocator(0).allocate(1 << 20);
    allocator(0).release(block, 1 << 20);
  }).join();
  std::thread([&] { second = stream(); }).join();
  EXPECT_NE(mine, first);
  EXPECT_EQ(first, second) << "a thread that ended leaves its stream";
  // What that thread launched on the block may not have run yet.
  EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 0);
  const Block again(1 << 20);
  EXPECT_EQ(again.at, block);
  EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 1);
  { const Block own(64); }
  { const Block own(64); }
  EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 1);
}

// a -> (b beside c) -> d, with scratch memory in b.
std::unique_ptr<DeviceGraph> diamond() {
  GraphBuilder builder(2, true);
  std::unique_ptr<DeviceGraph> graph;
  for (const Pass pass : {Pass::rehearsal, Pass::capture}) {
    builder.begin(pass);
    launch_named("a");
    builder.record(0);
    builder.switch_to(1);
    builder.wait(0);
    {
      const Block scratch(5000);
      fill(scratch.at, 0, 5000);
      launch_named("b", &kernel_b, 64 << 10);
    }
    builder.record(1);
    builder.switch_to(0);
    launch_named("c");
    builder.wait(1);
    launch_named("d");
    graph = builder.end();
    EXPECT_EQ(graph != nullptr, pass == Pass::capture);
  }
  return graph;
}

// It is made and zeroed by work that runs, also in a rehearsal, and never by a node of a graph.
TEST(CudaRecorder, ScratchIsTheStreamsAndItsTicketBeginsAsZero) {
  FakeToolkit recorder;
  {
    const Device card = device();
    GraphBuilder builder(1, true);
    std::map<int, Scratch> first;
    for (const Pass pass : {Pass::rehearsal, Pass::capture}) {
      builder.begin(pass);
      for (const int branch : {0, 1, 0}) {
        builder.switch_to(branch);
        const Scratch mine = scratch(card, 1000);
        first.emplace(branch, mine);
        EXPECT_EQ(mine.ticket, first[branch].ticket) << "it stays where it is";
        EXPECT_EQ(*static_cast<uint32_t*>(FakeToolkit::host(mine.ticket)), 0u);
      }
      builder.switch_to(0);
      EXPECT_NE(scratch(card, 1000).memory, first[1].memory) << "a branch has its own";
      EXPECT_EQ(recorder.executed(), (std::vector<std::string>{"memset", "memset"}));
      builder.end();
    }
    EXPECT_TRUE(recorder.graphs()[0].nodes.empty());
    std::thread([&] { EXPECT_NE(scratch(card, 1000).memory, first[0].memory); }).join();
  }
  EXPECT_TRUE(recorder.leaks().empty());
}

TEST(CudaRecorder, Graph) {
  FakeToolkit recorder;
  {
    const std::unique_ptr<DeviceGraph> graph = diamond();
    EXPECT_TRUE(recorder.executed().empty()) << "a rehearsal runs nothing";
    const std::vector<std::string> calls = recorder.calls();
    const auto begin = std::find(calls.begin(), calls.end(), "cudaStreamBeginCapture"),
               end = std::find(begin, calls.end(), "cudaStreamEndCapture");
    EXPECT_EQ(std::vector<std::string>(begin + 1, end),
        (std::vector<std::string>{"cudaLaunchKernelExC", "cudaEventRecord", "cudaStreamWaitEvent",
            "cudaMemsetAsync", "cudaLaunchKernelExC", "cudaEventRecord", "cudaLaunchKernelExC",
            "cudaStreamWaitEvent", "cudaLaunchKernelExC"}))
        << "nothing is made, loaded or waited for inside a capture";
    ASSERT_EQ(recorder.graphs().size(), 1u);
    const FakeToolkit::Graph nodes = recorder.graphs()[0];
    EXPECT_EQ(nodes.names(), (std::vector<std::string>{"a", "memset", "b", "c", "d"}));
    EXPECT_EQ(nodes.nodes[1].after, std::vector<int>{0});
    EXPECT_EQ(nodes.nodes[3].after, std::vector<int>{0});
    EXPECT_EQ(nodes.nodes[4].after, (std::vector<int>{2, 3}));
    EXPECT_FALSE(nodes.precedes(2, 3));
    EXPECT_EQ(nodes.nodes[2].branch, 1);

    recorder.clear_log();
    graph->launch();
    EXPECT_EQ(recorder.calls(), std::vector<std::string>{"cudaGraphLaunch"})
        << "a replay is one call";
    EXPECT_NE(allocator(0).stats().live_bytes, 0) << "the graph keeps its scratch memory";
    std::string other;
    std::thread([&] { other = message_of([&] { graph->launch(); }); }).join();
    EXPECT_EQ(
        other, "cuda: a captured step was run by another thread than the one that captured it");
  }
  EXPECT_EQ(allocator(0).stats().live_bytes, 0);
  EXPECT_TRUE(recorder.leaks().empty());
}

TEST(CudaRecorder, NotInsideACapture) {
  FakeToolkit recorder;
  const Block block(64);
  float value = 0;
  const auto inside = [&](auto&& f) {
    GraphBuilder builder(0, false);
    builder.begin(Pass::capture);
    return message_of(f);
  };
  EXPECT_EQ(inside([&] { copy_to_host(&value, block.at, 4); }),
      "cuda: a copy to the host inside a captured step");
  EXPECT_EQ(inside([&] { copy_to_device(block.at, &value, 4); }),
      "cuda: a copy from the host inside a captured step");
  EXPECT_EQ(inside([&] { synchronize(); }), "cuda: waiting for the card inside a captured step");
  EXPECT_EQ(inside([&] { Block(12345); }),
      "cuda: 14336 bytes asked from the card while a step is captured; the rehearsal asked for "
      "less");
  EXPECT_EQ(inside([&] { diamond(); }), "cuda: a step was captured inside another captured step");
  launch_named("after");  // the thread is out of its capture again
  EXPECT_EQ(recorder.executed().back(), "after");
}

// To wait for its stream would invalidate the capture, whichever thread it is that waits.
TEST(CudaRecorder, BlocksOfAThreadThatCapturesAreLeftAlone) {
  FakeToolkit recorder;
  const void* const mine = Block(1 << 20).at;
  GraphBuilder builder(0, false);
  builder.begin(Pass::capture);
  launch_named("a");
  std::thread([&] { EXPECT_NE(Block(1 << 20).at, mine); }).join();
  EXPECT_NE(builder.end(), nullptr);
  EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 0);
}

TEST(CudaRecorder, WhatARehearsalWasGivenNoOtherThreadTakesFromItsCapture) {
  FakeToolkit recorder;
  GraphBuilder builder(0, false);
  std::set<const void*> given;
  std::unique_ptr<DeviceGraph> graph;
  for (const Pass pass : {Pass::rehearsal, Pass::capture}) {
    builder.begin(pass);
    for (int i = 0; i < 2; ++i) given.insert(Block(1 << 20).at);
    graph = builder.end();
    std::thread([&] { EXPECT_FALSE(given.contains(Block(1 << 20).at)); }).join();
  }
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(given.size(), 2u) << "the capture is given the same two";
  EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 0);
  // What is cached now is another thread's, and who captures waits for nobody.
  builder.begin(Pass::capture);
  test::expect_facts(message_of([] { Block(1 << 20); }), {"asked from the card"});
  EXPECT_NE(builder.end(), nullptr);
  EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 0);
}

// A branch that is not waited for is an error of the toolkit's, and of no consequence.
TEST(CudaRecorder, AnUnjoinedBranch) {
  FakeToolkit recorder;
  EXPECT_EQ(message_of([] {
    GraphBuilder builder(1, true);
    builder.begin(Pass::capture);
    launch_named("a");
    builder.record(0);
    builder.switch_to(1);
    builder.wait(0);
    launch_named("b");
    builder.end();
  }),
      "cuda: the call failed: capturing stream has unjoined work (cudaStreamEndCapture says 904)");
  EXPECT_TRUE(recorder.leaks().empty());
}

// What is copied comes behind what was launched before, and before what is launched after wait().
TEST(CudaRecorder, AnUploadReadsItsMemoryUntilTheHostHasWaited) {
  FakeToolkit recorder;
  {
    const Block block(4);
    Upload upload(4);
    char seen[5] = "----";
    const auto uploaded = [&](const char* text) {
      std::memcpy(upload.memory(), text, 4);
      upload.start({{block.at, upload.memory(), 4}});
    };
    uploaded("aaaa");
    std::memcpy(upload.memory(), "bbbb", 4);
    upload.wait();
    copy_to_host(seen, block.at, 4);
    EXPECT_STREQ(seen, "bbbb") << "it was written too early";
    uploaded("cccc");
    upload.wait_on_host();
    std::memcpy(upload.memory(), "dddd", 4);
    upload.wait();
    copy_to_host(seen, block.at, 4);
    EXPECT_STREQ(seen, "cccc");
    uploaded("eeee");
  }
  EXPECT_TRUE(recorder.leaks().empty()) << "it waits for its copy before its memory goes";
}

TEST(CudaRecorder, EveryCallFailsInTurn) {
  const auto scenario = [] {
    std::vector<char> host(100);
    const Block a(100), b(100);
    copy_to_device(a.at, host.data(), 100);
    fill(b.at, 0, 100);
    copy_on_device(b.at, a.at, 100);
    launch_named("eager", &kernel_b, 64 << 10);
    const std::unique_ptr<DeviceGraph> graph = diamond();
    milliseconds([&] { graph->launch(); });
    Upload upload(100);
    upload.start({{b.at, upload.memory(), 100}});
    upload.wait();
    upload.wait_on_host();
    copy_to_host(host.data(), b.at, 100);
  };
  FakeToolkit recorder;
  scenario();
  ASSERT_TRUE(recorder.leaks().empty());
  const auto total = int64_t(recorder.calls().size());
  ASSERT_GT(total, 40);
  for (int64_t n = 1; n <= total; ++n) {
    recorder.fail_any(n);
    const std::string message = message_of(scenario);
    const std::vector<std::string> left = recorder.leaks();
    const std::string failed = recorder.failed();
    ASSERT_NE(failed, "") << "call " << n << " was not made";
    EXPECT_TRUE(left.empty()) << "call " << n << ", " << failed << ", leaves "
                              << (left.empty() ? "" : left[0]);
    EXPECT_EQ(allocator(0).stats().live_bytes, 0) << failed;
    const bool told = failed.find("Destroy") == std::string::npos &&
                      failed.find("Free") == std::string::npos && failed != "cudaGetLastError";
    if (told) {
      EXPECT_NE(message.find(failed + " says "), std::string::npos)
          << "call " << n << ", " << failed << ": " << message;
    } else {
      EXPECT_EQ(message, "") << failed;
    }
  }
}

#endif

}  // namespace
}  // namespace sinter::cuda
