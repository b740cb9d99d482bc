// What the programs that run a training step share: the device it runs on, the flags of fusing, the
// files of --dump-graph; and the profiler's flags: which rows a table shows, which files are
// written, what is expected of the counts, and which conditions make a measurement one that is not
// to be trusted.
#pragma once

#include <functional>
#include <optional>

#include "capture/step.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "core/device/device.h"
#include "measure/exports.h"

namespace sinter::cli {

struct FusionFlags {
  std::string rules = "all";
  std::string measure = "auto";  // time the step with and without each fused group
  bool explain = false;
  std::string dump_graph;
  std::optional<bool> measures() const {
    return measure == "auto" ? std::nullopt : std::optional(measure == "on");
  }
};
void add_rules_flag(Flags& flags, std::string& rules);
// --rules, --measure, --explain, --dump-graph: what fusing does and shows.
void add_fusion_flags(Flags& flags, FusionFlags& fusion);

// The device of --device; the second value says why auto chose it. Throws device or not_built where
// it cannot be used.
std::pair<Device, std::string> choose_device(const std::string& name);
// Sets the number of threads: `asked`, or where that is 0 the one with which the step of
// make_step() is fastest by a short trial, which is kept for `work` (measure/threads.h; "": it is
// not); on a device all cores. Says what it did: "2 threads (tried 1: 2.1 ms/step, 2: 1.4 ms)", "2
// threads (kept)".
std::string choose_threads(int64_t asked, Device device, const std::string& work,
    const std::function<std::function<void()>()>& make_step);
// Of the emulator it is said once that its times are not those of any device.
void note_emulator(Device device, Output& out);

// As text, whole or not at all. Throws checkpoint where the file cannot be written.
void write_graph(const std::string& path, const capture::Graph& graph);
// The files of both graphs of a capture: step.txt gives step_eager.txt and step_fused.txt.
std::vector<std::string> graph_files(const std::string& path);

// launches==5, row:linear_act.launches==2, eager.launches==25, speedup>=1.5
struct Expectation {
  std::string text, key, row;  // key: "launches"; row: "linear_act", or ""
  bool eager = false;
  std::string relation;
  double wanted = 0;
};
std::vector<Expectation> parse_expectations(const std::string& text);

// incomplete, distortion>5%, noise>2%, throttle, roof
struct Distrust {
  std::string text, what;
  double percent = 0;
};
std::vector<Distrust> parse_distrust(const std::string& text);

struct ViewFlags {
  profiler::TableOptions table{};
  std::string expect, fail_on;
};
// Topic "table": --sort --rows --no-meta --filter --group-by-input-shape --group-by-module
// --columns --expect --fail-on; all checked at once.
void add_view_flags(Flags& flags, ViewFlags& view);

struct ExportFlags {
  std::string text;  // of --profile
  std::vector<std::string> formats;
  std::string name;  // empty: named after the case
  bool force = false;

  bool has(std::string_view format) const { return exports("").has(format); }
  // Of eager and fused.
  measure::Exports exports(const std::string& standard_name) const {
    return {name.empty() ? standard_name : name, formats, true, "usage: -o",
        "--force writes over it, -o NAME takes another name"};
  }
};
// --profile=FORMATS, which alone is the table.
Flag& add_profile_flag(Flags& flags, ExportFlags& files);
// Without --profile what is of its tables alone has no use: of those given on the command line,
// `others` have one of their own. Error: usage.
void check_table_flags(
    const Flags& flags, const ExportFlags& profile, const std::vector<std::string>& others = {});
// -o NAME --force
void add_output_flags(Flags& flags, ExportFlags& files);
// Before the run: one file that will be written. Error: usage.
void check_writable(const std::string& file, const char* flag, bool force);

// What was measured, for --expect and --fail-on. `only` is the run that plain keys speak of.
struct Measured {
  const profiler::Report* only = nullptr;
  const profiler::Report* eager = nullptr;      // compare's other run
  std::optional<profiler::Estimate> speedup{};  // with its interval, or nothing
  std::optional<double> distortion, noise;      // percent; nothing: not measured
};
// Throws untrusted (a --fail-on condition holds, or a time expectation cannot be decided), else
// check (an expectation is not met). `who` begins the message: "compare".
void check_view(const std::string& who, const ViewFlags& view, const Measured& m);

// Runs it with a search for NaN behind every op: "linear: the result is nan: .., in MLP /
// layers.0", of the first op that makes one; "" if there is none.
std::string first_nan(const std::function<void()>& run);

// The roofs of the device from the cache; measured now (and said so) if there are none. Nothing on
// simt.
std::optional<profiler::Roofs> roofs_for(Device device, Output& out);

}  // namespace sinter::cli
