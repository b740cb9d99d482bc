// A program of several commands: `mnist COMMAND [flags]`; or of one that bears its own name: `geglu
// [flags]`. Reads the command line, config file, environment and preset into each
// command's Flags, answers --help, --version and --print-config, runs the command, and turns errors
// into messages and exit statuses.
#pragma once

#include <deque>
#include <map>

#include "examples/cli/flags.h"
#include "examples/cli/output.h"

namespace sinter::cli {

inline constexpr const char* kVersion = "0.1.0";

// The flags of every command.
struct CommonFlags {
  std::string device = "auto";
  int64_t threads = 0;
  uint64_t seed = 1;
  bool json = false, quiet = false, verbose = false;
  std::string color = "auto";
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
  const std::string* preset = nullptr;         // the name of one of `presets`, or empty
  std::map<std::string, std::function<FlagValues()>>
      presets{};                      // by name; asked once the other flags have their values
  std::function<void()> check{};      // after all values are there: what goes together
  std::function<int(Output&)> run{};  // -> exit status
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

// The entries of a config text into the flags: global keys on top, the rest under [section]; other
// sections must be in `sections` and are passed over. They have the rank `source`. `file` is for
// messages. The text is the part of TOML that Flags::config writes: [section], key = value with the
// value bare or in quotes (no escapes), # comments. Throws usage for a line of another form, an
// unknown key or section, and a repeated key.
void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections,
    Source source = Source::file);

}  // namespace sinter::cli
