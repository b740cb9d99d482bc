#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "profiler/join.h"
#include "profiler/trace.h"
#include "tests/profiler/reports.h"
#include "tests/test_util.h"

namespace sinter::profiler {
namespace {

using Json = nlohmann::json;
using test::text_of;

const RunFacts kRun{"mlp 784-256-10 relu, adam", "mnist train", "sinter test", "1", 64};

TEST(Json, IsReadBackAsItWasWritten) {
  Report full = device_report();
  full.roofs = Roofs{.key = "a card",
      .f32_gflops = 50'000,
      .cache_gbs = 6000,
      .dram_gbs = 3000,
      .cache_bytes = 50'000'000,
      .floor_ns = 1300,
      .spread = 0.05};
  full.incomplete = {"a reason"};
  full.clean_us = {190.5, 191};
  full.card = {90, 132};
  for (LaunchRecord& launch : full.traces[0].launches) {
    launch.footprint = {.grid = {8, 2, 1}, .block = {256, 1, 1}, .static_shared = 0};
    if (launch.kernel == "gemm_128x64") launch.footprint.registers = 128;
    if (launch.kernel == "gemm_128x64") launch.footprint.dynamic_shared = 96 << 10;
  }
  ASSERT_TRUE(full.profile().rows[0].kernels[0].occupancy);
  for (const Report& report : {cpu_report(), device_report(), full}) {
    const Profile profile = profile_of(report, kRun);
    const Profile again = read_profile(to_json(profile), "F");
    EXPECT_EQ(to_json(again), to_json(profile));
    EXPECT_EQ(table(again).find("INCOMPLETE"), table(profile).find("INCOMPLETE"));
    ASSERT_EQ(again.rows.size(), profile.rows.size());
    for (size_t i = 0; i < again.rows.size(); ++i)
      EXPECT_EQ(again.rows[i].typical_ns, profile.rows[i].typical_ns);
  }
}

// The file as it was before its structs stated their fields.
TEST(Json, IsTheGoldenFile) {
  Report report = device_report();
  report.roofs = Roofs{.key = "a card", .f32_gflops = 50'000, .dram_gbs = 3000, .floor_ns = 1300};
  report.incomplete = {"a reason"};
  report.clean_us = {190.5, 191};
  EXPECT_EQ(to_json(profile_of(report, kRun)),
      text_of(SINTER_SOURCE_DIR "/tests/profiler/golden/profile.json"));
}

TEST(Json, OfAnEarlierBuildLacksWhatIsNew) {
  Report report = cpu_report();
  report.roofs = Roofs{.f32_gflops = 95, .dram_gbs = 10, .spread = 0.05};
  Json json = Json::parse(to_json(profile_of(report, kRun)));
  EXPECT_EQ(json["roofs"]["spread"], 0.05);
  EXPECT_EQ(read_profile(json.dump(), "F").roofline->spread, 0.05);
  json["roofs"].erase("spread");
  json.erase("memory");
  json.erase("arena");
  for (Json& step : json["steps"]) step.erase("profiler_ns");
  for (Json& row : json["rows"]) {
    for (const char* key : {"in_table", "share", "typical_ns", "typical_total_ns",
             "typical_kernel_ns", "flags", "memory", "kernels"})
      row.erase(key);
  }
  json.erase("card");
  const Profile old = read_profile(json.dump(), "F");
  EXPECT_EQ(old.roofline->spread, 0);
  EXPECT_EQ(old.rows[1].typical_ns, 28'000);
}

// What fusing would save is part of the verdict's advice, wherever that is shown.
TEST(Json, TheAdviceIsThatOfTheTable) {
  const Report report = advised_report();
  const std::string advice = Json::parse(to_json(profile_of(report, kRun)))["verdict"]["advice"];
  test::expect_facts(advice, {"linear_act x2 (linear + relu): -2 launches"});
  test::expect_facts(report.table({.width = 200}), {" Do: " + advice + ".\n"});
}

// Earlier builds said ROOF? of what was faster than its roof.
TEST(Json, AVerdictThatIsNoMoreIsRead) {
  Json json = Json::parse(to_json(profile_of(device_report(), kRun)));
  json["rows"][0]["verdict"] = "ROOF?";
  EXPECT_EQ(read_profile(json.dump(), "F").rows[0].verdict.code, RowCode::unknown);
}

TEST(Json, DamageIsNamed) {
  const Json good = Json::parse(to_json(profile_of(device_report(), kRun)));
  const auto message = [](const std::string& text) {
    return test::message_of([&] { read_profile(text, "F"); }, Error::Kind::data);
  };
  EXPECT_EQ(message(good.dump()), "");
  for (const auto& [key, value] : good.items()) {
    Json bad = good;
    bad.erase(key);
    // which earlier builds did not write
    if (key != "memory" && key != "arena" && key != "card") {
      test::expect_facts(message(bad.dump()), {key});
    }
    bad[key] = Json::array({Json::object()});  // of no field's type
    test::expect_facts(message(bad.dump()), {key});
  }
  const auto changed = [&](const char* pointer, const Json& value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    return message(bad.dump());
  };
  test::expect_facts(changed("/rows/1/calls", "three"),
      {"rows[1].calls is \"three\", wanted an integer of 64 bits"});
  test::expect_facts(changed("/rows/1/kind", "operation"),
      {"rows[1].kind is \"operation\", wanted one of step, ann"});
  test::expect_facts(changed("/rows/1/samples", {1}), {"1 samples of 3 steps"});
  test::expect_facts(changed("/steps", Json::array()), {"it has no steps"});
  // Sums are of 64 bits.
  for (const char* number : {"/rows/1/samples/0", "/rows/0/flops", "/rows/0/launches",
           "/rows/1/calls", "/steps/0/ns", "/clean_us/0"}) {
    Json bad = good;
    bad["clean_us"] = {1.0};
    for (Json& row : bad["rows"]) row["samples"] = std::vector<int64_t>(good["steps"].size(), 1);
    EXPECT_EQ(message(bad.dump()), "");
    bad[Json::json_pointer(number)] = INT64_MAX;
    test::expect_facts(
        message(bad.dump()), {"its numbers add up to 9.2", ", wanted 9e+18 at most"});
    bad[Json::json_pointer(number)] = INT64_MIN;
    test::expect_facts(message(bad.dump()), {"its numbers add up to 9.2"});
    bad[Json::json_pointer(number)] = int64_t{4'000'000'000'000'000'000};
    const std::string text = bad.dump();
    ASSERT_EQ(message(text), "") << number;
    EXPECT_NE(diff(read_profile(text, "F"), read_profile(text, "F")), "");
  }
  test::expect_facts(message("{"), {"no JSON object"});
}

TEST(Diff, OfAProfileWithItselfShowsNoFactor) {
  Profile a = profile_of(device_report(), kRun);
  a.clean_us = {190, 191, 189, 192, 188, 190};
  const std::string text = diff(a, a);
  test::expect_facts(text, {"clean step 190.0 -> 190.0 us, no difference shown [1.000,1.000]\n"});
  EXPECT_EQ(text.find("x ["), std::string::npos) << text;
}

// B takes half the time.
std::pair<Profile, Profile> slow_and_fast() {
  Profile a;
  a.title = "CPU eager";
  a.workload = "w";
  a.seed = "1";
  a.mode = "eager";
  a.batch = 64;
  a.threads = 1;
  Row row{.name = "linear", .calls = 8, .launches = 8, .cost = {.bytes_read = 8000}};
  for (int64_t step = 0; step < 8; ++step) {
    a.steps.push_back({.number = step, .t1 = 1000 + step, .launches = 1});
    row.samples.push_back(900 + step);
    row.self_ns += row.samples.back();
  }
  row.typical_ns = typical(row.samples);
  a.rows = {row};
  Profile b = a;
  for (StepSample& s : b.steps) s.t1 /= 2;
  for (int64_t& ns : b.rows[0].samples) ns /= 2;
  b.rows.push_back({.name = "only_b", .calls = 8, .launches = 8});
  return {a, b};
}

TEST(Diff, PairsStepsAndInverts) {
  const auto [a, b] = slow_and_fast();
  const std::string forth = diff(a, b), back = diff(b, a);
  test::expect_facts(forth, {"profiled step 1.003 -> 0.5015 us, 2.00x [2.00,2.00]\n"});
  test::expect_facts(back, {"profiled step 0.5015 -> 1.003 us, 0.50x [0.50,0.50]\n"});
  test::expect_facts(forth, {"linear             1 ->  1  0.9035 -> 0.4515  1.0 -> 1.0  2.00x "
                             "[2.00,2.00]\n"
                             "unattributed       - ->  1            - -> 0    - -> 0.0  -\n"
                             "TOTAL              1 ->  2  0.9035 -> 0.4515  1.0 -> 1.0\n"
                             "only B: only_b 0\n",
                                "step i with step i; the runs were not in turn"});
  Profile other = b;
  other.rows[0].calls /= 2;  // another number of calls is other work
  EXPECT_EQ(diff(a, other).find("1.0 -> 1.0  2.00x"), std::string::npos) << diff(a, other);
}

// As in the table's shares, a stall in one of the runs decides nothing.
TEST(Diff, ShowsTheTypicalStepAndNoStall) {
  auto [a, b] = slow_and_fast();
  b.rows[0].samples[3] += 1'000'000;
  b.rows[0].self_ns += 1'000'000;
  b.rows[0].typical_ns = typical(b.rows[0].samples);
  test::expect_facts(diff(a, b), {"0.9035 -> 0.4520"});
}

TEST(Diff, GivesNoFactorWhereNoneIsHonest) {
  const auto [a, good] = slow_and_fast();
  const auto reason = [&a = a](const Profile& b) {
    const std::string text = diff(a, b);
    EXPECT_EQ(text.find("2.00x"), std::string::npos) << text;
    return text.substr(
        text.find("no factor"), text.find('\n', text.find("no factor")) - text.find("no factor"));
  };
  const std::pair<const char*, std::function<void(Profile&)>> changes[] = {
      {"device cpu and cuda:0",
          [](Profile& p) {
            p.device = Device{Device::Type::cuda, 0};
          }},
      {"batch 64 and 128", [](Profile& p) { p.batch = 128; }},
      {"dtype f32 and bf16", [](Profile& p) { p.dtype = "bf16"; }},
      {"seed 1 and 2", [](Profile& p) { p.seed = "2"; }},
      {"workload w and v", [](Profile& p) { p.workload = "v"; }},
      {"threads 1 and 2", [](Profile& p) { p.threads = 2; }},
      {"B is INCOMPLETE: lost", [](Profile& p) { p.incomplete = {"lost"}; }},
      {"B: machine busy: no verdict; half of it.",
          [](Profile& p) {
            p.verdict = {StepCode::undecided, "machine busy: no verdict; half of it.", ""};
          }},
      {"B ran on the emulator, whose times mean nothing",
          [](Profile& p) {
            p.device = Device{Device::Type::simt, 0};
          }},
      {"8 against 7 samples", [](Profile& p) {
         p.steps.resize(7);
         for (Row& row : p.rows) row.samples.resize(row.samples.empty() ? 0 : 7);
       }}};
  for (const auto& [why, change] : changes) {
    Profile b = good;
    change(b);
    EXPECT_EQ(reason(b), str("no factor: ", why));
  }
}

TEST(Stacks, AddUpToTheSteps) {
  EXPECT_EQ(folded_stacks(cpu_report()),
      "step;Linear;linear 4000\n"
      "step;Linear;linear;kernel 24000\n"
      "step;matmul 2000\n"
      "step;matmul;kernel 18000\n"
      "step;q\"uo\\te,\\x0a\xff</script><!--\\x1b 12000\n");
  const std::string device = folded_stacks(device_report());
  test::expect_facts(device, {"step;linear;gemm_128x64 150000\n"});
  int64_t sum = 0;
  for (const std::string& line : test::lines_of(device))
    sum += std::stoll(line.substr(line.rfind(' ')));
  EXPECT_EQ(sum, device_report().timeline().busy_ns);  // nothing overlaps here
}

// A step's calls lie inside each other, and on a card its kernels have a lane of their own.
TEST(TypicalStep, IsOneStepCallByCall) {
  for (const Report& report : {cpu_report(), device_report()}) {
    const StepCalls calls = report.typical_step();
    EXPECT_EQ(double(calls.ns), median(report.step_ns()));
    std::vector<std::string> lanes{"host"};
    if (report.device != kCpu) lanes.push_back("device");
    EXPECT_EQ(calls.lanes, lanes);
    std::vector<StepCalls::Slice> open;  // by depth
    for (const StepCalls::Slice& slice : calls.slices) {
      EXPECT_LE(slice.t0 + slice.ns, calls.end);
      if (slice.lane > 0) continue;
      ASSERT_LE(size_t(slice.depth), open.size());
      open.resize(size_t(slice.depth));
      if (!open.empty()) {
        EXPECT_GE(slice.t0, open.back().t0) << slice.name;
        EXPECT_LE(slice.t0 + slice.ns, open.back().t0 + open.back().ns) << slice.name;
      }
      open.push_back(slice);
    }
  }
}

// A trace is packed in pieces of 1 MiB.
TEST(TraceFile, ATraceOfManyPiecesUnpacks) {
  const test::TempDir dir;
  const std::string folder = dir.path();
  std::string text;
  for (int n = 0; text.size() < 5'000'000; ++n) text += std::to_string(n * 2654435761u) + "\n";
  write_trace(folder + "/t", text);
  const std::string command = "gzip -dc " + folder + "/t.trace.json.gz >" + folder + "/t.json";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(text_of(folder + "/t.json") == text);
}

}  // namespace
}  // namespace sinter::profiler
