// Whole steps on the recorder: what the nodes of a graph share, what a step asks of the runtime,
// and that it runs on every card.
#include <gtest/gtest.h>

#include "capture/cuda_replay.h"
#include "capture/explain.h"
#include "nn/glu.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"

#if SINTER_HAS_CUDA
#include "core/device/cuda.h"
#include "core/device/launch_log.h"
#include "core/device/memory.h"
#include "ops/product/gemm_library.h"
#include "profiler/session.h"
#include "tests/cuda_recorder.h"
#include "tests/test_util.h"

namespace sinter::capture {
namespace {

using cuda::FakeToolkit;
using test::kCuda;

// A step with its inputs and what it works on, on the recorder, captured.
struct Workload {
  std::string what;
  const char* rules = "all";
  TrainOptions options{.device = kCuda};
  int64_t rows = 128;
  bool gated = false;  // the gated block's forward and backward in place of a classifier's step
};
class Captive {
 public:
  explicit Captive(const Workload& w) {
    TrainOptions options = w.options;
    options.device = kCuda;
    if (w.gated) {
      glu_ = std::make_unique<nn::Glu>(64, 96, 64);
      glu_->to(kCuda);
      for (int i = 0; i < 2; ++i) inputs.push_back(Tensor::ones({w.rows, 64}, DType::f32, kCuda));
      function = [this](const Tensors& in) {
        glu_->zero_grad();
        const Tensor y = (*glu_)(in[0]);
        backward(y, {.gradient = in[1]});
        return Tensors{y};
      };
      step = std::make_unique<Step>(function, StepOptions{.rules = RuleSet(w.rules),
                                                  .parameters = nn::parameter_visitor(*glu_),
                                                  .measure = false});
    } else {
      training = std::make_unique<Training>(options);
      inputs = batch_of(options, w.rows, 1);
      function = training->function();
      step = std::make_unique<Step>(function, training->step_options(w.rules));
    }
    for (int i = 0; i < 2; ++i) (*step)(inputs);
  }
  const Captured& captured() const { return *step->captured(); }

  std::unique_ptr<Training> training;
  Tensors inputs;
  Step::Function function;
  std::unique_ptr<Step> step;

 private:
  std::unique_ptr<nn::Glu> glu_;
};

const std::vector<int64_t> kNarrow{20, 16, 12, 10};

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  for (const char* rules : {"none", "all"}) {
    for (const int64_t rows : {128, 1024}) {
      all.push_back({.what = "default", .rules = rules, .rows = rows});
      all.push_back({.what = "clipped", .rules = rules, .options = {.clip = 1}, .rows = rows});
      all.push_back({.what = "gated", .rules = rules, .rows = rows, .gated = true});
    }
    all.push_back({.what = "bf16", .rules = rules, .options = {.dtype = DType::bf16}});
    all.push_back({.what = "f64", .rules = rules, .options = {.dtype = DType::f64}});
    all.push_back({.what = "narrow", .rules = rules, .options = {.sizes = kNarrow}});
  }
  for (Workload& w : all) w.what = str(w.what, ", ", w.rules, ", ", w.rows, " rows");
  return all;
}

// Memory that a node of the graph touches. An operand is written if its op says so; other memory,
// of which no op says anything, for all that is known.
struct Region {
  uintptr_t begin, end;
  bool written, hidden;
};
struct Touched {
  FakeToolkit::Graph graph;
  std::vector<std::vector<Region>> regions;  // per node
};

// The region of `address` in `node`: the operand around it, or the whole block.
Region region_of(
    uintptr_t address, const Node& node, const Executor& executor, const FakeToolkit& recorder) {
  const auto [begin, bytes] = recorder.block_of(address);
  Region region{begin, begin + bytes, true, true};
  const auto look_at = [&](int value, bool written) {
    if (value < 0) return;
    const Tensor t = executor.tensor(value);
    const Extent extent = extent_of(t);
    const auto base = reinterpret_cast<uintptr_t>(t.storage()->data());
    const Region operand{
        base + uintptr_t(extent.begin), base + uintptr_t(extent.end), written, false};
    if (operand.begin > address || address >= operand.end) return;
    region = region.hidden
                 ? operand
                 : Region{std::min(region.begin, operand.begin), std::max(region.end, operand.end),
                       region.written || written, false};
  };
  for (size_t i = 0; i < node.in.size(); ++i) look_at(node.in[i], node.writes_operand(i));
  for (const int out : node.out) look_at(out, true);
  return region;
}

// Captures the step's graph once more, op by op, to know which op each node is of.
Touched touched(const Captured& c, const FakeToolkit& recorder) {
  const Graph& graph = c.fused.graph;
  const auto tensors = [&](const std::vector<int>& values) {
    Tensors all;
    for (const int v : values) all.push_back(v < 0 ? Tensor{} : c.executor->tensor(v));
    return all;
  };
  std::vector<size_t> op_of_node;
  const CudaReplay replay(split_branches(graph), [&](size_t n) {
    const Node& node = graph.nodes[n];
    const Tensors in = tensors(node.in);
    Tensors out = tensors(node.out);
    launch_op({*node.op, in, out, node.attrs, node.role});
    op_of_node.resize(recorder.captured_nodes(), n);
  });
  Touched t{recorder.graphs().back(), {}};
  for (size_t n = 0; n < t.graph.nodes.size(); ++n) {
    std::vector<Region>& regions = t.regions.emplace_back();
    for (const uintptr_t address : t.graph.nodes[n].memory)
      regions.push_back(region_of(address, graph.nodes[op_of_node.at(n)], *c.executor, recorder));
  }
  return t;
}

TEST(CudaMemory, NodesWithoutAnOrderShareOnlyWhatBothRead) {
  for (const Workload& w : workloads()) {
    SCOPED_TRACE(w.what);
    const FakeToolkit recorder;
    const Captive captive(w);
    const Touched t = touched(captive.captured(), recorder);
    ASSERT_FALSE(t.graph.nodes.empty());
    const auto disjoint = [](const Region& a, const Region& b) {
      return a.end <= b.begin || b.end <= a.begin || !(a.written || b.written);
    };
    for (size_t b = 0; b < t.graph.nodes.size(); ++b) {
      EXPECT_FALSE(t.regions[b].empty()) << t.graph.nodes[b].name << " touches nothing";
      for (size_t a = 0; a < b; ++a) {
        if (t.graph.precedes(int(a), int(b))) continue;
        for (const Region& x : t.regions[a]) {
          const auto y = std::find_if_not(t.regions[b].begin(), t.regions[b].end(),
              [&](const Region& r) { return disjoint(x, r); });
          if (y == t.regions[b].end()) continue;
          ADD_FAILURE() << t.graph.nodes[a].name << " (node " << a << ") and "
                        << t.graph.nodes[b].name << " (node " << b << ") may run side by side on "
                        << (x.hidden || y->hidden ? "memory that is no operand" : "an operand");
          break;
        }
      }
    }
  }
}

// The number that the memory begins with.
uint32_t ticket_in(const Region& region) {
  uint32_t ticket = 0;
  std::memcpy(
      &ticket, FakeToolkit::host(reinterpret_cast<const void*>(region.begin)), sizeof ticket);
  return ticket;
}

// A ticket() counts from 0, so the memory that it counts in is zeroed before the graph first runs:
// by work that has run, for what a rehearsal leaves out nobody does again.
TEST(CudaMemory, TicketsAreZeroBeforeTheFirstReplay) {
  for (const Workload& w : workloads()) {
    SCOPED_TRACE(w.what);
    const FakeToolkit recorder;
    const Captive captive(w);
    const Touched t = touched(captive.captured(), recorder);
    for (size_t n = 0; n < t.graph.nodes.size(); ++n) {
      for (const Region& region : t.regions[n]) {
        if (!region.hidden) continue;
        EXPECT_EQ(ticket_in(region), 0u) << t.graph.nodes[n].name;
      }
    }
  }
}

// ---- calls

using Calls = std::map<std::string, int64_t>;
Calls calls_of(FakeToolkit& recorder, const std::function<void()>& work) {
  recorder.clear_log();
  work();
  Calls calls;
  for (const std::string& name : recorder.calls()) ++calls[name];
  return calls;
}

// The default step has 25 launches: 8 products, three of them with the address of a bias, and 17
// kernels of ours. Nothing else is asked for, eagerly or by a replay, however many kernels a
// product is.
TEST(CudaCalls, AStepAsksForNothingElse) {
  for (const int gemm_kernels : {1, 2}) {
    FakeToolkit recorder;
    recorder.set({.gemm_kernels = gemm_kernels});
    for (const char* rules : {"none", "all"}) {
      Captive captive({.rules = rules});
      EXPECT_EQ(calls_of(recorder, [&] { captive.function(captive.inputs); }),
          (Calls{{"cudaLaunchKernelExC", 17}, {"cublasLtMatmul", 8},
              {"cublasLtMatmulDescSetAttribute", 3}}));
      const auto replay = [&] { (*captive.step)(captive.inputs); };
      EXPECT_EQ(calls_of(recorder, replay), (Calls{{"cudaGraphLaunch", 1}})) << rules;
      captive.training->optimizer->set_lr(0.5);
      EXPECT_EQ(calls_of(recorder, replay), (Calls{{"cudaGraphLaunch", 1}})) << rules;
    }
  }
}

// Eager or replayed, the launch log, the card and the profile count the same kernels, and the ops
// that they are made by stay 25.
TEST(CudaCalls, AProductOfTwoKernelsIsCountedAsTwo) {
  FakeToolkit recorder;
  recorder.set({.gemm_kernels = 2});
  Captive captive({.rules = "none"});
  constexpr int64_t kOps = 25, kKernels = 25 + 8;
  recorder.clear_log();
  {
    const LaunchLog log;
    captive.function(captive.inputs);
    EXPECT_EQ(std::ssize(log.launches()), kKernels);
    EXPECT_EQ(test::library_launches(log), 16);
  }
  EXPECT_EQ(std::ssize(recorder.executed()), kKernels);
  EXPECT_EQ(std::ssize(recorder.graphs().back().nodes), kKernels);
  EXPECT_EQ(captive.captured().executor->launches(), size_t{kOps});
  for (const bool replayed : {false, true}) {
    profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = 2}, .device = kCuda});
    for (; !session.done(); session.step()) {
      if (replayed) (*captive.step)(captive.inputs);
      if (!replayed) captive.function(captive.inputs);
    }
    const profiler::Report report = session.finish();
    EXPECT_EQ(report.unproved, 0);
    for (const profiler::StepSample& s : report.steps) EXPECT_EQ(s.launches, kKernels) << replayed;
    const profiler::Rows rows = report.rows();
    int64_t launches = 0;
    for (const profiler::Row& row : rows.rows) launches += row.launches;
    EXPECT_EQ(launches, 2 * kKernels) << replayed;
    EXPECT_EQ(std::ssize(rows.calls), 2 * kOps) << "so the table finds a time for each op";
  }
}

TEST(CudaCalls, ALearningRateIsOneCopyThatIsWaitedFor) {
  FakeToolkit recorder;
  Captive captive({});
  EXPECT_EQ(calls_of(recorder, [&] { captive.training->optimizer->set_lr(0.5); }),
      (Calls{{"cudaMemcpyAsync", 1}, {"cudaStreamSynchronize", 1}}));
}

// ---- cards

// Every workload is captured on every card, as the recorder refuses what a card has not: with the
// same fused ops as on sm_90, but for a rule that says in explain() why this card is too small.
class CudaCards : public testing::TestWithParam<int> {};
TEST_P(CudaCards, EveryRuleFusesOrSaysWhy) {
  for (const Workload& w : workloads()) {
    SCOPED_TRACE(w.what);
    const auto fused = [&](int capability, std::string* explained) {
      FakeToolkit recorder;
      recorder.set({.capability = capability});
      const Captive captive(w);
      *explained = explain(captive.captured(), RuleSet(w.rules));
      return ops_of(captive.captured().fused.graph);
    };
    std::string text, text_of_90;
    const std::string ops = fused(GetParam(), &text), ops_of_90 = fused(90, &text_of_90);
    if (ops == ops_of_90) continue;
    EXPECT_NE(ops_of_90.find("row_chain"), std::string::npos) << ops << "\n" << ops_of_90;
    test::expect_facts(
        text, {"rows of 256-128-10 take ", str(" bytes of shared memory; at most ",
                                               GetParam() == 80 ? 166912 : 101376, " bytes")});
  }
}
INSTANTIATE_TEST_SUITE_P(Capabilities, CudaCards, testing::Values(80, 86, 89, 90, 120),
    testing::PrintToStringParamName());

TEST(CudaCards, ABiasOfAnotherTypeThanTheResultIsNoneOfTheLibrarys) {
  const FakeToolkit recorder;
  const Captive captive({.rules = "none", .options = {.dtype = DType::bf16}});
  test::expect_facts(explain(captive.captured(), RuleSet("none")),
      {" linear: own kernel, cuBLASLt takes no f32 bias for a bf16 result"});
}

}  // namespace
}  // namespace sinter::capture

#endif  // SINTER_HAS_CUDA
