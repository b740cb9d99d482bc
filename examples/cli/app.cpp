#include "examples/cli/app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/atomic_file.h"
#include "core/parallel.h"
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
  flags.integer(
      "threads", common.threads, 0, 4096, "threads of the CPU; 0 tries out what is fastest");
  flags.seed("seed", common.seed, "of weights, order and dropout");
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
  command.flags.word("config", config_, "FILE", "read flags from this TOML file").saved = false;
  command.flags.toggle("print-config", print_config_, "print all flags as such a file, and end")
      .saved = false;
  command.flags.toggle("help,h", help_, "this text").saved = false;
  command.flags.toggle("version", version_, "the version").saved = false;
  return command;
}

int App::main(int argc, char** argv) {
  guard_streams();
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

namespace {

// CLI11 only splits the words: conversion, ranges, ranks and suggestions are ours, and it never
// sees a config file.
struct Splitter {
  struct Part {
    CLI::App* app;
    std::vector<CLI::Option*> options;  // in the order of the command's flags
    std::vector<std::string> inputs;
  };
  CLI::App root;
  std::deque<Part> parts;  // in the order of the commands
  bool help = false, version = false;

  explicit Splitter(std::deque<Command>& commands) {
    root.set_help_flag();
    root.allow_extras();
    root.add_flag("-h,--help", help);
    root.add_flag("--version", version);
    for (const Command& command : commands) {
      Part& part = parts.emplace_back(Part{root.add_subcommand(command.name), {}, {}});
      part.app->set_help_flag();
      part.app->allow_extras();
      for (const Flag& flag : command.flags.all()) {
        const std::string names =
            flag.shown() + (flag.other.empty() ? "" : "," + join(flag.other, ","));
        CLI::Option* option =
            flag.value.empty() ? part.app->add_flag(names) : part.app->add_option(names);
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
        if (!flag.bare_value.empty()) option->expected(0, 1);
        part.options.push_back(option);
      }
      if (command.inputs) part.app->add_option("inputs", part.inputs);
    }
  }
};

void take_values(
    Flags& flags, const std::vector<CLI::Option*>& options, const std::string& help_hint) {
  size_t i = 0;
  for (Flag& flag : flags.all()) {
    const std::vector<std::string>& values = options[i++]->results();
    if (values.empty()) continue;
    SINTER_CHECK(!flag.once || values.size() == 1, usage,
        cat("usage: ", flag.shown(), " is a list, given ", values.size(),
            " times: ", escaped(join(values, " and "))),
        cat("one list, as in ", flag.shown(), " ", escaped(values.back())));
    // CLI11 takes the next word as the value, whatever it is; and an optional value left out
    // arrives as "true" or empty.
    std::string value = values.back();
    if (!flag.bare_value.empty() && (value.empty() || value == "true")) value = flag.bare_value;
    SINTER_CHECK(flag.value.empty() || !value.starts_with("--"), usage,
        cat("usage: ", flag.shown(), " needs a value: the next word is ", escaped(value)),
        help_hint);
    Flags::set(flag, value, Source::command_line);
  }
}

// What CLI11 could not place.
void refuse(
    const std::vector<std::string>& words, const Command& command, const std::string& help_hint) {
  if (words.empty()) return;
  const std::string name = words[0].substr(0, words[0].find('='));
  SINTER_CHECK(name.starts_with('-'), usage,
      cat("usage: unexpected word: ", escaped(words[0]), " for ", command.name,
          "; a flag is wanted"),
      help_hint);
  std::vector<std::string> known;
  for (const Flag& flag : command.flags.all()) {
    known.push_back(flag.shown());
    known.insert(known.end(), flag.other.begin(), flag.other.end());
  }
  const std::string nearest = nearest_word(name, known);
  throw Error(Error::Kind::usage,
      cat("usage: unknown flag: ", escaped(name), " for ", command.name,
          nearest.empty() ? "" : "; nearest is " + nearest),
      help_hint);
}

}  // namespace

std::string build_name() {
#ifdef NDEBUG
  return fmt::format("sinter {}, compiler {}", kVersion, __VERSION__);
#else
  return fmt::format("sinter {}, compiler {}, with assertions", kVersion, __VERSION__);
#endif
}

int App::run(int argc, char** argv) {
  Splitter splitter(commands_);
  std::vector<char*> words_given(argv, argv + argc);
  if (is_one_command())
    words_given.insert(words_given.begin() + (argc > 0), commands_[0].name.data());
  try {
    splitter.root.parse(static_cast<int>(words_given.size()), words_given.data());
  } catch (const CLI::ParseError& error) {
    throw Error(Error::Kind::usage, cat("usage: ", escaped(error.what())), cat(name_, " --help"));
  }
  const auto is_parsed = [](const Splitter::Part& part) { return part.app->parsed(); };
  const auto which = std::find_if(splitter.parts.begin(), splitter.parts.end(), is_parsed);
  const bool none = which == splitter.parts.end();
  const std::vector<std::string> words = splitter.root.remaining();
  if (none && splitter.help) return print(help()), 0;
  if (none && splitter.version) return print(version_text_), 0;
  SINTER_CHECK(!none || !words.empty(), usage,
      cat("usage: no command given; allowed ", join(command_names())),
      cat(name_, " --help says what each does"));
  SINTER_CHECK(words.empty() || !words[0].starts_with('-'), usage,
      cat("usage: flag before the command: ", escaped(words[0])), cat(name_, " COMMAND [flags]"));
  SINTER_CHECK(words.empty(), usage,
      cat("usage: unknown command: ", escaped(words[0]), "; ",
          nearest_or_all(words[0], command_names())),
      cat(name_, " --help lists the commands"));
  Command& command = commands_[static_cast<size_t>(which - splitter.parts.begin())];
  SINTER_CHECK(std::count_if(which, splitter.parts.end(), is_parsed) == 1, usage,
      cat("usage: two commands given: one at a time, first ", command.name));

  const std::string help_hint = cat(call_of(command), " --help lists the flags");
  take_values(command.flags, which->options, help_hint);
  refuse(which->app->remaining(), command, help_hint);
  common_.command = name_;
  for (int i = 1; i < argc; ++i) common_.command += cat(" ", argv[i]);
  if (command.inputs) *command.inputs = which->inputs;
  if (help_) return print(help(command)), 0;
  if (version_) return print(version_text_), 0;
  merge(command);
  if (command.check) command.check();
  if (print_config_) return print(command.flags.config(command.name)), 0;
  Output out({.json = common_.json,
      .quiet = common_.quiet,
      .verbose = common_.verbose,
      .color = common_.color});
  if (common_.threads > 0) set_num_threads(static_cast<int>(common_.threads));
  if (common_.threads > available_cores()) {
    out.note("threads",
        fmt::format("{} on {}: they take turns, which is slower than a thread for each core",
            common_.threads, count_of(available_cores(), "core")));
  }
  return command.run(out);
}

void App::merge(Command& command) {
  if (!config_.empty())
    apply_config(read_text(config_), shown(config_), command.flags, command.name, command_names());
  for (Flag& flag : command.flags.all()) {
    const char* value = flag.variable ? std::getenv(flag.variable) : nullptr;
    if (value && *value) Flags::set(flag, value, Source::environment, cat(" in ", flag.variable));
  }
  if (!command.preset || command.preset->empty()) return;
  for (const auto& [name, value] : command.presets.at (*command.preset)())
    Flags::set(
        *command.flags.find(name), value, Source::preset, cat(" in preset ", *command.preset));
}

namespace {

// `start` and `text` in lines of at most 80 columns, all but the first indented.
std::string wrapped(std::string start, std::string_view text, size_t indent) {
  size_t column = start.size() - (start.rfind('\n') + 1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const bool fresh = column <= indent;
    if (!fresh && column + 1 + word.size() > 80)
      start += "\n" + std::string(indent, ' '), column = indent;
    else if (!fresh)
      start += ' ', ++column;
    start += word;
    column += word.size();
  }
  return start + "\n";
}

}  // namespace

std::string App::help() const {
  std::string out =
      wrapped("", summary_, 0) + fmt::format("\nusage: {} COMMAND [flags]\n\n", name_);
  for (const Command& command : commands_)
    out += wrapped(fmt::format("  {:<10} ", command.name), command.summary, 13);
  return out + fmt::format("\n{} COMMAND --help lists the flags of a command.\n", name_);
}

std::string App::help(const Command& command) const {
  std::string out =
      wrapped("", command.summary, 0) + fmt::format("\nusage: {}{} [flags]\n", call_of(command),
                                            command.inputs ? " " + command.inputs_name : "");
  std::vector<std::string> topics;  // the general ones last
  for (const Flag& flag : command.flags.all()) {
    if (std::find(topics.begin(), topics.end(), flag.topic) == topics.end())
      topics.push_back(flag.topic);
  }
  std::rotate(topics.begin(), topics.begin() + 1, topics.end());
  for (const std::string& topic : topics) {
    out += fmt::format("\n{}\n", topic);
    for (const Flag& flag : command.flags.all()) {
      if (flag.topic != topic || flag.hidden) continue;
      std::string left = "  " + flag.shown();
      for (const std::string& other : flag.other) left += ", " + other;
      if (!flag.value.empty())
        left += flag.bare_value.empty() ? " " + flag.value : "[=" + flag.value + "]";
      if (left.size() > 27) left += "\n" + std::string(28, ' ');
      const std::string standard = flag.standard.empty() ? "" : "[" + flag.standard + "]";
      out += wrapped(fmt::format("{:<28}", left),
          flag.help + (flag.help.empty() || standard.empty() ? "" : " ") + standard, 28);
    }
  }
  return out;
}

}  // namespace sinter::cli
