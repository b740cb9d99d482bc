// What the programs that run a training step share: the device it runs on, the flags of fusing, and
// the files of --dump-graph.
#pragma once

#include <functional>

#include "capture/step.h"
#include "core/device/device.h"
#include "examples/cli/flags.h"
#include "examples/cli/output.h"

namespace sinter::cli {

struct FusionFlags {
  std::string rules = "all";
  std::string measure = "auto";  // time each fused group against its parts
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
// make_step() is fastest by a short trial (measure/threads.h); on a device all cores. Says what it
// did: "2 threads (tried 1: 2.1 ms/step, 2: 1.4 ms)".
std::string choose_threads(
    int64_t asked, Device device, const std::function<std::function<void()>()>& make_step);
// Of the emulator it is said once that its times are not those of any device.
void note_emulator(Device device, Output& out);

// As text, whole or not at all. Throws checkpoint where the file cannot be written.
void write_graph(const std::string& path, const capture::Graph& graph);
// Of all its launches.
Cost cost_of(const capture::Graph& graph);
// Both graphs of a capture: step.txt gives step_eager.txt and step_fused.txt.
void write_graphs(const std::string& path, const capture::Captured& captured);

}  // namespace sinter::cli
