// Profiles of real training steps: the counts and bytes of the guide's tables (default MLP, batch
// 64, sgd without momentum) on every device, what its table says of them, and the roofs behind
// their predictions.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/allocator.h"
#include "core/device/memory.h"
#include "core/device/timing.h"
#include "measure/calibrate.h"
#include "measure/comparison_table.h"
#include "measure/inspect.h"
#include "profiler/session.h"
#include "profiler/stats.h"
#include "profiler/trace.h"
#include "tests/capture/step_util.h"
#include "tests/gpu_test.h"
#include "tests/profiler/scopes.h"
#include "tests/profiler/trace_check.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

using namespace capture;

using test::kCuda;

struct Profiled {
  profiler::Report eager, fused;
  std::vector<profiler::GraphNode> nodes;
  std::vector<profiler::Candidate> candidates;
  ComparisonTable table;
  int64_t more_launches = 0;  // of the eager step's products, beyond one each
};

constexpr int64_t kProducts = 8;  // of the default step: forward, dW and dX of three layers

Profiled profile(Device device, const char* rules, std::vector<int64_t> sizes, int64_t batch,
    int steps = 1, DeviceTimer* timer = nullptr) {
  const TrainOptions options{
      .sizes = std::move(sizes), .optimizer = "sgd", .momentum = 0, .device = device};
  Training eager(options), fused(options);
  Step step(fused.function(), fused.step_options(rules));
  const Tensors in = batch_of(options, batch, 1);
  for (int i = 0; i < 3; ++i) {
    eager(in);
    step(in);
  }
  const auto record = [&](const std::function<void()>& run, const char* mode) {
    profiler::Session session({.schedule = {.wait = 0, .warmup = 1, .active = steps},
        .device = device,
        .mode = mode,
        .timer = timer});
    for (; !session.done(); session.step()) run();
    return session.finish();
  };
  Profiled p;
  {
    const LaunchLog log;
    eager(in);
    p.more_launches = std::max<int64_t>(test::library_launches(log) - kProducts, 0);
  }
  p.eager = record([&] { eager(in); }, "eager");
  p.fused = record([&] { step(in); }, "fused");
  p.nodes = describe_nodes(*step.captured());
  p.fused.nodes = p.nodes;
  p.candidates = candidates(*step.captured());
  p.table = make_table(*step.captured(), {});
  return p;
}

int64_t bytes_of(const profiler::Report& report) {
  int64_t bytes = 0;
  for (const profiler::Row& row : report.rows().rows)
    bytes += row.kind == profiler::ScopeKind::op ? row.cost.bytes() : 0;
  return bytes / int64_t(report.steps.size());
}
int64_t flops_of(const profiler::Report& report) {
  int64_t flops = 0;
  for (const profiler::Row& row : report.rows().rows) flops += row.cost.flops;
  return flops / int64_t(report.steps.size());
}
void expect_counts(const profiler::Report& report, int64_t launches, int64_t api_calls,
    bool timed = true, int64_t more_launches = 0) {
  EXPECT_EQ(report.incomplete.empty(), timed) << report.table();
  for (const profiler::StepSample& s : report.steps) {
    EXPECT_GE(s.launches, launches);
    EXPECT_LE(s.launches, launches + more_launches);
    EXPECT_EQ(s.api_calls, api_calls);
    EXPECT_EQ(s.copies, 0);
  }
}

TEST(Profile, CountsAndBytesOfTheDefaultStep) {
  struct Case {
    const char* rules;
    int64_t launches;
    double kb;
  };
  for (const Case& c : {Case{"all,-weight_grad_update", 10, 5876.4}, Case{"all", 9, 3995.3}}) {
    const Profiled p = profile(kCpu, c.rules, {784, 256, 128, 10}, 64);
    expect_counts(p.eager, 25, 25);
    expect_counts(p.fused, c.launches, c.launches);
    EXPECT_NEAR(double(bytes_of(p.eager)) / 1e3, 6381.3, 0.05);
    EXPECT_NEAR(double(bytes_of(p.fused)) / 1e3, c.kb, 0.05) << c.rules;
    EXPECT_EQ(flops_of(p.eager), flops_of(p.fused));
    EXPECT_NEAR(double(flops_of(p.eager)) / 1e6, 65.030, 5e-4);
    EXPECT_EQ(p.fused.steps[0].allocs, 0);
    EXPECT_EQ(bytes_of(p.fused), p.table.total.fused_bytes);
    // The memory timeline: every block of an eager step, and none of a replay.
    EXPECT_GT(p.eager.memory_peak().bytes, 0);
    EXPECT_EQ(p.fused.memory_peak().bytes, 0);
  }
}

// Rows by module: a gradient's has the path of the op that it belongs to, a fused op's all of its.
std::set<std::string> rows_by_module(const profiler::Report& report) {
  std::set<std::string> names;
  for (const profiler::Row& row : report.rows(false, 2).rows) {
    if (row.kind == profiler::ScopeKind::op) names.insert(row.name);
  }
  return names;
}
std::set<std::string> spans(const profiler::Report& report) {
  std::set<std::string> names;
  for (const profiler::Row& row : report.rows().rows) {
    if (row.kind == profiler::ScopeKind::annotation) names.insert(row.name);
  }
  return names;
}

TEST(Profile, ModulesAndPhasesAreEverywhere) {
  const Profiled p = profile(kCpu, "all,-weight_grad_update", {37, 19, 10}, 8);
  EXPECT_EQ(rows_by_module(p.eager),
      (std::set<std::string>{"MLP/layers.0/linear", "MLP/layers.1/relu", "MLP/layers.2/linear",
          "log_softmax", "nll", "nll_backward", "log_softmax_backward",
          "MLP/layers.2/matmul(wgrad)", "MLP/layers.2/sum_rows(bgrad)",
          "MLP/layers.2/matmul(dgrad)", "MLP/layers.1/relu_backward", "MLP/layers.0/matmul(wgrad)",
          "MLP/layers.0/sum_rows(bgrad)", "sgd_update"}));
  EXPECT_EQ(rows_by_module(p.fused),
      (std::set<std::string>{"MLP/layers.0 + layers.1/linear_act", "MLP/layers.2/linear",
          "softmax_xent", "MLP/layers.2/weight_bias_grad(wgrad)",
          "MLP/layers.2 + layers.1/input_grad_act(dgrad)", "MLP/layers.0/weight_bias_grad(wgrad)",
          "multi_tensor_update"}));
  EXPECT_EQ(spans(p.eager), (std::set<std::string>{"forward", "backward", "optimizer"}));
  EXPECT_EQ(spans(p.fused),
      (std::set<std::string>{"forward", "forward + backward", "backward", "optimizer"}));
  test::expect_facts(profiler::folded_stacks(p.eager),
      {"step;forward;MLP;layers.0;Linear(37 -> 19);linear", "step;backward;nll_backward",
          "step;backward;MLP;layers.0;Linear(37 -> 19);matmul", "step;optimizer;sgd_update"});
  test::expect_facts(profiler::folded_stacks(p.fused),
      {"step;forward + backward;softmax_xent",
          "step;forward;MLP;layers.0 / Linear(37 -> 19) + layers.1 / ReLU;linear_act"});
  // The trace says it of each op; the nodes of a graph are described alike.
  test::expect_facts(profiler::chrome_trace({&p.fused, 1}),
      {R"("x_module":"MLP / layers.0 / Linear(37 -> 19) + MLP / layers.1 / ReLU")"});
  EXPECT_EQ(p.nodes[0].module, "MLP / layers.0 / Linear(37 -> 19) + MLP / layers.1 / ReLU");
  EXPECT_EQ(p.nodes[0].phase, "forward");
}

TEST(Profile, EachBackwardOpHasAnArrowFromItsForward) {
  const Profiled p = profile(kCpu, "none", {37, 19, 16, 10}, 8, 2);
  const std::string text = profiler::chrome_trace({&p.eager, 1});
  const profiler::TraceCheck check = profiler::validate_trace(text);
  EXPECT_TRUE(check.problems.empty()) << check.problems[0].what;
  std::map<double, std::string> from;  // External id -> name
  std::map<std::string, int> arrows;   // "linear > matmul" -> how many
  const nlohmann::json events = nlohmann::json::parse(text)["traceEvents"];
  for (const nlohmann::json& e : events) {
    if (e.value("cat", "") == "cpu_op") from[e["args"]["External id"]] = e["name"];
  }
  int flows = 0;
  for (const nlohmann::json& e : events) {
    flows += e.value("cat", "") == "fwdbwd" && e["ph"] == "s";
    if (e.value("cat", "") == "cpu_op" && e["args"].contains("x_forward"))
      ++arrows[from.at(e["args"]["x_forward"]) + " > " + e["name"].get<std::string>()];
  }
  EXPECT_EQ(flows, 2 * 12);
  EXPECT_EQ(arrows, (std::map<std::string, int>{{"linear > matmul", 2 * 5},
                        {"linear > sum_rows", 2 * 3}, {"relu > relu_backward", 2 * 2},
                        {"log_softmax > log_softmax_backward", 2}, {"nll > nll_backward", 2}}));
}

TEST(Profile, NodesSayWhatTheyAreMadeOfAndRulesWhatTheySave) {
  const Profiled p = profile(kCpu, "all,-weight_grad_update", {37, 19, 16, 10}, 8);
  const auto made_of = [&](std::string_view name) {
    for (const profiler::GraphNode& node : p.nodes) {
      if (node.name == name) return node.made_of;
    }
    return std::string("not there");
  };
  EXPECT_EQ(p.nodes.size(), 10u);
  EXPECT_EQ(made_of("linear_act"), "linear + relu");
  EXPECT_EQ(made_of("weight_bias_grad"), "matmul(wgrad) + sum_rows(bgrad)");
  EXPECT_EQ(made_of("softmax_xent"), "log_softmax, nll, nll_backward, log_softmax_backward");
  EXPECT_EQ(made_of("multi_tensor_update"), "sgd_update x6");
  EXPECT_EQ(made_of("linear"), "");
  int64_t saved = 0;
  for (const profiler::Candidate& c : p.candidates) saved += c.launches_saved;
  EXPECT_EQ(saved, 15);
  EXPECT_EQ(p.candidates.at(0).rule, "multi_tensor_update");
  const auto linear_act = std::find_if(p.candidates.begin(), p.candidates.end(),
      [](const auto& c) { return c.rule == "linear_act"; });
  ASSERT_NE(linear_act, p.candidates.end());
  EXPECT_TRUE(linear_act->text().starts_with("linear_act x2 (linear + relu): -2 launches, -"))
      << linear_act->text();
}

TEST(Profile, EmulatedCountsAreThoseOfTheCardSimt) {
  for (const auto& [rules, launches] : {std::pair<const char*, int64_t>{"none", 25},
           {"all,-weight_grad_update,-row_chain", 10}, {"all,-row_chain", 7}, {"all", 2}}) {
    const Profiled p = profile(kSimt, rules, {37, 19, 16, 10}, 8);
    expect_counts(p.eager, 25, 25);
    expect_counts(p.fused, launches, launches);
    EXPECT_EQ(p.fused.source, profiler::Source::emul);
    for (const profiler::Row& row : p.fused.rows().rows) EXPECT_EQ(row.device_ns, 0);
    EXPECT_EQ(p.fused.verdict().code, profiler::StepCode::undecided);
  }
}

profiler::MemoryUse sum_of(const profiler::Profile& p) {
  profiler::MemoryUse sum;
  for (const profiler::Row& row : p.rows) sum += row.memory;
  return sum;
}

// What the rows say is what the allocator counts by itself, to the byte.
void expect_rows_are_the_allocators(Device device) {
  const TrainOptions options{.sizes = {48, 32, 10}, .device = device};
  Training eager(options);
  const Tensors in = batch_of(options, 16, 1);
  for (int i = 0; i < 3; ++i) eager(in);
  synchronize(device);
  Allocator& memory = allocator(device);
  constexpr int kSteps = 3;
  profiler::Session session(
      {.schedule = {.wait = 0, .warmup = 0, .active = kSteps}, .device = device, .mode = "eager"});
  memory.reset_peak();
  const MemoryStats before = memory.stats();
  for (; !session.done(); session.step()) {
    const profiler::Scope step("train_step");
    eager(in);
    synchronize(device);  // the emulator frees what no kernel waits for
  }
  const MemoryStats after = memory.stats();
  const profiler::Report report = session.finish();
  const profiler::Profile p = report.profile();
  ASSERT_TRUE(p.incomplete.empty()) << p.incomplete[0];

  const profiler::MemoryUse rows = sum_of(p);
  EXPECT_EQ(rows.allocated - rows.freed, after.live_bytes - before.live_bytes);
  EXPECT_EQ(rows.peak, after.peak_bytes);
  EXPECT_GT(rows.peak, before.live_bytes);
  EXPECT_EQ(rows.allocated, p.memory.allocated);
  EXPECT_EQ(rows.freed, p.memory.freed);
  EXPECT_EQ(p.arena, profiler::MemoryUse{});
  int64_t taken = 0;
  for (const profiler::Trace& trace : report.traces)
    taken += std::ranges::count_if(trace.memory, [](const auto& m) { return m.change > 0; });
  EXPECT_EQ(taken, after.requests - before.requests);

  const auto linear = std::ranges::find(p.rows, "linear", &profiler::Row::name);
  ASSERT_NE(linear, p.rows.end());
  const auto block = [](size_t bytes) { return int64_t(Allocator::size_class(bytes)); };
  EXPECT_EQ(linear->memory.allocated, kSteps * (block(16 * 32 * 4) + block(16 * 10 * 4)));
  const std::vector<profiler::Kept> kept = profiler::kept_of(report);
  const auto relu = std::ranges::find(kept, "relu", &profiler::Kept::ops);
  ASSERT_NE(relu, kept.end());
  EXPECT_EQ(relu->bytes, double(block(16 * 32 * 4)));
  EXPECT_TRUE(relu->module.ends_with(" / ReLU")) << relu->module;
  if (device == kCpu) {  // the emulator frees later
    EXPECT_EQ(relu->until, "relu_backward");
  }
  double sum = 0;
  for (const profiler::Kept& module : kept) sum += module.bytes;
  EXPECT_EQ(sum * kSteps, double(rows.kept));
}

TEST(Profile, RowsTakeAndGiveBackWhatTheAllocatorCounts) { expect_rows_are_the_allocators(kCpu); }
TEST(Profile, RowsTakeAndGiveBackWhatTheAllocatorCountsSimt) {
  expect_rows_are_the_allocators(kSimt);
}

// What is kept for backward is what the forward pass leaves in use.
void expect_kept(Device device) {
  nn::Mlp net({48, 32, 10});
  net.to(device);
  const Tensors in = batch_of({.sizes = {48, 32, 10}, .device = device}, 16, 1);
  Allocator& memory = allocator(device);
  profiler::Session session({.schedule = {.wait = 1, .warmup = 0, .active = 2}, .device = device});
  int64_t kept = 0;
  for (int step = 0; !session.done(); ++step, session.step()) {
    net.zero_grad();
    synchronize(device);
    const int64_t before = memory.stats().live_bytes;
    // In two parts, as of a batch: the gradients of the first are no activations.
    for (int part = 0; part < 2; ++part) {
      const Tensor losses = cross_entropy(net(in[0]), in[1]);
      synchronize(device);
      if (step > 0 && part == 0) kept += memory.stats().live_bytes - before;
      backward(losses);
    }
  }
  const profiler::Profile p = session.finish().profile();
  EXPECT_GT(kept, 0);
  EXPECT_EQ(sum_of(p).kept, 2 * kept) << "both parts keep as much";
}

TEST(Profile, RowsKeepWhatTheForwardPassLeaves) { expect_kept(kCpu); }
TEST(Profile, RowsKeepWhatTheForwardPassLeavesSimt) { expect_kept(kSimt); }

// Of a replay each row has its nodes' places in the arena: those of the plan, which is one block of
// the allocator's, and what `inspect` finds for itself.
void expect_rows_are_the_plans(Device device) {
  const TrainOptions options{.sizes = {48, 32, 16}, .device = device};  // whole blocks of 64 bytes
  Training fused(options);
  Step step(fused.function(), fused.step_options("all,-weight_grad_update"));
  const Tensors in = batch_of(options, 16, 1);
  for (int i = 0; i < 3; ++i) step(in);
  synchronize(device);
  const Captured& captured = *step.captured();
  const MemoryPlan& plan = captured.executor->plan();
  Allocator& memory = allocator(device);
  {
    const int64_t before = memory.stats().live_bytes;
    const Storage arena(size_t(plan.bytes), device);
    const int64_t with_arena = memory.stats().live_bytes;
    const Executor again(captured.fused.graph);
    EXPECT_EQ(memory.stats().live_bytes - with_arena, with_arena - before);
  }
  constexpr int kSteps = 3;
  profiler::Session session(
      {.schedule = {.wait = 0, .warmup = 0, .active = kSteps}, .device = device, .mode = "fused"});
  const MemoryStats before = memory.stats();
  for (; !session.done(); session.step()) step(in);
  EXPECT_EQ(memory.stats().requests, before.requests);
  const profiler::Profile p = session.finish().profile();
  EXPECT_EQ(p.memory, profiler::MemoryUse{}) << "a replay asks the allocator for nothing";
  EXPECT_EQ(p.arena.allocated, kSteps * plan.unshared_bytes);
  EXPECT_LE(p.arena.peak, plan.bytes);

  std::map<std::string, profiler::MemoryUse> inspected;
  int64_t peak = 0;
  const auto opened = nlohmann::json::parse(Inspection(captured, in).json());
  for (const auto& op : opened["steps"][1]["ops"]) {
    const std::string role = op["role"], name = op["op"];
    const bool told = role == "wgrad" || role == "dgrad" || role == "bgrad";
    inspected[told ? name + "(" + role + ")" : name] +=
        {.freed = op["freed"].get<int64_t>(), .peak = op["live"].get<int64_t>()};
    peak = std::max(peak, op["live"].get<int64_t>());
  }
  EXPECT_EQ(p.arena.peak, peak);
  profiler::MemoryUse rows;
  for (const profiler::Row& row : p.rows) {
    if (row.kind != profiler::ScopeKind::op) continue;
    rows += row.memory;
    EXPECT_EQ(row.memory.freed, kSteps * inspected.at(row.name).freed) << row.name;
    EXPECT_EQ(row.memory.peak, inspected.at(row.name).peak) << row.name;
  }
  EXPECT_EQ(rows, p.arena);
  // Where row_chain is the whole of forward and of its backward, nothing waits between them.
  EXPECT_EQ(rows.kept > 0, device == kCpu);
  int64_t kept = 0;
  for (const profiler::Kept& module : profiler::kept_of(describe_nodes(captured))) {
    kept += int64_t(module.bytes);
    EXPECT_NE(module.until, "");
  }
  EXPECT_EQ(kSteps * kept, rows.kept);
  EXPECT_LT(rows.kept, rows.allocated);
}

TEST(Profile, RowsOfAReplayHaveTheirPlacesInTheArena) { expect_rows_are_the_plans(kCpu); }
TEST(Profile, RowsOfAReplayHaveTheirPlacesInTheArenaSimt) { expect_rows_are_the_plans(kSimt); }

class Calibrate : public testing::Test {
 protected:
  const test::TempDir folder_;
  const test::ScopedEnv cache_{"XDG_CACHE_HOME", folder_.path().c_str()};
};

TEST_F(Calibrate, KeepsWhatItMeasuredOnAQuietMachineAndTakesWhatIsKept) {
  EXPECT_THROW(calibrate(kSimt), Error);
  bool fresh = false;
  profiler::Roofs first = calibrated(kCpu, &fresh);
  EXPECT_EQ(fresh, !first.loaded);
  EXPECT_EQ(profiler::stored_roofs(kCpu).has_value(), !first.loaded);
  for (const double n : {first.f32_gflops, first.bf16_gflops, first.cache_gbs, first.dram_gbs,
           first.op_ns, first.scope_ns})
    EXPECT_GT(n, 0);
  EXPECT_GT(first.cache_bytes, 0);
  EXPECT_GT(first.spread, 0) << "no two of all batches take the same nanoseconds";
  first.loaded = false;
  first.f32_gflops = 95;
  profiler::save_roofs(first, profiler::roofs_file(kCpu));
  EXPECT_EQ(calibrated(kCpu, &fresh).f32_gflops, 95);
  EXPECT_FALSE(fresh);
}

TEST_F(Calibrate, SeesWhatOthersTakeOfTheCores) {
  const double ticks = double(sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(busy_seconds("cpu  1000 20 300 400000 5000 6 70 8 0 0\n"), 1404 / ticks);
  EXPECT_FALSE(is_loaded(0.1, 2, 2));
  EXPECT_TRUE(is_loaded(0.2, 2, 2)) << "two threads want both cores";
  EXPECT_FALSE(is_loaded(1.1, 1, 2)) << "one core is left for one thread";
  EXPECT_TRUE(is_loaded(1.2, 1, 2));
  EXPECT_TRUE(is_loaded(0.2, 4, 2));
}

// ---- On a card
// ----------------------------------------------------------------------------------------------------------------------

class ProfileGpu : public test::GpuTest {
 protected:
  static Profiled default_step(const char* rules, DeviceTimer* timer) {
    return profile(kCuda, rules, {784, 256, 128, 10}, 64, 20, timer);
  }
  static std::unique_ptr<DeviceTimer> card_timer(bool records) {
    std::string why;
    return cuda::make_timer(why, records);
  }
};

TEST_F(ProfileGpu, LaunchesAreTheNodesOfTheGraphAndRecordsTimeThemAll) {
  const auto timer = card_timer(false);
  for (DeviceTimer* which : {static_cast<DeviceTimer*>(nullptr), timer.get()}) {
    const bool records = !which && card_timer(true)->has_records();
    const Profiled p = default_step("all,-weight_grad_update,-row_chain", which);
    expect_counts(p.eager, 25 + p.more_launches, 25, records);
    // One of them is a product.
    expect_counts(p.fused, 10, records ? 1 : 10, records, p.more_launches);
    for (const profiler::Report* report : {&p.eager, &p.fused})
      EXPECT_EQ(report->source, records ? profiler::Source::cupti : profiler::Source::none);
    for (const profiler::OpCall& call : p.fused.rows().calls)
      EXPECT_EQ(call.device_ns > 0, records);
  }
}

TEST_F(ProfileGpu, ASleepOfTheHostIsIdleOfTheHost) {
  if (!card_timer(true)->has_records()) GTEST_SKIP() << "CUPTI keeps no records here";
  constexpr int kSteps = 10, kSleepMs = 2;
  const Tensor x = Tensor::zeros({1 << 16}, DType::f32).to(kCuda);
  profiler::Session session(
      {.schedule = {.wait = 0, .warmup = 1, .active = kSteps}, .device = kCuda});
  for (; !session.done(); session.step()) {
    scale(x, 2.0);
    std::this_thread::sleep_for(std::chrono::milliseconds(kSleepMs));
    scale(x, 2.0);
  }
  const profiler::Timeline t = session.finish().timeline();
  EXPECT_GE(t.host_ns, int64_t{kSteps} * kSleepMs * 1'000'000 * 9 / 10);
  EXPECT_LT(t.gap_ns + t.sync_ns + t.data_ns, t.host_ns / 10);
}

}  // namespace
}  // namespace sinter::measure
