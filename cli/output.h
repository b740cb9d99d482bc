// Where a program's words go: results to stdout, everything else (notes, warnings, progress) to
// stderr. With --json stdout is one JSON object and nothing else. Colour only on a terminal, and it
// never carries meaning alone; lines too long for a terminal are broken at spaces. A reader that
// closed stdout ends the report quietly; any other failure to write is an error. Of several
// processes that a launcher started, rank 0 alone speaks. One Output per run, used by one thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/numbers.h"
#include "measure/timer.h"

namespace sinter::cli {

using Json = nlohmann::ordered_json;

class Output {
 public:
  struct Options {
    bool json = false, quiet = false, verbose = false;
    std::string color = "auto";  // or always, never
  };
  explicit Output(const Options& options);

  // "test    98.2 % ..": a label of a column of its own, and the text. Nothing with --json.
  void result(std::string_view label, std::string_view text);
  // Text of several lines: tables, pictures. Nothing with --json.
  void result_text(std::string_view text);
  // The same of a format and what it shows, as for fmt::format(); so has note().
  template <class T, class... Ts>
  void result(
      std::string_view label, fmt::format_string<T, Ts...> format, T&& first, Ts&&... others) {
    result(label, fmt::format(format, std::forward<T>(first), std::forward<Ts>(others)...));
  }
  // The object of --json, behind its schema: "sinter.eval/1". Nothing without --json.
  void json(std::string_view schema, const Json& object);

  // To stderr, unless -q: what goes on. detail: with -v only. warning: always.
  void note(std::string_view label, std::string_view text);
  template <class T, class... Ts>
  void note(
      std::string_view label, fmt::format_string<T, Ts...> format, T&& first, Ts&&... others) {
    note(label, fmt::format(format, std::forward<T>(first), std::forward<Ts>(others)...));
  }
  // Of a command that a signal ends early, even with -q: "stop    interrupted after 3 of 12 sizes".
  // Returns the exit status.
  int stopped(std::string_view when);
  void detail(std::string_view text);
  void warning(std::string_view text);

  bool quiet() const { return options_.quiet || muted_; }
  bool stderr_is_terminal() const { return terminal_; }

 private:
  void put(std::string_view text);
  Options options_;
  bool muted_, terminal_, paint_out_, paint_err_;
  bool closed_ = false;  // nobody reads stdout any more
};

// To stderr; that nobody reads it, or that its disk is full, ends nothing.
void say(std::string_view text);
// Columns of the terminal behind stderr, else 100.
int terminal_width();
// Columns of the terminal behind stdout; 0 where it is none: what reads a file wants all.
size_t table_width();
// The same for sentences, which are 80 wide where there is none.
size_t prose_width();
// `text` in a colour (an SGR number such as "1;31") if `on`.
std::string paint(std::string_view text, const char* sgr, bool on);
// Shall `fd` be coloured under --color `color`?
bool wants_color(int fd, std::string_view color);

struct ProgressView {
  int64_t epoch = 1, epochs = 1;
  double done = 0;  // of this epoch, 0..1
  double loss = 0;
  double rows_per_second = 0, data_wait = 0;  // data_wait: share of the time, 0..1
  double eta_seconds = 0;                     // until the end of training
  const char* row = "rows";                   // what one of them is, in short
};

// The progress of a training run on stderr. On a terminal one line, written anew at most ten times
// a second:
//   epoch 2/5 [####----] 44 %  loss 0.101  1.1 M img/s  data-wait 0.2 %  ETA 3 s
// elsewhere a whole line every ten seconds. Ask due() after each step: only if it says so, read the
// loss and call show().
class Progress {
 public:
  explicit Progress(const Output& out) : on_(!out.quiet()), terminal_(out.stderr_is_terminal()) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool due() const { return on_ && last_.seconds() >= (terminal_ ? 0.1 : 10); }
  void show(const ProgressView& view);
  // Takes the line away, so that another line can be written.
  void clear();

 private:
  bool on_, terminal_;
  size_t shown_ = 0;  // columns of the line on the terminal
  measure::Timer last_;
};

// The line, at most `width` columns; with a bar if `bar`.
std::string progress_line(const ProgressView& view, bool bar, int width);

// A path as one types it: in quotes where a shell would take it apart.
std::string as_word(const std::string& path);

// Numbers as people read them. ASCII only. Pure functions.
using sinter::grouped, sinter::count_of, sinter::join;
std::string lower_case(std::string_view text);
std::string seconds(double s);        // 12 us, 1.4 ms, 0.60 s, 12.3 s, 3 min 05 s
std::string rate(double per_second);  // 1.1 M, 420 k, 88
std::string bytes(int64_t n);         // 0.90 MiB
std::string loss(double x);           // 0.0621, 2.71e+26
// Half the width of the 95 % interval of a proportion k of n (Wilson's), in 0..1; 0 for n = 0.
double wilson_half_width(int64_t k, int64_t n);
std::string proportion(int64_t k, int64_t n);  // 98.2 % +-0.3

}  // namespace sinter::cli
