#include "examples/cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/json.h"
#include "examples/cli/launch.h"
#include "profiler/grid.h"

namespace sinter::cli {
namespace {

// Does it understand a carriage return?
bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) && term && std::string_view(term) != "dumb";
}

constexpr const char *kBold = "1", *kYellow = "33";

// At most `width` columns a line; 0: as long as it is.
std::string line(std::string_view label, std::string_view text, bool painted, size_t width) {
  const std::string all = profiler::wrapped(fmt::format("{:<7} {}\n", label, text), width);
  const size_t at = std::max<size_t>(label.size(), 7);
  return paint(all.substr(0, at), kBold, painted) + all.substr(at);
}

}  // namespace

void say(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

int terminal_width() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

size_t table_width() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool wants_color(int fd, std::string_view color) {
  const char* no_color = std::getenv("NO_COLOR");
  if (color == "auto") return is_terminal(fd) && !(no_color && *no_color);
  return color == "always";
}

std::string paint(std::string_view text, const char* sgr, bool on) {
  return on ? fmt::format("\x1b[{}m{}\x1b[0m", sgr, text) : std::string(text);
}

Output::Output(const Options& options)
    : options_(options),
      muted_(launched_rank() > 0),
      terminal_(is_terminal(STDERR_FILENO)),
      paint_out_(wants_color(STDOUT_FILENO, options.color)),
      paint_err_(wants_color(STDERR_FILENO, options.color)) {}

void Output::put(std::string_view text) {
  while (!closed_ && !muted_ && !text.empty()) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) closed_ = true;
    SINTER_CHECK(n >= 0 || closed_, data, cat("stdout: cannot write: ", std::strerror(errno)));
    if (n > 0) text.remove_prefix(size_t(n));
  }
}

void Output::result(std::string_view label, std::string_view text) {
  if (!options_.json) put(line(label, text, paint_out_, table_width()));
}
void Output::result_text(std::string_view text) {
  if (!options_.json) put(profiler::wrapped(std::string(text), table_width()));
}
void Output::json(std::string_view schema, const Json& object) {
  if (!options_.json) return;
  Json whole = {{"schema", schema}};
  whole.update(object);
  put(json_text(whole, 2) + "\n");
}

void Output::note(std::string_view label, std::string_view text) {
  if (!quiet()) say(line(label, text, paint_err_, terminal_ ? terminal_width() : 0));
}
void Output::detail(std::string_view text) {
  if (options_.verbose && !quiet()) say(cat(text, text.ends_with('\n') ? "" : "\n"));
}
void Output::warning(std::string_view text) {
  if (muted_) return;
  say(cat(paint("warning: ", kYellow, paint_err_), text, "\n"));
}

}  // namespace sinter::cli
