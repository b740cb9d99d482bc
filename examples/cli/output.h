// Where a program's words go: results to stdout, everything else (notes, warnings, progress) to
// stderr. With --json stdout is one JSON object and nothing else. Colour only on a terminal, and it
// never carries meaning alone; lines too long for a terminal are broken at spaces. A reader that
// closed stdout ends the report quietly; any other failure to write is an error. Of several
// processes that a launcher started, rank 0 alone speaks. One Output per run, used by one thread.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

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
// `text` in a colour (an SGR number such as "1;31") if `on`.
std::string paint(std::string_view text, const char* sgr, bool on);
// Shall `fd` be coloured under --color `color`?
bool wants_color(int fd, std::string_view color);

}  // namespace sinter::cli
