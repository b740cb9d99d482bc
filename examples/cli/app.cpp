#include "examples/cli/app.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/atomic_file.h"
#include "core/device/denormal.h"
#include "core/parallel.h"
#include "distributed/mpi.h"
#include "examples/cli/process.h"

namespace sinter::cli {
namespace {

std::string read_text(const std::string& path) {
  std::error_code ignored;
  SINTER_CHECK(!std::filesystem::is_directory(path, ignored), usage,
      cat("usage: cannot read the config: ", shown(path), "; it is a folder"));
  std::ifstream in(path, std::ios::binary);
  SINTER_CHECK(
      in, usage, cat("usage: cannot read the config: ", shown(path), "; ", std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

void add_common_flags(Flags& flags, CommonFlags& common) {
  flags.topic("every command", true);
  flags.word("device", common.device, "NAME",
      "cpu, cuda, cuda:N or simt; auto is cuda if usable, else cpu");
  flags.number(
      "threads", common.threads, 0, 4096, "threads of the CPU; 0 tries out what is fastest");
  flags.number("seed", common.seed, 0, UINT64_MAX, "of weights, order and dropout");
  flags.toggle("json", common.json, "the result as one JSON object on stdout");
  flags.toggle("quiet,q", common.quiet, "no progress, no notes");
  flags.toggle("verbose,v", common.verbose,
      "more: the model, the start, the libraries in use, the calls behind an internal error");
  flags.choice("color", common.color, {"auto", "always", "never"},
      "auto: on a terminal, unless NO_COLOR is set");
}

void App::add(
    std::string name, std::string summary, std::function<void(App& app, Command& command)> setup) {
  program_.commands.push_back({.name = std::move(name),
      .summary = std::move(summary),
      .setup = [this, setup = std::move(setup)](Command& command) {
        add_common_flags(command.flags, common_);
        not_saved(command.flags.word("config", config_, "FILE", "read flags from this TOML file"));
        not_saved(command.flags.toggle(
            "print-config", print_config_, "print all flags as such a file, and end"));
        setup(*this, command);
      }});
}

int App::main(int argc, char** argv) {
  guard_streams();
  set_flush_denormal(true);
  try {
    return run(argc, argv);
  } catch (...) {
    return report_current_exception(common_.color, common_.verbose);
  }
}

std::string build_name() {
#ifdef NDEBUG
  return fmt::format("sinter {}, compiler {}", kVersion, __VERSION__);
#else
  return fmt::format("sinter {}, compiler {}, with assertions", kVersion, __VERSION__);
#endif
}

int App::run(int argc, char** argv) {
  common_.command = program_.name;
  for (int i = 1; i < argc; ++i) common_.command += cat(" ", argv[i]);
  Command* const asked = read_words(program_, argc, argv);
  if (!asked) return 0;
  Command& command = *asked;
  const std::string call = program_.call_of(command);
  SINTER_CHECK(command.many_processes || distributed::launched_ranks() == 1, usage,
      cat("usage: ", call, " is one process: the launcher has started ",
          distributed::launched_ranks()),
      cat(call, " without mpirun"));
  const auto apply = [&](const std::string& text, const std::string& name, Source source) {
    apply_config(text, name, command.flags, command.name, program_.command_names(), source);
  };
  if (!config_.empty()) apply(read_text(config_), shown(config_), Source::file);
  if (command.preset) apply(command.preset(), "the preset", Source::preset);
  if (command.check) command.check();
  if (print_config_) {
    Output(Output::Options{}).result_text(command.flags.config(command.name));
    return 0;
  }
  Output out(common_);
  if (common_.threads > 0) set_num_threads(int(common_.threads));
  if (common_.threads > available_cores()) {
    out.note("threads", "{} on {}: they take turns, which is slower than a thread for each core",
        common_.threads, count_of(available_cores(), "core"));
  }
  return command.run(out);
}

}  // namespace sinter::cli
