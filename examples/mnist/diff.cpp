// mnist diff A.json B.json: what changed between two profiles.
#include <nlohmann/json.hpp>

#include "data/bytes.h"
#include "examples/cli/text.h"
#include "examples/mnist/commands.h"
#include "profiler/profile.h"

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
  out.result_text(profiler::diff(a, b, cli::table_width()));
  out.json("sinter.diff/1", {{"a", inputs[0]}, {"b", inputs[1]}, {"text", profiler::diff(a, b)}});
  return 0;
}

}  // namespace

void add_diff(cli::App& app) {
  static std::vector<std::string> inputs;
  cli::Command& command = app.add(
      "diff", "Compares two profiles of --profile=json: the step and each row, B against A.");
  command.inputs = &inputs;
  command.inputs_name = "A.json B.json";
  command.run = [](cli::Output& out) { return run_diff(inputs, out); };
}

}  // namespace sinter::mnist
