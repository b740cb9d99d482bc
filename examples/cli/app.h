// A program of several commands: `mnist COMMAND [flags]`; or of one that bears its own name: `geglu
// [flags]`. Reads the command line, config file, environment and preset into each
// command's Flags, answers --help, --version and --print-config, runs the command, and turns errors
// into messages and exit statuses.
#pragma once

#include <deque>

#include "examples/cli/command_line.h"
#include "examples/cli/output.h"

namespace sinter::cli {

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

using FlagValues = std::vector<std::pair<std::string, std::string>>;

struct Command {
  std::string name, summary;
  Flags flags{};
  std::vector<std::string>* inputs = nullptr;  // words that are no flags; null: there may be none
  std::string inputs_name{};                   // "INPUT.." in the help
  std::function<FlagValues()> preset{};        // asked once the other flags have their values
  std::function<void()> check{};               // after all values are there: what goes together
  std::function<int(Output&)> run{};           // -> exit status
  bool many_processes = false;                 // may a launcher start several?
};

class App {
 public:
  // `build`: what --version says behind the number, such as a git id.
  App(std::string name, std::string summary, const std::string& build = "")
      : name_(std::move(name)),
        summary_(std::move(summary)),
        version_text_(cat(name_, " ", kVersion, build.empty() ? "" : ", " + build, "\n")) {}
  // A command with the flags of every command; add more, and run. The reference stays valid.
  Command& add(std::string name, std::string summary);
  CommonFlags& common() { return common_; }
  // The only place that catches: `return app.main(argc, argv);`
  int main(int argc, char** argv);

 private:
  int run(int argc, char** argv);
  Command& take_command(std::vector<std::string>& words);
  void merge(Command& command);
  std::string help() const;
  std::string help(const Command& command) const;
  std::vector<std::string> command_names() const;
  bool is_one_command() const { return commands_.size() == 1 && commands_[0].name == name_; }
  std::string call_of(const Command& command) const {
    return is_one_command() ? name_ : name_ + " " + command.name;
  }

  std::string name_, summary_, version_text_;
  CommonFlags common_;
  bool help_ = false, version_ = false, print_config_ = false;
  std::string config_;
  std::deque<Command> commands_;
};

}  // namespace sinter::cli
