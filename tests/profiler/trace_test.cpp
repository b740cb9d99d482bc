#include "profiler/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/profiler/read_trace.h"
#include "tests/profiler/reports.h"
#include "tests/profiler/trace_check.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

using Json = nlohmann::json;

std::string trace_of(const Report& report) { return chrome_trace({&report, 1}); }

std::string rules(const TraceCheck& check) {
  std::string out;
  for (const TraceProblem& p : check.problems) out += p.rule + " (" + p.what + ")\n";
  return out;
}

TEST(ChromeTrace, Golden) {
  FakeClock clock;
  Session session({.schedule = {.wait = 0, .warmup = 0, .active = 1}, .clock = &clock});
  fake_op(clock, "linear", 500, 1250,
      {.cost = {10, 20, 30}, .uid = 1, .forward_uid = 1, .role = Role::fwd});
  fake_op(clock, "matmul", 500, 1000,
      {.cost = {10, 20, 30}, .uid = 2, .forward_uid = 1, .role = Role::wgrad});
  session.step();
  EXPECT_EQ(trace_of(session.finish()),
      R"trace({"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":1000000,"traceName":"CPU eager","distributedInfo":{"rank":0},"deviceProperties":[],"x_schema":"sinter.trace/1","x_source":"host","x_incomplete":false,"traceEvents":[
{"ph":"M","name":"process_name","pid":1,"tid":0,"ts":0,"args":{"name":"host"}},
{"ph":"M","name":"thread_name","pid":1,"tid":0,"ts":0,"args":{"name":"thread 0 (steps)"}},
{"ph":"C","name":"step ms","pid":1,"tid":0,"ts":0.0,"args":{"ms":0.003}},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":1,"tid":0,"ts":0.0,"dur":3.25,"args":{"External id":1,"x_launches":2}},
{"ph":"X","cat":"cpu_op","name":"linear","pid":1,"tid":0,"ts":0.0,"dur":1.75,"args":{"External id":2,"x_kind":"op","Input Dims":[],"x_shapes":"","x_role":"fwd","x_flops":10,"x_bytes_read":20,"x_bytes_written":30,"x_launches":1,"x_kernel_ns":1250}},
{"ph":"s","cat":"fwdbwd","name":"fwdbwd","id":1,"pid":1,"tid":0,"ts":0.0},
{"ph":"f","bp":"e","cat":"fwdbwd","name":"fwdbwd","id":1,"pid":1,"tid":0,"ts":1.75},
{"ph":"X","cat":"cpu_op","name":"matmul","pid":1,"tid":0,"ts":1.75,"dur":1.5,"args":{"External id":3,"x_kind":"op","Input Dims":[],"x_shapes":"","x_role":"wgrad","x_flops":10,"x_bytes_read":20,"x_bytes_written":30,"x_launches":1,"x_kernel_ns":1000,"x_forward":2}}
]}
)trace");
}

TEST(ChromeTrace, IsSoundAndKeepsOddNames) {
  for (const Report& report : {cpu_report(), device_report()}) {
    const std::string text = trace_of(report);
    const TraceCheck check = validate_trace(text);
    EXPECT_EQ(rules(check), "");
    EXPECT_GE(check.slices, 15);
  }
  int64_t odd = 0;
  const Json trace = Json::parse(trace_of(cpu_report()));
  for (const Json& event : trace["traceEvents"])
    odd += event["name"] ==
           "q\"uo\\te;\n\xef\xbf\xbd</script><!--\x1b";  // but for the byte that is no UTF-8
  EXPECT_EQ(odd, 4);
}

TEST(ChromeTrace, DeviceLanesFlowsAndCounters) {
  std::map<std::string, int> count;
  const Json trace = Json::parse(trace_of(device_report()));
  for (const Json& event : trace["traceEvents"])
    ++count[event["ph"].get<std::string>() + " " + event.value("cat", "") +
            (event["ph"] == "C" ? event["name"].get<std::string>() : "")];
  EXPECT_EQ(count["X cpu_op"], 15);
  EXPECT_EQ(count["X cuda_runtime"], 15);
  EXPECT_EQ(count["X kernel"], 12);
  EXPECT_EQ(count["X gpu_memcpy"], 3);
  EXPECT_EQ(count["X user_annotation"], 3);
  EXPECT_EQ(count["s ac2g"], 15);
  EXPECT_EQ(count["f fwdbwd"], 3);
  EXPECT_EQ(count["C memory in use"], 6);
  EXPECT_EQ(count["C queue depth"], 30);
}

// As Kineto writes them: its readers show them. What is not known is not there.
TEST(ChromeTrace, AKernelSaysItsFootprintInKinetosKeys) {
  Report r = device_report();
  r.card = {80, 108};
  for (LaunchRecord& l : r.traces[0].launches) {
    if (l.kernel == "gemm_128x64")
      l.footprint = {.grid = {540, 2, 1},
          .block = {128, 1, 1},
          .registers = 255,
          .static_shared = 1024,
          .dynamic_shared = 48 << 10};
    if (l.kernel == "relu_kernel") l.footprint = {.grid = {54, 2, 1}, .block = {256, 1, 1}};
  }
  const std::string text = trace_of(r);
  EXPECT_EQ(rules(validate_trace(text)), "");
  const Json trace = Json::parse(text);
  EXPECT_EQ(trace["deviceProperties"][0]["numSms"], 108);
  EXPECT_EQ(trace["deviceProperties"][0]["computeMajor"], 8);
  const auto said = [&](std::string_view kernel) {
    for (const Json& event : trace["traceEvents"]) {
      if (event["name"] != kernel || event["cat"] != "kernel") continue;
      Json args = event["args"];
      for (const char* key :
          {"External id", "correlation", "device", "context", "stream", "x_source"})
        EXPECT_EQ(args.erase(key), 1u) << key;
      return args;
    }
    return Json("no such kernel");
  };
  // 2 blocks of 4 warps fit: 12.5 %. 1,080 blocks are 5 times 2 x 108.
  EXPECT_EQ(said("gemm_128x64"),
      Json::parse(R"({"grid": [540, 2, 1], "block": [128, 1, 1], "registers per thread": 255,
        "shared memory": 50176, "blocks per SM": 10.0, "warps per SM": 40.0,
        "est. achieved occupancy %": 13, "x_static_shared": 1024, "x_occupancy": 0.125,
        "x_limit": "registers", "x_waves": 5.0, "x_tail": 1.0})"));
  EXPECT_EQ(
      said("relu_kernel"), Json::parse(
                               R"({"grid": [54, 2, 1], "block": [256, 1, 1], "blocks per SM": 1.0,
        "warps per SM": 8.0})"));
  EXPECT_EQ(said("softmax_kernel"), Json::object());
}

TEST(ChromeTrace, AGraphReplayIsOneCallOfManyKernels) {
  Report r = device_report();
  r.nodes = {{.name = "linear_act", .made_of = "linear + relu", .phase = "forward"},
      {.name = "linear", .phase = "forward"},
      {.name = "multi_tensor_update", .phase = "optimizer"}};
  Trace& trace = r.traces[0];
  trace.records.clear();
  trace.launches.clear();
  for (uint32_t node = 1; node <= 3; ++node) {
    const int64_t from = 1'020'000 + 10'000 * node;
    trace.launches.push_back(timed_launch(1'010'000, 1'020'000, from, from + 8000));
    trace.launches.back().graph_node = node;
  }
  const std::string text = trace_of(r);
  EXPECT_EQ(rules(validate_trace(text)), "");
  std::vector<std::string> names;
  std::map<std::string, double> phases;  // us
  const Json written = Json::parse(text);
  for (const Json& event : written["traceEvents"]) {
    if (event.value("cat", "") == "cuda_runtime" || event.value("cat", "") == "kernel")
      names.push_back(event["name"]);
    if (event.value("cat", "") == "gpu_user_annotation") phases[event["name"]] = event["dur"];
  }
  EXPECT_EQ(names,
      (std::vector<std::string>{"cudaGraphLaunch", "linear_act", "linear", "multi_tensor_update"}));
  // On the device's lane, from the first kernel's begin to the last one's end.
  EXPECT_EQ(phases, (std::map<std::string, double>{{"forward", 18}, {"optimizer", 8}}));
}

// Two modes on one clock: processes of their own, and all of it sound.
TEST(ChromeTrace, HoldsAPairOfReports) {
  Report reports[] = {device_report(), device_report()};
  reports[1].mode = "fused";
  const std::string text = chrome_trace(reports);
  EXPECT_EQ(rules(validate_trace(text)), "");
  std::map<std::string, int> events;  // of each process
  std::map<int, std::string> process;
  const Json trace = Json::parse(text);
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") process[event["pid"]] = event["args"]["name"];
  }
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") ++events[process.at(event["pid"])];
  }
  EXPECT_EQ(process.size(), 4u);
  EXPECT_EQ(events["fused: host"], 33);
  EXPECT_EQ(events["fused: cuda:0"], 15);
  EXPECT_EQ(events["eager: cuda:0"], 15);
}

// Each rule has a trace in which only it is broken.
TEST(Validate, EachRuleCatchesWhatNoOtherDoes) {
  const Json good = Json::parse(trace_of(device_report()));
  const auto find = [](Json& trace, const char* cat, const char* ph,
                        const char* name = nullptr) -> Json& {
    for (Json& event : trace["traceEvents"]) {
      if (event.value("cat", "") == cat && event["ph"] == ph && (!name || event["name"] == name))
        return event;
    }
    throw std::runtime_error("no such event");
  };
  const auto slice = [](double ts, double dur) {
    return Json{{"ph", "X"}, {"cat", "overhead"}, {"name", "x"}, {"pid", 9}, {"tid", 9}, {"ts", ts},
        {"dur", dur}};
  };
  const std::pair<const char*, std::function<void(Json&)>> cases[] = {
      {"schema", [](Json& t) { t.erase("schemaVersion"); }},
      {"schema",
          [&](Json& t) {
            t["traceEvents"].clear();
            t.erase("baseTimeNanoseconds");
          }},
      {"schema",
          [&](Json& t) {
            t["traceEvents"].push_back({{"ph", "X"}, {"name", "x"}});
          }},
      {"schema", [&](Json& t) { t["traceEvents"].push_back(slice(1e300, 1)); }},
      {"schema", [&](Json& t) { t["traceEvents"].push_back(slice(9e14, 1e300)); }},
      {"duration", [&](Json& t) { t["traceEvents"].push_back(slice(1, -1)); }},
      {"nesting",
          [&](Json& t) {
            t["traceEvents"].push_back(slice(1, 10));
            t["traceEvents"].push_back(slice(5, 10));
          }},
      {"flow-pairs", [&](Json& t) { find(t, "ac2g", "f")["ph"] = "s"; }},
      {"flow-ends", [&](Json& t) { find(t, "ac2g", "s")["ts"] = 1e8; }},
      {"launch-order",
          [&](Json& t) {
            find(t, "kernel", "X")["ts"] = 15;
            find(t, "kernel", "X")["dur"] = 65;
          }},
      {"launch-order", [&](Json& t) { find(t, "kernel", "X")["args"]["correlation"] = 4711; }},
      {"unique-ids",
          [&](Json& t) {
            find(t, "cpu_op", "X", "relu")["args"]["External id"] =
                find(t, "cpu_op", "X", "copy")["args"]["External id"];
          }},
      {"unique-ids",
          [&](Json& t) {
            find(t, "cuda_runtime", "X", "cudaMemcpyAsync")["args"]["correlation"] = 1;
            find(t, "gpu_memcpy", "X")["args"]["correlation"] = 1;
          }},
      {"backward", [&](Json& t) { find(t, "cpu_op", "X", "matmul")["args"]["x_forward"] = 4711; }},
      {"backward",
          [&](Json& t) {
            find(t, "fwdbwd", "s")["cat"] = "ac2h";
            find(t, "fwdbwd", "f")["cat"] = "ac2h";
          }},
  };
  for (const auto& [rule, damage] : cases) {
    Json bad = good;
    damage(bad);
    const TraceCheck check = validate_trace(bad.dump());
    ASSERT_FALSE(check.problems.empty()) << rule;
    for (const TraceProblem& p : check.problems) EXPECT_EQ(p.rule, rule) << p.what;
  }
  EXPECT_EQ(rules(validate_trace("[]")), "schema (no JSON object with an array traceEvents)\n");
  EXPECT_EQ(
      validate_trace(
          R"({"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [1, null, "x", {"ph": 3}]})")
          .problems.size(),
      4u);
}

// What HolisticTraceAnalysis makes of the device timeline is what our own table says.
TEST(RealReader, HtaAgreesWithTheDeviceTimeline) {
  const Report report = device_report();
  const auto read = test::read_by_hta({trace_of(report)});
  if (!read) GTEST_SKIP() << test::no_hta();
  const Json hta = Json::parse(*read);
  // Its times are us; it looks from the first kernel's begin to the last one's end: 30 us after the
  // window's, 10 us before it.
  const Timeline t = report.timeline();
  const int64_t head = 30'000, tail = 10'000;
  EXPECT_EQ(1000 * (hta["temporal"]["compute_time(us)"].get<int64_t>() +
                       hta["temporal"]["non_compute_time(us)"].get<int64_t>()),
      t.busy_ns);
  EXPECT_EQ(1000 * hta["temporal"]["idle_time(us)"].get<int64_t>(), t.idle_ns() - head - tail);
  EXPECT_EQ(1000 * hta["temporal"]["kernel_time(us)"].get<int64_t>(), t.window_ns - head - tail);
  EXPECT_EQ(1000 * hta["idle"]["host_wait"].get<int64_t>(), t.host_ns - head - tail);
  EXPECT_EQ(1000 * hta["idle"]["kernel_wait"].get<int64_t>(), t.gap_ns);
  EXPECT_EQ(t.data_ns + t.sync_ns, 0);
  std::map<std::string, int64_t> kernels;
  int64_t api = 0, device = 0, launches = 0;
  for (const LaunchRecord& l : report.traces[0].launches) {
    kernels[std::string(l.kernel)] += l.device_ns();
    api += l.api_t1 - l.api_t0;
    device += l.device_ns();
    ++launches;
  }
  for (const auto& [name, ns] : kernels)
    EXPECT_EQ(1000 * hta["kernels"].value(name, int64_t{0}), ns) << name;
  EXPECT_EQ(hta["kernels"].size(), kernels.size());
  EXPECT_EQ(hta["launches"]["count"], launches);
  EXPECT_EQ(1000 * hta["launches"]["cpu_duration"].get<int64_t>(), api);
  EXPECT_EQ(1000 * hta["launches"]["gpu_duration"].get<int64_t>(), device);
  int64_t rows = 0;
  for (const Row& row : report.rows().rows) {
    if (row.kind != ScopeKind::op) continue;  // a copy also has a row of its own
    rows += row.device_ns;
    EXPECT_EQ(hta["ops"].value(row.name.substr(0, row.name.find('(')), 0), row.calls) << row.name;
  }
  EXPECT_EQ(rows, device);
}

// A rank whose device sums gradients from begin to end, in us after each step's begin, beside the
// product that runs from 158 to 190.
std::string trace_of_rank(int rank, int64_t begin, int64_t end) {
  Report report = device_report();
  for (const StepSample& step : report.steps) {
    LaunchRecord launch = timed_launch(
        step.t0 + 140'000, step.t0 + 145'000, step.t0 + 1000 * begin, step.t0 + 1000 * end);
    launch.kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
    launch.step = uint32_t(step.number);
    launch.stream = 1;
    report.traces[0].launches.push_back(launch);
  }
  return chrome_trace({&report, 1}, {.rank = rank, .ranks = 2});
}

// The kernel's name is NCCL's own, by which HTA knows it.
TEST(RealReader, HtaFindsHowMuchOfTheSumsEachRankHides) {
  const auto read = test::read_by_hta({trace_of_rank(0, 150, 190), trace_of_rank(1, 182, 198)});
  if (!read) GTEST_SKIP() << test::no_hta();
  EXPECT_EQ(Json::parse(*read)["overlap"], (Json{{"0", 80.0}, {"1", 50.0}}));
}

TEST(ChromeTrace, AKernelThatEndsBeforeItsCallReturnsLeavesNoNegativeQueue) {
  Report r = device_report();
  r.traces[0].records.clear();
  r.traces[0].launches = {timed_launch(1'010'000, 1'020'000, 1'012'000, 1'015'000)};
  std::vector<int> depth;
  const Json written = Json::parse(trace_of(r));
  for (const Json& event : written["traceEvents"]) {
    if (event["name"] == "queue depth") depth.push_back(event["args"]["launches"]);
  }
  EXPECT_EQ(depth, (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace sinter::profiler
