// A program's commands, and the words of its command line, which CLI11 takes apart:
//
//   --name VALUE, --name=VALUE   a flag with a value; the last one given counts
//   --switch, --switch=false     a flag without
//   --with_underscores           the flag --with-underscores
//   -q, -qv, -oNAME              short names, together or with their value
//   --                           what follows is no flag
//
// The help is CLI11's, too, in our form. What it cannot place is said in our words. Used by App and
// by the programs of bench/. Errors are of kind usage.
#pragma once

#include "examples/cli/flags.h"
#include "examples/cli/output.h"

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

struct Program {
  std::string name, summary{}, version{};  // version: what --version prints; "": no such flag
  std::deque<Command> commands{};          // one that bears the program's name is not typed

  bool is_one_command() const { return commands.size() == 1 && commands[0].name == name; }
  std::string call_of(const Command& command) const {  // "mnist train"
    return is_one_command() ? name : name + " " + command.name;
  }
  std::vector<std::string> command_names() const;
};

// The words of `argv` behind the program's name into flags and inputs of the command that they ask
// for, which is returned; null after --help and --version, which are printed.
Command* read_words(Program& program, int argc, char** argv);

}  // namespace sinter::cli
