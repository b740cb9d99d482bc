#include "examples/cli/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/atomic_file.h"
#include "core/device/denormal.h"
#include "core/parallel.h"
#include "distributed/mpi.h"
#include "examples/cli/messages.h"
#include "examples/cli/signals.h"
#include "examples/cli/text.h"

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

void print(std::string_view text) { Output(Output::Options{}).result_text(text); }

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
      "more: the model, the libraries in use, the calls behind an internal error");
  flags.choice("color", common.color, {"auto", "always", "never"},
      "auto: on a terminal, unless NO_COLOR is set");
}

Command& App::add(std::string name, std::string summary) {
  Command& command = commands_.emplace_back(Command{std::move(name), std::move(summary)});
  add_common_flags(command.flags, common_);
  not_saved(command.flags.word("config", config_, "FILE", "read flags from this TOML file"));
  not_saved(command.flags.toggle(
      "print-config", print_config_, "print all flags as such a file, and end"));
  not_saved(command.flags.toggle("help,h", help_, "this text"));
  not_saved(command.flags.toggle("version", version_, "the version"));
  return command;
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

std::vector<std::string> App::command_names() const {
  std::vector<std::string> names;
  for (const Command& command : commands_) names.push_back(command.name);
  return names;
}

std::string build_name() {
#ifdef NDEBUG
  return fmt::format("sinter {}, compiler {}", kVersion, __VERSION__);
#else
  return fmt::format("sinter {}, compiler {}, with assertions", kVersion, __VERSION__);
#endif
}

int App::run(int argc, char** argv) {
  std::vector<std::string> words = words_of(argc, argv);
  common_.command = cat(name_, words.empty() ? "" : " ", join(words, " "));
  if (!is_one_command() && !words.empty()) {
    if (words[0] == "--help" || words[0] == "-h") {
      print(help());
      return 0;
    }
    if (words[0] == "--version") {
      print(version_text_);
      return 0;
    }
  }
  Command& command = take_command(words);
  take_words(words, command.flags, command.name, call_of(command), command.inputs);
  if (help_ || version_) {
    print(help_ ? help(command) : version_text_);
    return 0;
  }
  SINTER_CHECK(command.many_processes || distributed::launched_ranks() == 1, usage,
      cat("usage: ", call_of(command), " is one process: the launcher has started ",
          distributed::launched_ranks()),
      cat(call_of(command), " without mpirun"));
  merge(command);
  if (command.check) command.check();
  if (print_config_) {
    print(command.flags.config(command.name));
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

// The first word, which it takes away, names the command, unless there is only one.
Command& App::take_command(std::vector<std::string>& words) {
  if (is_one_command()) return commands_[0];
  const std::vector<std::string> names = command_names();
  SINTER_CHECK(!words.empty(), usage, cat("usage: no command given; allowed ", join(names)),
      cat(name_, " --help says what each does"));
  const std::string word = words[0];
  SINTER_CHECK(!word.starts_with('-'), usage,
      cat("usage: flag before the command: ", escaped(word)), cat(name_, " COMMAND [flags]"));
  const auto found = std::ranges::find(names, word);
  SINTER_CHECK(found != names.end(), usage,
      cat("usage: unknown command: ", escaped(word), "; ", nearest_or_all(word, names)),
      cat(name_, " --help lists the commands"));
  words.erase(words.begin());
  return commands_[size_t(found - names.begin())];
}

void App::merge(Command& command) {
  if (!config_.empty())
    apply_config(read_text(config_), shown(config_), command.flags, command.name, command_names());
  for (Flag& flag : command.flags.all()) {
    const char* value = flag.variable ? std::getenv(flag.variable) : nullptr;
    if (value && *value) Flags::set(flag, value, Source::environment, cat(" in ", flag.variable));
  }
  if (!command.preset) return;
  for (const auto& [name, value] : command.preset())
    Flags::set(*command.flags.find(name), value, Source::preset, " in the preset");
}

std::string App::help() const {
  std::string out =
      wrapped("", summary_, 0) + fmt::format("\nusage: {} COMMAND [flags]\n\n", name_);
  for (const Command& command : commands_)
    out += wrapped(fmt::format("  {:<10} ", command.name), command.summary, 13);
  return out + fmt::format("\n{} COMMAND --help lists the flags of a command.\n", name_);
}

std::string App::help(const Command& command) const {
  return wrapped("", command.summary, 0) +
         fmt::format("\nusage: {}{} [flags]\n", call_of(command),
             command.inputs ? " " + command.inputs_name : "") +
         flag_lines(command.flags);
}

}  // namespace sinter::cli
