// A program of several commands: `mnist COMMAND [flags]`; or of one that bears its own name: `geglu
// [flags]`. Reads the command line, config file, environment and preset into the command's Flags,
// answers --help, --version and --print-config, runs the command, and turns errors into messages
// and exit statuses.
#pragma once

#include "examples/cli/command_line.h"

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

class App {
 public:
  // `git_id`: of the source, which --version says behind the number; or "".
  App(std::string name, std::string summary, const std::string& git_id = "")
      : program_{name, std::move(summary),
            cat(name, " ", kVersion, git_id.empty() ? "" : ", " + git_id, "\n")},
        git_id_(git_id) {}
  // A command with the flags of every command; `setup` adds more, and run().
  void add(
      std::string name, std::string summary, std::function<void(App& app, Command& command)> setup);
  CommonFlags& common() { return common_; }
  const std::string& git_id() const { return git_id_; }
  // The only place that catches: `return app.main(argc, argv);`
  int main(int argc, char** argv);

 private:
  int run(int argc, char** argv);

  Program program_;
  std::string git_id_;
  CommonFlags common_;
  bool print_config_ = false;
  std::string config_;
};

}  // namespace sinter::cli
