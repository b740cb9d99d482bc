// Profile: what the exports keep of a Report: plain numbers and names, no records. The JSON file is
// exactly this, written and read back; `diff` reads nothing else. Times are sums over the active
// steps in integer ns, as in Row; on the emulator, whose times mean nothing, 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/report.h"
#include "profiler/stats.h"

namespace sinter::profiler {

// What a report does not know of its run.
struct RunFacts {
  std::string
      workload{};  // "mlp 784-256-128-10 relu, adam": what was run; equal text, comparable runs
  std::string command{}, build{}, seed{};
  int64_t batch = 0;  // 0: not said
};

struct ProfileRow {
  std::string name{}, shapes{}, kind{}, role{}, made_of{}, verdict{}, evidence{};
  int64_t calls = 0, launches = 0, flops = 0, bytes_read = 0, bytes_written = 0;
  int64_t unproved = 0;  // of the launches: library calls that may run several kernels
  int64_t self_ns = 0, total_ns = 0, kernel_ns = 0;  // on the host
  std::optional<int64_t> device_ns{};                // empty on cpu, and where nothing was timed
  std::optional<double> pred_ns{},
      roof{};  // roof: the larger share of the two roofs, 1 = all of it
  std::vector<int64_t>
      samples{};  // self ns of each active step: on the device if device_ns is there

  int64_t bytes() const { return bytes_read + bytes_written; }
  int64_t judged_ns() const { return device_ns.value_or(self_ns); }
  bool operator==(const ProfileRow&) const = default;
};

struct ProfileStep {
  int64_t number = 0, round = 0, ns = 0, launches = 0, api_calls = 0, copies = 0, allocs = 0;
  bool operator==(const ProfileStep&) const = default;
};

struct ProfileKernel {
  std::string name{}, kind{}, source{};
  int64_t launches = 0, ns = 0;
  bool operator==(const ProfileKernel&) const = default;
};

struct ProfileRoofs {
  std::string key{};
  double gemm_flops = 0, copy_bytes = 0, floor_ns = 0;  // a second
  bool in_cache = false;
  bool operator==(const ProfileRoofs&) const = default;
};

struct ProfileVerdict {
  std::string code{}, evidence{}, advice{};
  bool operator==(const ProfileVerdict&) const = default;
};

// Where the window went on the device, ns: the idle parts and busy add up to window.
struct ProfileIdle {
  int64_t window_ns = 0, busy_ns = 0, data_ns = 0, sync_ns = 0, host_ns = 0, gap_ns = 0;
  bool operator==(const ProfileIdle&) const = default;
};

struct Profile {
  std::string title{};
  std::string workload{}, command{}, build{}, seed{}, device{}, mode{}, rules{}, dtype{}, source{},
      source_why{};
  int64_t batch = 0, threads = 0;
  int64_t wait = 0, warmup = 0, active = 0, repeat = 0;
  std::optional<ProfileRoofs> roofs{};
  double scope_ns = 0, event_ns = 0;
  int64_t axis_ns = -1, dropped = 0, invalid = 0, unproved = 0;
  double sm_mhz = 0, sm_standard_mhz = 0;  // 0: not read
  ProfileVerdict verdict{};
  std::optional<ProfileIdle> idle{};
  int64_t memory_peak = 0;
  std::string
      memory_peak_op{};  // the innermost op that was going on when memory in use was highest
  std::vector<double> clean_us{};
  std::vector<ProfileStep> steps{};
  std::vector<ProfileRow> rows{};
  std::vector<ProfileKernel> kernels{};
  std::vector<std::string> incomplete{}, notes{};

  bool operator==(const Profile&) const = default;
};

Profile make_profile(const Report& report, const RunFacts& run);

// Eager and fused side by side, as capture's ledger has them; the exports cannot see capture.
struct ComparedRow {
  std::string fused{}, row{}, eager{},
      ratio{};  // "linear_act x2", "linear_act", "linear x2, relu x2", "1.45x [1.41,1.49]" or ""
  std::vector<std::string> from{};               // names of the eager rows: "linear", "relu"
  std::optional<double> eager_us{}, fused_us{};  // of a step
  int64_t eager_launches = 0, fused_launches = 0, eager_bytes = 0, fused_bytes = 0;
};
struct Comparison {
  std::string headline{};  // "1402.1 -> 1156.9 us = 1.21x [1.19,1.23]"
  std::vector<ComparedRow> rows{};
  std::vector<std::string> proof{};  // lines
};

// Fused against eager over batch x hidden.
struct SweepCell {
  int64_t batch = 0, hidden = 0;
  double eager_us = 0, fused_us = 0;
  Estimate ratio{};
};
struct Sweep {
  std::string title{}, crossover{};
  std::vector<int64_t> batch{}, hidden{};
  std::vector<SweepCell> cells{};
};

// sinter.profile/1 (docs/profile.schema.json), and back. Error (data) where the text is no profile;
// `file` is for the message.
std::string to_json(const Profile& profile);
Profile read_profile(const std::string& text, const std::string& file);
// A line of titles, then a line for each row; the last columns are the samples of the active steps.
std::string to_csv(const Profile& profile);
// What B changed against A: headline and rows, with the one statistic of stats.h. Rounds are paired
// with rounds where both have several, else steps with steps.
std::string diff(const Profile& a, const Profile& b);

}  // namespace sinter::profiler
