#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/process.h"
#include "core/classic.h"
#include "core/json.h"
#include "core/text_grid.h"

namespace sinter::cli {
namespace {

// Does it understand a carriage return?
bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) && term && std::string_view(term) != "dumb";
}

constexpr size_t kNoTerminal = 80;

constexpr const char *kBold = "1", *kYellow = "33";

// At most `width` columns a line; 0: as long as it is.
std::string line(std::string_view label, std::string_view text, bool painted, size_t width) {
  const std::string all = wrapped(fmt::format("{:<7} {}\n", label, text), width);
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

size_t prose_width() { return table_width() == 0 ? kNoTerminal : table_width(); }

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
    SINTER_CHECK(n >= 0 || closed_, checkpoint, str("stdout: cannot write: ", error_text(errno)));
    if (n > 0) text.remove_prefix(size_t(n));
  }
}

void Output::result(std::string_view label, std::string_view text) {
  if (!options_.json) put(line(label, text, paint_out_, table_width()));
}
void Output::result_text(std::string_view text) {
  if (!options_.json) put(wrapped(std::string(text), table_width()));
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
int Output::stopped(std::string_view when) {
  if (!muted_) {
    say(line("stop", str("interrupted ", when), paint_err_, terminal_ ? terminal_width() : 0));
  }
  return exit_code(Error::Kind::interrupted);
}
void Output::detail(std::string_view text) {
  if (options_.verbose && !quiet()) say(str(text, text.ends_with('\n') ? "" : "\n"));
}
void Output::warning(std::string_view text) {
  if (muted_) return;
  say(str(paint("warning: ", kYellow, paint_err_), text, "\n"));
}

std::string progress_line(const ProgressView& view, bool bar, int width) {
  constexpr int kCells = 8;
  const int full = std::clamp(int(view.done * kCells + 0.5), 0, kCells);
  std::string line = fmt::format("epoch {}/{} ", view.epoch, view.epochs);
  if (bar) line += fmt::format("[{:#<{}}{:-<{}}] ", "", full, "", kCells - full);
  line += fmt::format("{:.0f} %  loss {:.3g}  {} {}/s  data-wait {:.1f} %  ETA {:.0f} s",
      100 * view.done, view.loss, rate(view.rows_per_second), view.row, 100 * view.data_wait,
      view.eta_seconds);
  if (line.size() > size_t(std::max(width, 1))) line.resize(size_t(std::max(width, 1)));
  return line;
}

void Progress::show(const ProgressView& view) {
  last_ = {};
  if (!terminal_) return say(progress_line(view, false, 1000) + "\n");
  const std::string line = progress_line(view, true, terminal_width() - 1);
  say(fmt::format("\r{:<{}}", line, shown_));
  shown_ = std::max(shown_, line.size());
  std::fflush(stderr);
}

void Progress::clear() {
  if (shown_ == 0) return;
  say(fmt::format("\r{:<{}}\r", "", shown_));
  std::fflush(stderr);
  shown_ = 0;
}

std::string as_word(const std::string& path) {
  constexpr std::string_view kApart = " \t\"'\\$`&|;<>()[]{}*?!#~";
  if (path.find_first_of(kApart) == path.npos) return escaped(path);
  std::string quoted = escaped(path);
  for (size_t at = 0; (at = quoted.find('\'', at)) != quoted.npos; at += 4)
    quoted.replace(at, 1, "'\\''");
  return str("'", quoted, "'");
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = sinter::lower_case(c);
  return out;
}

std::string seconds(double s) {
  if (s < 1e-4) return fmt::format("{:.0f} us", s * 1e6);
  if (s < 0.1) return fmt::format("{:.1f} ms", s * 1e3);
  if (s < 9.995) return fmt::format("{:.2f} s", s);
  if (s < 119.95) return fmt::format("{:.1f} s", s);
  const int64_t whole = std::llround(s);
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.1f} M", per_second / 1e6);
  if (per_second >= 1e4) return fmt::format("{:.0f} k", per_second / 1e3);
  return fmt::format("{:.0f}", per_second);
}

std::string bytes(int64_t n) {
  const double b = double(n);
  if (b >= 1024.0 * 1024 * 1024) return fmt::format("{:.2f} GiB", b / (1024.0 * 1024 * 1024));
  if (b >= 1024.0 * 100) return fmt::format("{:.2f} MiB", b / (1024.0 * 1024));
  return fmt::format("{:.1f} KiB", b / 1024);
}

std::string loss(double x) {
  if (std::isnan(x)) return "nan";  // its sign says nothing
  return fmt::format(fmt::runtime(x < 1e4 ? "{:.4f}" : "{:.3g}"), x);
}

double wilson_half_width(int64_t k, int64_t n) {
  if (n == 0) return 0;
  constexpr double z = 1.959963984540054;
  const double count = double(n), p = double(k) / count;
  return z / (1 + z * z / count) * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count));
}

std::string proportion(int64_t k, int64_t n) {
  const double p = n ? double(k) / double(n) : 0;
  return fmt::format("{:.1f} % +-{:.1f}", 100 * p, 100 * wilson_half_width(k, n));
}

}  // namespace sinter::cli
