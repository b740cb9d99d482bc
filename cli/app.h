// A program of several commands: `program COMMAND [flags]`; or of one that bears its own name:
// `geglu [flags]`. App reads the command line, config file, environment and preset into the
// command's Flags, answers --help, --version and --print-config, runs the command, and turns errors
// into messages and exit statuses.
//
//   --name VALUE, --name=VALUE   a flag with a value; the last one given counts
//   --switch, --switch=false     a flag without
//   --with_underscores           the flag --with-underscores
//   -q, -qv, -oNAME              short names, together or with their value
//   --                           what follows is no flag
//
// CLI11 takes the words apart and makes the help, in our form. What it cannot place is said in our
// words. Errors are of kind usage.
#pragma once

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/words.h"

namespace sinter::cli {

struct Command {
  std::string name, summary{};
  // Called for the command that is asked for: adds its flags and says what it does. To make those
  // of all commands would take a good part of the time that a program needs to start.
  std::function<void(Command&)> setup{};
  Flags flags{};
  std::vector<std::string>* inputs = nullptr;  // words that are no flags; null: there may be none
  std::string inputs_name{};                   // "INPUT.." in the help
  std::function<std::string()> preset{};       // a config, asked for once flags have their values
  std::function<void()> check{};               // after all values are there: what goes together
  std::function<int(Output&)> run{};           // -> exit status
  bool many_processes = false;                 // may a launcher start several?
};

inline constexpr const char* kVersion = "0.1.0";

// The flags of every command.
struct CommonFlags : Output::Options {
  std::string device = "auto";
  int64_t threads = 0;
  uint64_t seed = 1;
  std::string command;  // as it was typed
};
// "sinter 0.1.0, compiler 12.2.0": what a profile says made it.
std::string build_name();
// `common` outlives `flags`.
void add_common_flags(Flags& flags, CommonFlags& common);

class App {
 public:
  // `git_id`: of the source, which --version says behind the number; or "". See words.h.
  App(std::string name, std::string summary, std::string git_id = "", ProgramWords words = {})
      : name_(std::move(name)), summary_(std::move(summary)), git_id_(std::move(git_id)) {
    set_program(name_, words);
  }
  // A command with the flags of every command; `setup` adds more, and run(). One that bears the
  // program's name is not typed.
  void add(
      std::string name, std::string summary, std::function<void(App& app, Command& command)> setup);
  // What a command does, or a flag, by its name or a value that it allows; "" of no such word.
  std::string meaning_of(const std::string& word);
  CommonFlags& common() { return common_; }
  const std::string& git_id() const { return git_id_; }
  // The only place that catches: `return app.main(argc, argv);`
  int main(int argc, char** argv);

 private:
  int run(int argc, char** argv);
  // The words of `argv` behind the program's name into flags and inputs of the command that they
  // ask for, which is returned; null after --help and --version, which are printed.
  Command* read_words(int argc, char** argv);
  bool is_one_command() const { return commands_.size() == 1 && commands_[0].name == name_; }
  std::string call_of(const Command& command) const {  // "program train"
    return is_one_command() ? name_ : name_ + " " + command.name;
  }
  std::string hint_of(const Command& command) const {
    return call_of(command) + " --help lists the flags";
  }
  std::vector<std::string> command_names() const;

  std::string name_, summary_, git_id_;
  std::deque<Command> commands_;
  CommonFlags common_;
  bool print_config_ = false;
  std::string config_;
};

}  // namespace sinter::cli
