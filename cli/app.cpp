#include "cli/app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/process.h"
#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/device/denormal.h"
#include "core/parallel.h"
#include "core/text_grid.h"
#include "distributed/mpi.h"

namespace sinter::cli {
namespace {

std::string read_text(const std::string& path) {
  std::error_code ignored;
  SINTER_CHECK(!std::filesystem::is_directory(path, ignored), usage,
      str("usage: cannot read the config: ", shown(path), "; it is a folder"));
  ClassicStream<std::ifstream> in(path, std::ios::binary);
  SINTER_CHECK(
      in, usage, str("usage: cannot read the config: ", shown(path), "; ", error_text(errno)));
  ClassicStream<std::ostringstream> text;
  text << in.rdbuf();
  return text.str();
}

constexpr size_t kWidth = 80;

std::string line_of(const CLI::Option* option) {
  constexpr size_t kColumn = 2 + 26;
  std::string left = "  --" + join(option->get_lnames(), ", --");
  for (const std::string& name : option->get_snames()) left += ", -" + name;
  const bool alone = option->get_expected_min() == 0;  // may it stand without a value?
  if (const std::string value = option->get_type_name(); !value.empty())
    left += alone ? "[=" + value + "]" : " " + value;
  if (left.size() >= kColumn) left += "\n" + std::string(kColumn, ' ');
  std::string help = option->get_description();
  if (const std::string standard = option->get_default_str(); !standard.empty())
    help += str(help.empty() ? "" : " ", alone ? "[alone: " : "[", standard, "]");
  left = fmt::format("{:<{}}", left, kColumn) + help;
  return wrapped(left.substr(0, left.find_last_not_of(' ') + 1), kWidth, kColumn) + "\n";
}

std::string lines_of(const CLI::App* topic) {
  std::string out;
  for (const CLI::Option* option : topic->get_options()) {
    const bool hidden = option->get_group().empty();
    if (!hidden) out += line_of(option);
  }
  return out;
}

// The flags by topic; of a program with several commands its commands.
std::string help_of(const CLI::App* app, const std::string& call, CLI::AppFormatMode) {
  const auto is_command = [](const CLI::App* part) { return !part->get_name().empty(); };
  const std::string summary = app->get_description();
  std::string out =
      wrapped(summary, kWidth, 0) + (summary.empty() ? "" : "\n\n") + "usage: " + call;
  if (const std::vector<const CLI::App*> commands = app->get_subcommands(is_command);
      !commands.empty()) {
    out += " COMMAND [flags]\n\n";
    for (const CLI::App* command : commands) {
      const std::string name = fmt::format("  {:<10} ", command->get_name());
      out += wrapped(name + command->get_description(), kWidth, name.size()) + "\n";
    }
    return out + fmt::format("\n{} COMMAND --help lists the flags of a command.\n", call);
  }
  for (const CLI::Option* inputs : app->get_options(&CLI::Option::get_positional))
    out += " " + inputs->get_single_name();
  out += " [flags]\n";
  for (const CLI::App* topic : app->get_subcommands({}))
    out += "\n" + topic->get_group() + "\n" + lines_of(topic);
  return out + lines_of(app);  // --help and --version
}

// What was given for a flag. CLI11 takes the next word as the value, whatever it is.
void take(Flag& flag, const std::vector<std::string>& values, const std::string& hint) {
  SINTER_CHECK(!flag.once || values.size() == 1, usage,
      str("usage: ", flag.shown(), " is a list, given ", values.size(),
          " times: ", escaped(join(values, " and "))),
      str("one list, as in ", flag.shown(), " ", escaped(values.back())));
  SINTER_CHECK(flag.value.empty() || !values.back().starts_with("--"), usage,
      str("usage: ", flag.shown(), " needs a value: the next word is ", escaped(values.back())),
      hint);
  Flags::set(flag, values.back(), Source::command_line);
}

// A topic is a group of options; that of every command is the last, as in the help.
void add_options(
    CLI::App& app, Command& command, const std::string& hint, const std::string& version) {
  app.set_help_flag();  // or each group gets one
  CLI::App* topic = nullptr;
  for (const bool global : {false, true}) {
    for (Flag& flag : command.flags.all()) {
      if (flag.global != global) continue;
      if (!topic || topic->get_group() != flag.topic) topic = app.add_option_group(flag.topic);
      CLI::Option* option = topic->add_option(
          flag.names,
          [&flag, hint](const std::vector<std::string>& values) {
            take(flag, values, hint);
            return true;
          },
          flag.help);
      option->type_name(flag.value)
          ->default_str(flag.bare_value.empty() ? flag.standard : flag.bare_value)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      if (flag.hidden) option->group("");
      if (flag.variable) option->envname(flag.variable);
      if (flag.value.empty()) {
        option->expected(0);
      } else if (!flag.bare_value.empty()) {
        option->expected(0, 1);
      }
    }
  }
  if (command.inputs) app.add_option(command.inputs_name, *command.inputs)->group("");
  app.set_help_flag("--help,-h", "this text");
  app.set_version_flag("--version", version, "the version");
}

[[noreturn]] void refuse_word(
    const std::string& word, const Command& command, const std::string& hint) {
  const bool has_from = std::ranges::count(command.flags.names(), "from") > 0;
  SINTER_CHECK(word.starts_with('-'), usage,
      str("usage: unexpected word: ", escaped(word), "; ", command.name, " takes flags alone"),
      has_from ? "--from RUN names a run or a model; " + hint : hint);
  const std::string flag = word.substr(0, word.find('='));
  std::string known = "--help,-h,--version";
  for (const Flag& other : command.flags.all()) known += other.hidden ? "" : "," + other.names;
  const std::string instead = in_place_of(flag),
                    nearest = instead.empty() ? nearest_word(flag, parts_of(known, ",")) : "";
  throw Error(Error::Kind::usage,
      str("usage: unknown flag: ", escaped(flag), " for ", command.name,
          nearest.empty() ? "" : "; nearest is " + nearest),
      instead.empty() ? hint : instead);
}

void print(std::string_view text) { Output(Output::Options{}).result_text(text); }

}  // namespace

std::vector<std::string> App::command_names() const {
  std::vector<std::string> names;
  for (const Command& command : commands_) names.push_back(command.name);
  return names;
}

Command* App::read_words(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (std::string& word : words) {
    if (word == "--") break;
    const auto end = std::find(word.begin(), word.end(), '=');
    if (word.starts_with("--")) std::replace(word.begin(), end, '_', '-');
  }
  const bool one = is_one_command();
  if (!one && !words.empty() && words[0] == "help") {  // "help train" is "train --help"
    words.erase(words.begin());
    words.push_back("--help");
  }
  const std::string version = str(name_, " ", kVersion, git_id_.empty() ? "" : ", ", git_id_, "\n");
  CLI::App root(one ? commands_[0].summary : summary_, name_);
  root.formatter_fn(help_of);
  root.allow_extras();
  root.require_subcommand(0, 1);
  root.set_help_flag("--help,-h");
  root.set_version_flag("--version", version);
  Command* asked = nullptr;
  const std::vector<std::string> names = command_names();
  const bool named = !words.empty() && std::ranges::find(names, words[0]) != names.end();
  if (!one && !words.empty() && !words[0].starts_with('-'))
    check_word("unknown command", words[0], names, "", str(name_, " --help lists the commands"));
  for (Command& command : commands_) {
    if (named && command.name != words[0]) continue;
    CLI::App* app = one ? &root : root.add_subcommand(command.name, command.summary);
    // The options of the command that is asked for alone: to make them all takes milliseconds.
    app->preparse_callback([&, app](size_t) {
      asked = &command;
      command.setup(command);
      add_options(*app, command, hint_of(command), version);
    });
  }
  try {
    root.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    print(root.help());
    return nullptr;
  } catch (const CLI::CallForVersion&) {
    print(version);
    return nullptr;
  } catch (const CLI::ArgumentMismatch& error) {  // "--epochs: 1 required N missing"
    const std::string said = error.what();
    throw Error(Error::Kind::usage,
        str("usage: ", said.substr(0, said.find(": ")), " needs a value: nothing follows it"),
        hint_of(*asked));
  } catch (const CLI::ConversionError&) {  // all other texts are converted by take()
    throw Error(Error::Kind::usage, "usage: --version takes no value: one is given");
  }
  if (!one) {
    SINTER_CHECK(!words.empty(), usage, str("usage: no command given; allowed ", join(names)),
        str(name_, " --help says what each does"));
    SINTER_CHECK(!words[0].starts_with('-'), usage,
        str("usage: flag before the command: ", escaped(words[0])), str(name_, " COMMAND [flags]"));
  }
  std::vector<std::string> others = root.remaining(true);
  std::erase(others, "--");
  if (!others.empty()) refuse_word(others[0], *asked, hint_of(*asked));
  return asked;
}

void add_common_flags(Flags& flags, CommonFlags& common) {
  flags.topic("every command", true);
  flags.word("device", common.device, "NAME",
      "cpu, cuda, cuda:N or simt; auto is cuda if usable, else cpu");
  flags.number("threads", common.threads, 0, kMostThreads,
      "threads of the CPU; 0 tries out what is fastest");
  flags.number("seed", common.seed, 0, UINT64_MAX, "of weights, order and dropout");
  flags.toggle("json", common.json, "the result as one JSON object on stdout");
  flags.toggle("quiet,q", common.quiet, "no progress, no notes");
  flags.toggle("verbose,v", common.verbose,
      "more: the model, the libraries in use, the calls behind an internal error");
  flags.choice("color", common.color, {"auto", "always", "never"},
      "auto: on a terminal, unless NO_COLOR is set");
}

void App::add(
    std::string name, std::string summary, std::function<void(App& app, Command& command)> setup) {
  commands_.push_back({.name = std::move(name),
      .summary = std::move(summary),
      .setup = [this, setup = std::move(setup)](Command& command) {
        add_common_flags(command.flags, common_);
        not_saved(command.flags.word("config", config_, "FILE", "read flags from this TOML file"));
        not_saved(command.flags.toggle(
            "print-config", print_config_, "print all flags as such a file, and end"));
        setup(*this, command);
      }});
}

std::string App::meaning_of(const std::string& word) {
  std::string meaning;
  std::vector<std::string> commands;  // that have the flag
  for (Command& command : commands_) {
    if (command.name == word) return "A command: " + command.summary;
    if (command.flags.all().empty()) command.setup(command);
    for (const Flag& flag : command.flags.all()) {
      const std::vector<std::string_view> names = parts_of(flag.names, ","),
                                          values = parts_of(flag.value, "|");
      const bool is_it = std::ranges::any_of(names, [&word](std::string_view name) {
        return name == word ||
               name.substr(std::min<size_t>(name.find_first_not_of('-'), 2)) == word;
      });
      if (!is_it && (values.size() < 2 || std::ranges::find(values, word) == values.end()))
        continue;
      const std::string text = str(join(names), flag.value.empty() ? "" : " " + flag.value,
          flag.help.empty() ? "" : ": ", flag.help);
      if (meaning.empty()) meaning = text;
      if (meaning == text) commands.push_back(command.name);
    }
  }
  return meaning.empty() ? "" : str("A flag: ", meaning, ". Of ", join(commands), ".");
}

int App::main(int argc, char** argv) {
  guard_process();
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
  common_.command = name_;
  for (int i = 1; i < argc; ++i) common_.command += str(" ", argv[i]);
  Command* const asked = read_words(argc, argv);
  if (!asked) return 0;
  Command& command = *asked;
  const std::string call = call_of(command);
  SINTER_CHECK(command.many_processes || distributed::launched_ranks() == 1, usage,
      str("usage: ", call, " is one process: the launcher has started ",
          distributed::launched_ranks()),
      str(call, " without mpirun"));
  const auto apply = [&](const std::string& text, const std::string& name, Source source) {
    apply_config(text, name, command.flags, command.name, command_names(), source);
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
