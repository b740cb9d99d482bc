// Steps as CUDA graphs, on the recorder: nodes, edges, memory, and that a replay is one call.
#include "capture/cuda_replay.h"

#include <gtest/gtest.h>

#include "capture/explain.h"
#include "capture/measure.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda.h"
#include "core/device/cuda_graph.h"
#include "core/device/kept_choices.h"
#include "core/device/memory.h"
#include "ops/ops.h"
#include "ops/product/gemm_library.h"
#include "profiler/session.h"
#include "tests/cuda_recorder.h"
#include "tests/profiler/fake_cupti.h"
#endif

namespace sinter::capture {
namespace {

#if !SINTER_HAS_CUDA

TEST(CudaReplay, NotInThisBuild) {
  EXPECT_THROW(CudaReplay(Branches{}, [](size_t) {}), Error);
  GTEST_SKIP() << "the recorder needs the headers of the CUDA toolkit";
}

#else

using test::kCuda;

void launch_named(std::string_view name) {
  static const char kernel = 0;  // its address stands for a kernel
  void* none[] = {nullptr};
  cuda::launch(&kernel, {.kernel = name, .grid = {}, .block = 32, .shared_bytes = 0}, none);
}

// An op of one fake kernel: y of x's shape; "decay" changes x by the number in the second input.
void launch_op_name(const Call& call) { launch_named(call.op.text()); }
Tensors like_first(Operands in, const Attrs&) {
  return {Tensor::shape_only(in[0].shape(), in[0].dtype(), in[0].device())};
}
Cost no_flops(Operands in, Operands out, const Attrs&) { return cost_of(0, in, out); }
const OpDef kDouble{
    .name = "fake_double", .infer = like_first, .cost = no_flops, .cuda = launch_op_name};
const OpDef kDecay{
    .name = "fake_decay", .min_inputs = 2, .cost = no_flops, .cuda = launch_op_name, .writes = 1};

// Any recorded step, with fake kernels for its nodes.
TEST(CudaReplay, NodesAndEdges) {
  for (const auto& [rules, nodes] : {std::pair{"none", 25u}, {"all,-weight_grad_update", 10u}}) {
    Training training;
    Step step(training.function(), training.step_options(rules));
    for (int i = 0; i < 2; ++i) step(batch_of(training.options, 16, 1));
    const Graph& graph = step.captured()->fused.graph;
    const Branches branches = split_branches(graph);
    cuda::FakeToolkit recorder;
    {
      CudaReplay replay(branches, [&](size_t n) { launch_named(graph.nodes[n].op->text()); });
      EXPECT_TRUE(recorder.executed().empty());
      const cuda::FakeToolkit::Graph captured = recorder.graphs().at(0);
      ASSERT_EQ(captured.nodes.size(), nodes);
      ASSERT_EQ(graph.nodes.size(), nodes);
      const MemoryPlan plan = plan_memory(graph, &branches);
      for (size_t j = 0; j < graph.nodes.size(); ++j) {
        EXPECT_EQ(captured.nodes[j].name, graph.nodes[j].op->text());
        EXPECT_EQ(captured.nodes[j].branch, branches.branch[j]);
        for (size_t i = 0; i < j; ++i) {
          const bool ordered = captured.precedes(int(i), int(j));
          EXPECT_EQ(ordered, branches.follows[j][branches.branch[i]] >= int(i)) << i << ", " << j;
          if (graph.conflict(graph.nodes[i], graph.nodes[j])) {
            EXPECT_TRUE(ordered) << i << ", " << j;
          }
        }
      }
      recorder.clear_log();
      replay.run();
      replay.run();
      EXPECT_EQ(recorder.calls(), (std::vector<std::string>{"cudaGraphLaunch", "cudaGraphLaunch"}));
    }
    EXPECT_TRUE(recorder.leaks().empty());
  }
}

#if SINTER_HAS_CUPTI
TEST(CudaReplay, WhereTheDeviceKeepsRecordsTheSameGraphIsCapturedOnceMore) {
  Training training;
  Step step(training.function(), training.step_options("none"));
  for (int i = 0; i < 2; ++i) step(batch_of(training.options, 16, 1));
  const Graph& graph = step.captured()->fused.graph;
  test::FakeCupti card;
  {
    CudaReplay replay(
        split_branches(graph), [&](size_t n) { launch_named(graph.nodes[n].op->text()); });
    for (const size_t turn : {1, 2}) {
      profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 3},
          .device = kCuda,
          .clock = &card.state.clock});
      for (; !session.done(); session.step()) {
        replay.run();
        synchronize(kCuda);
      }
      const profiler::Report report = session.finish();
      EXPECT_TRUE(report.incomplete.empty()) << report.incomplete[0];
      EXPECT_EQ(report.source, profiler::Source::cupti);
      EXPECT_EQ(report.steps[0].launches, 25);
      EXPECT_EQ(report.steps[0].api_calls, 1);
      std::vector<int64_t> calls(25);
      for (const profiler::OpCall& call : report.rows().calls)
        calls.at(call.graph_node - 1) += call.device_ns;
      EXPECT_EQ(calls, std::vector<int64_t>(25, 3 * 2000));
      ASSERT_EQ(card.recorder.graphs().size(), 1 + turn);
      EXPECT_EQ(card.recorder.graphs().back().nodes.size(), 25u);
      EXPECT_EQ(card.recorder.graphs().back().launches, 4);
    }
    replay.run();
    EXPECT_EQ(card.recorder.graphs()[0].launches, 1);
  }
  EXPECT_TRUE(card.recorder.leaks().empty());
}
#endif

TEST(CudaReplay, WithoutRecordsEagerLaunchesAreCountedAndNotTimed) {
  const cuda::FakeToolkit recorder;
  const auto report = [] {
    const Tensor x = Tensor::empty({8}, DType::f32, kCuda);
    profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 2}, .device = kCuda});
    for (; !session.done(); session.step()) {
      const Tensor y = apply(kDouble, {x}).at(0);
      apply(kDouble, {y});
      fill_bytes(const_cast<void*>(x.raw()), kCuda, 0, 4);
      synchronize(kCuda);
    }
    return session.finish();
  }();
  EXPECT_EQ(report.incomplete, std::vector<std::string>{"6 launches were not timed"});
  EXPECT_EQ(report.source, profiler::Source::none);
  EXPECT_EQ(report.steps[0].launches, 2);
  EXPECT_EQ(report.steps[0].copies, 1);
  EXPECT_EQ(report.steps[0].allocs, 2);
  test::expect_facts(
      report.table(), {"launched 2 != timed 0   memcpy 1   allocs 2", "fake_double"});
}

struct FakeStep {
  Tensor rate = Tensor::empty({1}, DType::f32, kCuda),
         weight = Tensor::empty({8}, DType::f32, kCuda);
  Step step;
  FakeStep()
      : step(
            [this](const Tensors& in) {
              const Tensor y = apply1(kDouble, {apply1(kDouble, {in[0]})});
              apply(kDecay, {weight, rate});
              return Tensors{y};
            },
            {.rules = RuleSet("none")}) {}
};

TEST(CudaReplay, AStepFromItsSecondCall) {
  cuda::FakeToolkit recorder;
  {
    FakeStep fake;
    const Tensor x = Tensor::from(std::vector<float>(12, 5), {3, 4}, kCuda),
                 ragged = Tensor::empty({2, 4}, DType::f32, kCuda);
    for (int i = 0; i < 2; ++i) fake.step({x});
    EXPECT_EQ(recorder.executed().size(), 4u)
        << "one copy from the host; one eager run of three kernels";
    Executor& executor = *fake.step.captured()->executor;
    EXPECT_EQ(executor.launches(), 3u);
    EXPECT_EQ(executor.calls(), 1u);
    const int64_t requests = cuda::allocator(0).stats().requests;
    recorder.clear_log();
    for (int i = 0; i < 5; ++i) fake.step({x});
    EXPECT_EQ(recorder.count("cudaGraphLaunch"), 5);
    EXPECT_EQ(recorder.calls().size(), 5u) << "the batch stays where it is: the graph alone";
    EXPECT_EQ(executor.input(0).to(kCpu).to_vector<float>(), std::vector<float>(12, 5));
    EXPECT_EQ(cuda::allocator(0).stats().requests, requests) << "a replay asks for no memory";
    EXPECT_EQ(recorder.graphs().at(0).launches, 6);

    // A batch that lies in place, and a learning rate that changes between replays: no new capture,
    // no other call.
    recorder.clear_log();
    const float rate = 0.5f;
    copy_to_device(fake.rate.raw(), kCuda, &rate, sizeof rate);
    fake.step({executor.input(0)});
    EXPECT_EQ(recorder.calls().size(), 3u) << "the rate, a wait for it, and the graph";
    EXPECT_EQ(recorder.count("cudaGraphLaunch"), 1);

    for (int i = 0; i < 3; ++i) fake.step({ragged});
    ASSERT_EQ(recorder.graphs().size(), 2u) << "another shape is another graph";
    EXPECT_EQ(recorder.graphs()[1].launches, 2);
    EXPECT_EQ(recorder.graphs()[1].names(),
        (std::vector<std::string>{"fake_double", "fake_double", "fake_decay"}));
  }
  EXPECT_TRUE(recorder.leaks().empty());
}

TEST(CudaReplay, WithoutRecordsOfTheDeviceAProfileIsOfSingleLaunches) {
  cuda::FakeToolkit recorder;
  FakeStep fake;
  const Tensor x = Tensor::empty({3, 4}, DType::f32, kCuda);
  for (int i = 0; i < 3; ++i) fake.step({x});
  recorder.clear_log();
  profiler::Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}, .device = kCuda});
  fake.step({x});
  session.step();
  EXPECT_EQ(
      recorder.executed(), (std::vector<std::string>{"fake_double", "fake_double", "fake_decay"}));
  EXPECT_EQ(recorder.count("cudaGraphLaunch"), 0);
  const profiler::Report report = session.finish();
  EXPECT_EQ(report.incomplete, std::vector<std::string>{"3 launches were not timed"});
  EXPECT_EQ(report.source, profiler::Source::none);
  EXPECT_EQ(report.steps[0].launches, 3);
  const std::string text = report.table();
  test::expect_facts(text, {"source none (the card is not real)"});
  EXPECT_EQ(text.find("replayed as a graph"), std::string::npos) << text;
  fake.step({x});
  EXPECT_EQ(recorder.count("cudaGraphLaunch"), 1);
}

TEST(CudaReplay, EveryCallFailsInTurn) {
  const auto scenario = [] {
    FakeStep fake;
    const Tensor x = Tensor::empty({3, 4}, DType::f32, kCuda);
    for (int i = 0; i < 3; ++i) fake.step({x});
    cuda::synchronize();
  };
  cuda::FakeToolkit recorder;
  scenario();
  ASSERT_TRUE(recorder.leaks().empty());
  const auto total = int64_t(recorder.calls().size());
  ASSERT_GT(total, 20);
  for (int64_t n = 1; n <= total; ++n) {
    recorder.fail_any(n);
    const std::string message = test::message_of(scenario);
    const bool clean = recorder.leaks().empty();
    const std::string failed = recorder.failed();
    EXPECT_TRUE(clean) << "call " << n << ", " << failed;
    const bool told = failed.find("Destroy") == std::string::npos &&
                      failed.find("Free") == std::string::npos && failed != "cudaGetLastError";
    EXPECT_EQ(message.find(failed + " says ") != std::string::npos, told)
        << "call " << n << ", " << failed << ": " << message;
  }
}

// The default step with the true kernels and cuBLASLt, eager and as a graph.
TEST(CudaReplay, TheMnistStep) {
  if (!kLinearOp.cuda || !kMatmulOp.cuda || !kLogSoftmaxOp.cuda || !kAdamUpdateOp.cuda)
    GTEST_SKIP() << "not all ops have CUDA kernels";
  cuda::FakeToolkit recorder;
  {
    Training training({.device = kCuda});
    const Tensors batch = batch_of(training.options, 128, 1);
    training.function()(batch);
    recorder.clear_log();
    training.function()(batch);
    EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 0) << "no wait inside an eager step";
    const auto lists = std::vector<std::pair<const char*, std::vector<std::string> > >{
        {"all,-weight_grad_update,-row_chain",
            {"product_chain_", "product_chain_", "cublaslt_", "rows_by_warp<XentRows",
                "weight_bias_grad_", "product_chain_", "weight_bias_grad_", "product_chain_",
                "weight_bias_grad_", "multi_tensor_update"}},
        {"all", {"product_chain_", "row_chain_", "weight_grad_update_"}}};
    for (const auto& [rules, wanted] :
        lists) {  // one graph each, of these kernels and nothing else
      Step fused(training.function(), training.step_options(rules));
      for (int call = 0; call < 2; ++call) fused(batch);
      const std::vector<std::string> names = recorder.graphs().back().names();
      EXPECT_EQ(fused.captured()->executor->launches(), wanted.size());
      test::expect_facts(explain(*fused.captured(), RuleSet(rules)),
          {" linear_act: own kernel, by the cost model: "});
      ASSERT_EQ(names.size(), wanted.size()) << rules;
      for (size_t i = 0; i < names.size(); ++i)
        EXPECT_TRUE(names[i].starts_with(wanted[i]))
            << names[i] << " in place " << i << ", " << rules;
      recorder.clear_log();
      fused(batch);
      EXPECT_EQ(recorder.count("cudaGraphLaunch"), 1);
      EXPECT_EQ(recorder.count("cudaLaunchKernelExC"), 0);
    }
    // Where cuBLASLt's epilogues are measured faster they take the places of own kernels, one for
    // one; it has none for ReLU's gradient by y.
    recorder.set({.gemm_ns = 1000});
    {
      const ScopedChoiceRule rule(ChoiceRule::measured);
      for (const auto& [rules, nodes, library] :
          {std::tuple("all,-weight_grad_update,-row_chain", 10u, 6), {"all", 3u, 1}}) {
        Step fused(training.function(), training.step_options(rules));
        for (int call = 0; call < 2; ++call) fused(batch);
        const std::vector<std::string> names = recorder.graphs().back().names();
        EXPECT_EQ(names.size(), nodes) << rules;
        EXPECT_EQ(std::count(names.begin(), names.end(), "cublaslt_gemm"), library) << rules;
        test::expect_facts(explain(*fused.captured(), RuleSet(rules)),
            {" linear_act: cuBLASLt, measured 1 us, own kernel 2\n"});
      }
    }
    Step step(training.function(), training.step_options("none"));
    const size_t before = recorder.graphs().size();
    for (int call = 0; call < 2; ++call)
      step(batch);  // recording reads the values of resident constants, so it waits
    ASSERT_EQ(recorder.graphs().size(), before + 1);
    const cuda::FakeToolkit::Graph graph = recorder.graphs().back();
    EXPECT_EQ(graph.nodes.size(), 25u);
    EXPECT_EQ(step.captured()->executor->launches(), 25u);
    recorder.clear_log();
    for (const double lr : {0.1, 0.2}) {
      training.optimizer->set_lr(lr);
      step(batch);
    }
    EXPECT_EQ(recorder.count("cudaGraphLaunch"), 2);
    EXPECT_EQ(recorder.graphs().size(), before + 1) << "another learning rate is no other graph";
    EXPECT_EQ(recorder.count("cudaMalloc") + recorder.count("cudaLaunchKernelExC"), 0);
    EXPECT_EQ(recorder.count("cudaStreamSynchronize"), 2) << "for the rates, which are the host's";
  }
}

// Each recorder stands for a process. What was measured by the first one, groups and products, is
// told by the second in the same words, and not measured again; on another card all is.
TEST(CudaReplay, ChoicesOfAnEarlierProcessAreTakenAndToldAsSuch) {
  const test::TempDir folder;
  const test::ScopedEnv cache("XDG_CACHE_HOME", folder.path().c_str());
  const auto process = [](const cuda::FakeToolkit::Machine& machine, bool measures) {
    cuda::FakeToolkit recorder;
    recorder.set(machine);
    set_keep_choices(true);
    Training training({.sizes = {16, 12, 10, 10}, .device = kCuda});
    StepOptions options = training.step_options("all,-row_chain");
    options.measure = true;
    Step step(training.function(), options);
    for (int call = 0; call < 2; ++call) step(batch_of(training.options, 8, 1));
    EXPECT_EQ(recorder.count("cudaEventElapsedTime") > 0, measures);
    return explain(*step.captured(), options.rules);
  };
  // Products at 1 us beat own kernels; products at 5 us are beaten.
  std::string first = process({.gemm_ns = 1000}, true), second = process({.gemm_ns = 5000}, false);
  test::expect_facts(first, {"measured 1 us, own kernel"});
  const std::string told = "; measured before on this card";
  EXPECT_EQ(first.find(told), std::string::npos) << first;
  int times = 0;
  for (size_t at; (at = second.find(told)) != std::string::npos; ++times)
    second.erase(at, told.size());
  EXPECT_EQ(second, first);
  EXPECT_GE(times, 5) << second;
  EXPECT_NE(process({.name = "Other card", .gemm_ns = 5000}, true), first);
}

// No time can be read: the step is fused as its launches count, and says why.
TEST(CudaReplay, WhereMeasuringFailsGroupsStayFused) {
  cuda::FakeToolkit recorder;
  Training training({.sizes = {16, 12, 10, 10}, .device = kCuda});
  StepOptions options = training.step_options("all");
  options.measure = true;
  Step step(training.function(), options);
  step(batch_of(training.options, 8, 1));
  for (int n = 1; n <= 1000; ++n) recorder.fail("cudaEventElapsedTime", n, cudaErrorNotReady);
  step(batch_of(training.options, 8, 1));
  const Captured& captured = *step.captured();
  EXPECT_EQ(undecided(captured.fused), int64_t(captured.fused.groups.size()));
  test::expect_facts(explain(captured, options.rules),
      {"plan     all groups, not measured: cuda: the call failed: "});
}

// A rehearsal that nobody asked about, as measuring makes, leaves its words behind.
TEST(CudaReplay, WhoMakesAProductIsToldOfNoOtherOp) {
  const cuda::FakeToolkit recorder;
  const Tensor a = Tensor::ones({8, 8}).to(kCuda);
  StepOptions options;
  options.measure = false;
  Step step([](const Tensors& in) { return Tensors{matmul(exp(in[0]), in[0])}; }, options);
  for (int call = 0; call < 3; ++call) {
    {
      const ScopedChoiceRule rule(ChoiceRule::measured);
      cuda::GraphBuilder builder(0, false);
      builder.begin(cuda::Pass::rehearsal);
      matmul(a, a);
      builder.end();
    }
    step({a});
  }
  const std::string text = explain(*step.captured(), options.rules);
  EXPECT_EQ(text.find("exp: "), text.npos) << text;
}

TEST(CudaReplay, InputsThatStayWhereTheyAreAreNotCopied) {
  cuda::FakeToolkit recorder;
  const TrainOptions options{.sizes = {16, 12, 10, 10}, .device = kCuda};
  Training training(options);
  Step step(training.function(), training.step_options("none"));
  const Tensors mine = batch_of(options, 8, 1), yours = batch_of(options, 8, 2),
                third = batch_of(options, 8, 3);
  const auto calls_of = [&](const Tensors& batch) {
    recorder.clear_log();
    step(batch);
    return recorder.calls();
  };
  const std::vector<std::string> one{"cudaGraphLaunch"},
      copied{"cudaMemcpyAsync", "cudaMemcpyAsync", "cudaGraphLaunch"};
  for (int call = 0; call < 2; ++call) step(mine);
  for (int call = 0; call < 2; ++call) EXPECT_EQ(calls_of(mine), one);
  for (int call = 0; call < 2; ++call) step(yours);  // captured again, for inputs from anywhere
  for (const Tensors* batch : {&yours, &third, &mine}) EXPECT_EQ(calls_of(*batch), copied);
  EXPECT_EQ(step.stats().captures, 2);
  EXPECT_EQ(step.stats().misses,
      std::vector<std::string>{"guard address of an input changed at call 5: captured again"});

  Step moving(training.function(), training.step_options("none"));
  for (const Tensors* batch : {&mine, &yours}) moving(*batch);
  recorder.clear_log();
  moving(mine);
  EXPECT_EQ(recorder.calls(), copied);
}

#endif

}  // namespace
}  // namespace sinter::capture
