// mnist diff A.json B.json: what changed between two profiles. mnist validate TRACE: is a trace
// what its readers rely on.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/bytes.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "profiler/profile.h"
#include "profiler/trace.h"

namespace sinter::mnist {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 30;

// The whole file, gzip unpacked.
std::string read_text(const std::string& path) {
  ByteSource source(path);
  const std::vector<uint8_t> bytes = source.read_up_to(kLargest + 1);
  SINTER_CHECK(bytes.size() <= kLargest, data,
      cat("data: too large: ", source.name(), "; over ", cli::bytes(kLargest)));
  return {bytes.begin(), bytes.end()};
}

int run_diff(const std::vector<std::string>& inputs, cli::Output& out) {
  SINTER_CHECK(inputs.size() == 2, usage,
      cat("usage: diff takes two profiles: ", inputs.size(), " are given"),
      "mnist diff A.json B.json, as --profile=json writes them");
  const profiler::Profile a = profiler::read_profile(read_text(inputs[0]), inputs[0]);
  const profiler::Profile b = profiler::read_profile(read_text(inputs[1]), inputs[1]);
  out.result_text(profiler::diff(a, b));
  out.json({{"schema", "sinter.diff/1"}, {"a", inputs[0]}, {"b", inputs[1]},
      {"text", profiler::diff(a, b)}});
  return 0;
}

int run_validate(const std::vector<std::string>& inputs, cli::Output& out) {
  SINTER_CHECK(inputs.size() == 1, usage,
      cat("usage: validate takes one trace: ", inputs.size(), " are given"),
      "mnist validate runs/last/profile.trace.json.gz");
  const profiler::TraceCheck check = profiler::validate_trace(read_text(inputs[0]));
  nlohmann::ordered_json problems = nlohmann::ordered_json::array();
  for (const profiler::TraceProblem& p : check.problems) {
    out.result(p.rule, escaped(p.what));
    problems.push_back({{"rule", p.rule}, {"what", p.what}});
  }
  const std::string counts = fmt::format("{} on {}, {}", cli::count_of(check.slices, "slice"),
      cli::count_of(check.lanes, "lane"), cli::count_of(check.flows / 2, "flow"));
  if (check.problems.empty()) out.result("ok", counts);
  out.json({{"schema", "sinter.validate/1"}, {"events", check.events}, {"slices", check.slices},
      {"lanes", check.lanes}, {"flow_ends", check.flows}, {"problems", std::move(problems)}});
  SINTER_CHECK(check.problems.empty(), check,
      cat("validate: not a sound trace: ", escaped(inputs[0]), "; the first: ",
          check.problems.empty()
              ? ""
              : check.problems[0].rule + ", " + escaped(check.problems[0].what)));
  return 0;
}

cli::Command& add_reader(cli::App& app, const char* name, const char* summary,
    const char* inputs_name, std::vector<std::string>& inputs,
    int (*run)(const std::vector<std::string>&, cli::Output&)) {
  cli::Command& command = app.add(name, summary);
  command.inputs = &inputs;
  command.inputs_name = inputs_name;
  command.run = [&inputs, run](cli::Output& out) { return run(inputs, out); };
  return command;
}

}  // namespace

void add_diff(cli::App& app) {
  static std::vector<std::string> inputs;
  add_reader(app, "diff",
      "Compares two profiles of --profile=json: the step and each row, B against A.",
      "A.json B.json", inputs, run_diff);
}

void add_validate(cli::App& app) {
  static std::vector<std::string> inputs;
  add_reader(app, "validate",
      "Checks a Chrome trace, raw or gzip: nesting, flows, order of launches, names.", "TRACE",
      inputs, run_validate);
}

}  // namespace sinter::mnist
