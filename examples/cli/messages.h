// Errors as a program shows them: the exit status of each kind, and the text on stderr.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "core/error.h"

namespace sinter::cli {

int exit_code(Error::Kind kind);
// A library's hint with the flags that set what it names: "DataOptions.classes = 12" is
// "--classes 12".
std::string with_flags(std::string hint);
// Prints "error: .." for the exception being handled, with `stack` also the calls to an internal
// one; returns the exit status. REQUIRES: called inside a catch block.
int report_current_exception(std::string_view color = "auto", bool stack = false);

}  // namespace sinter::cli
