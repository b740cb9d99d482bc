// diff A.json B.json: what changed between two profiles, ours or PyTorch's. diff RUN RUN: where two
// runs of train --fingerprint part.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run.h"
#include "core/json.h"
#include "data/bytes.h"
#include "profiler/join.h"

namespace sinter::cli {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 30;

// The whole file, gzip unpacked.
std::string text_of_profile(const std::string& path) {
  ByteSource source(path);
  const std::vector<uint8_t> bytes = source.read_up_to(kLargest + 1);
  SINTER_CHECK(bytes.size() <= kLargest, data,
      str("data: too large: ", source.name(), "; over ", cli::bytes(kLargest)));
  return {bytes.begin(), bytes.end()};
}

int diff_runs(const std::vector<std::string>& runs, Output& out) {
  const auto file = [](const std::string& run) {
    const std::string name = run + "/" + kPrintsFile;
    SINTER_CHECK(std::filesystem::exists(name), data,
        str("data: no fingerprints in the run: ", escaped(run)),
        program_name() + " train --fingerprint keeps them");
    return name;
  };
  const measure::Parting parting = measure::parting(file(runs[0]), file(runs[1]));
  for (const auto& [label, text] : parting.lines()) out.result(label, text);
  if (parting.parts_by_nature())
    out.result("next", program_name() + " compare --blame holds each op against f64");
  out.json("sinter.parting/1", parting);
  return 0;
}

int run_diff(const std::vector<std::string>& inputs, profiler::DiffOptions options, Output& out) {
  SINTER_CHECK(inputs.size() == 2, usage,
      str("usage: diff takes two profiles, given ", inputs.size()),
      str(program_name(),
          " diff A.json B.json, as --profile=json or PyTorch's profiler writes them"));
  if (std::filesystem::is_directory(inputs[0]) || std::filesystem::is_directory(inputs[1]))
    return diff_runs(inputs, out);
  const auto read = [](const std::string& file) {
    return profiler::read_profile_or_trace(text_of_profile(file), file);
  };
  const profiler::Profile a = read(inputs[0]), b = read(inputs[1]);
  const std::string all = profiler::diff(a, b, options);
  options.width = table_width();
  out.result_text(profiler::diff(a, b, options));
  if (!options.same_work && (a.workload.empty() || b.workload.empty()))
    out.note("diff", "--same-work gives factors, if you know that both did the same");
  out.json("sinter.diff/1", {{"a", inputs[0]}, {"b", inputs[1]}, {"text", all}});
  return 0;
}

}  // namespace

void add_diff(App&, Command& command) {
  static std::vector<std::string> inputs;
  static profiler::DiffOptions options;
  command.inputs = &inputs;
  command.inputs_name = "A.json B.json";
  command.flags.topic("table");
  command.flags.toggle("same-work", options.same_work,
      "give factors although a trace of PyTorch does not say what it ran");
  command.flags.toggle("group-by-input-shape", options.by_shape, "a row per shape");
  command.run = [](Output& out) { return run_diff(inputs, options, out); };
}

}  // namespace sinter::cli
