#include "cli/words.h"

#include <algorithm>
#include <array>

namespace sinter::cli {
namespace {

constexpr Instead kInstead[] = {  // That went, or that other commands have.
    {"card", "", "times are measured: --device cuda; --device simt counts launches and bytes"},
    {"out", "", "-o NAME or FILE names what this command writes; --out is the run folder of train"},
    {"guess", "", "--expect 'launches==9' says what you think, and is status 7 where it is not so"},
    // Of scripts for PyTorch.
    {"no-cuda", "", "--device cpu"}, {"no-accel", "", "--device cpu"},
    {"cuda", "", "--device cuda"}, {"gpu", "", "--device cuda, or cuda:1 for the second card"}};

constexpr FlagWords kFlags[] = {{"device cpu", "--device cpu"}, {"device simt", "--device simt"},
    {"device cuda", "--device cuda"},
    {"a smaller batch takes less", "a smaller --batch-size takes less"},
    {"load_state_dict takes the weights alone", "--init FILE starts a new run from these weights"},
    {"all, none, or -NAME,NAME", "--rules all, --rules none, --rules=-NAME,NAME"}};

struct Program {
  std::string name;
  ProgramWords words;
};
Program& program() {
  static Program the;
  return the;
}

}  // namespace

void set_program(std::string name, const ProgramWords& words) {
  program() = {std::move(name), words};
}

const std::string& program_name() { return program().name; }

std::string in_place_of(std::string_view flag, std::string_view value) {
  flag.remove_prefix(std::min(flag.find_first_not_of('-'), flag.size()));
  for (const std::span<const Instead> all :
      std::array<std::span<const Instead>, 2>{program().words.instead, kInstead}) {
    for (const Instead& other : all) {
      const bool it = other.value.empty() || value.find(other.value) != value.npos;
      if (flag == other.flag && it) return std::string(other.instead);
    }
  }
  return "";
}

std::string with_flags(std::string hint) {
  if (hint.find("--") != hint.npos) return hint;  // a program's own
  for (const std::span<const FlagWords> all :
      std::array<std::span<const FlagWords>, 2>{program().words.flags, kFlags}) {
    for (const auto& [library, typed] : all) {
      for (size_t at = hint.find(library); at != std::string::npos;
           at = hint.find(library, at + typed.size()))
        hint.replace(at, library.size(), typed);
    }
  }
  return hint;
}

}  // namespace sinter::cli
