// The name of the running program, and what its users type: in place of flags that went or that
// other programs have, and where a hint of the library names a field or a function. What any
// program has stands here; an App brings its own, which is looked at first.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sinter::cli {

// In place of a flag, or of those of its values that hold `value`; "" : of all.
struct Instead {
  std::string_view flag, value, instead;
};
// The library knows no flags: its hints name fields and functions.
struct FlagWords {
  std::string_view library, program;
};
struct ProgramWords {
  std::span<const Instead> instead{};
  std::span<const FlagWords> flags{};
};

// Of an App, when it begins; what `words` names outlives the program's main().
void set_program(std::string name, const ProgramWords& words);
// "" where no App has begun.
const std::string& program_name();

// What to type in place of a flag or a value that went, or that scripts for PyTorch have; "" of any
// other.
std::string in_place_of(std::string_view flag, std::string_view value = "");
// A library's hint with the flags that set what it names: "device cpu" is "--device cpu".
std::string with_flags(std::string hint);

}  // namespace sinter::cli
