#include "examples/cli/step.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/atomic_file.h"
#include "core/parallel.h"
#include "examples/cli/profile.h"
#include "measure/threads.h"

namespace sinter::cli {

void add_rules_flag(Flags& flags, std::string& rules) {
  flags
      .word("rules", rules, "LIST", "fusion rules: all, none, or NAME and -NAME from left to right",
          [&rules](const std::string& text) { rules = capture::RuleSet(text).text(); })
      .once = true;
}

void add_fusion_flags(Flags& flags, FusionFlags& fusion) {
  add_rules_flag(flags, fusion.rules);
  flags.choice("measure", fusion.measure, {"auto", "on", "off"},
      "on: keep a group unfused where its parts are shown to run faster here; auto: on cuda");
  not_saved(flags.toggle("explain", fusion.explain, "print what was fused, what was not, and why"));
  // Looked at now: the graph is written after all the work.
  const auto check = [](const std::string& file) { check_writable(file, "--dump-graph", true); };
  not_saved(
      flags.word("dump-graph", fusion.dump_graph, "FILE", "write the step's graph as text", check));
}

std::pair<Device, std::string> choose_device(const std::string& name) {
  if (name != "auto") return {Device::parse(name), ""};
  try {
    return {Device::parse("cuda"), "auto"};
  } catch (const Error& error) {
    return {kCpu, cat("auto: ", error.kind() == Error::Kind::not_built ? "this build has no CUDA"
                                                                       : error.message())};
  }
}

std::string choose_threads(
    int64_t asked, Device device, const std::function<std::function<void()>()>& make_step) {
  std::string tried;
  if (asked > 0) {
    set_num_threads(int(asked));
  } else if (device != kCpu) {
    set_num_threads(available_cores());
  } else {
    for (const auto& [n, us] : measure::try_threads(make_step()))
      tried += fmt::format("{}{}: {}{}", tried.empty() ? "" : ", ", n, cli::seconds(1e-6 * us),
          tried.empty() ? "/step" : "");
  }
  const std::string threads = count_of(num_threads(), "thread");
  return tried.empty() ? threads : fmt::format("{} (tried {})", threads, tried);
}

void note_emulator(Device device, Output& out) {
  if (device.type == Device::Type::simt)
    out.note("note", "simt runs CUDA kernels thread by thread on the CPU: its times mean nothing");
}

void write_graph(const std::string& path, const capture::Graph& graph) {
  write_file(path, capture::dump(graph));
}

Cost cost_of(const capture::Graph& graph) {
  Cost cost;
  for (const capture::Node& node : graph.nodes) cost += graph.cost(node);
  return cost;
}

void write_graphs(const std::string& path, const capture::Captured& captured) {
  const std::filesystem::path p(path);
  const auto named = [&](const char* suffix) {
    return (p.parent_path() / (p.stem().string() + suffix + p.extension().string())).string();
  };
  write_graph(named("_eager"), captured.recorded);
  write_graph(named("_fused"), captured.fused.graph);
}

}  // namespace sinter::cli
