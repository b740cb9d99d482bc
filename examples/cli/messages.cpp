#include "examples/cli/messages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#include "core/stack.h"
#include "examples/cli/output.h"

namespace sinter::cli {

// No default: under -Werror=switch a new kind does not compile until it has a status.
int exit_code(Error::Kind kind) {
  using Kind = Error::Kind;
  switch (kind) {
    case Kind::internal:
    case Kind::shape:
    case Kind::dtype:
    case Kind::state: return 1;
    case Kind::usage: return 2;
    case Kind::data: return 3;
    case Kind::checkpoint: return 4;
    case Kind::device:
    case Kind::memory:
    case Kind::not_built: return 5;
    case Kind::numeric: return 6;
    case Kind::check: return 7;
    case Kind::untrusted: return 8;
    case Kind::interrupted: return 130;
  }
  return 1;
}

int report_current_exception(std::string_view color, bool stack) {
  const auto print = [color](std::string_view text) {
    say(fmt::format("{}{}\n", paint("error: ", "1;31", wants_color(STDERR_FILENO, color)), text));
  };
  try {
    throw;
  } catch (const Error& error) {
    print(error.what());
    if (stack && error.kind() == Error::Kind::internal)
      say("calls, innermost first:\n" + internal_error_stack());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    print("cpu: out of memory: the system gives no more");
    return exit_code(Error::Kind::memory);
  } catch (const std::exception& error) {
    print(
        fmt::format("internal: {}; this is a bug in sinter, please report it with the command line",
            escaped(error.what())));
    return exit_code(Error::Kind::internal);
  }
}

}  // namespace sinter::cli
