// The flags of a command: declared once, each with its target variable, range, topic and help; then
// given values from a preset, a config file, the environment and the command line, in rising rank.
// CLI11 takes the words apart, reads the environment, groups the flags and prints the help (app.h).
// Its checks and its config know the command line alone: a value is checked and ranked here,
// wherever it comes from, with messages that give flag, text and range. --print-config and the
// config saved with a run come from the same list. Lists are one string ("256,128"), split here.
// Targets outlive the Flags. Errors are of kind usage.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/words.h"
#include "core/numbers.h"

namespace sinter::cli {

// checkpoint: of the run that --resume goes on with. command_line: or else the environment.
enum class Source : uint8_t { standard, checkpoint, preset, file, command_line };

// Must a run that goes on have the value that it had? or_said: it is said that it has another.
enum class Kept : uint8_t { no, or_said, yes };

struct Flag {
  std::string name;                // "batch-size": the long flag, and the key of a config file
  std::string names;               // as typed: "--batch-size,--batch"
  std::string topic, value, help;  // value: what follows it in the help, "N"; empty for a switch
  std::string standard;            // the default, for the help
  // Throws where the text is no value of it; `what` begins the message: "usage: --lr".
  std::function<void(const std::string& what, const std::string& text)> set;
  std::function<std::string()> get;  // as TOML, or "" if there is nothing to write
  bool global = false;               // one of every command's: stands on top of a config file
  bool saved = true;                 // is part of a config
  bool hidden = false;               // from the help
  bool once = false;                 // a list: a repeat is an error
  bool place = false;                // where something lies: ranks and resumed runs may differ
  Kept kept = Kept::no;
  std::string bare_value{};             // a flag that may stand without a value means this one
  const char* variable = nullptr;       // of the environment
  const std::string* target = nullptr;  // of a word or a choice
  // Another flag, and those of its values that have a use for this one; none: all have.
  std::string of{};
  std::vector<std::string> takers{};
  Source source = Source::standard;
  std::string given{};  // the text that was taken last

  std::string shown() const { return "--" + name; }
};

// The type of the number in a number, an optional one, or a list of them.
template <class T> struct NumberIn : std::type_identity<T> {};
template <class T> struct NumberIn<std::optional<T>> : std::type_identity<T> {};
template <class T> struct NumberIn<std::vector<T>> : std::type_identity<T> {};
template <class Target> using NumberOf = typename NumberIn<Target>::type;

// Of this call alone: it is not part of a config.
inline Flag& not_saved(Flag& flag) {
  flag.saved = false;
  return flag;
}

// It has a use only where the flag `of` has one of these values.
inline Flag& only_for(Flag& flag, const char* of, std::vector<std::string> takers) {
  flag.of = of;
  flag.takers = std::move(takers);
  return flag;
}

// A value in a message, where "" would be read over.
inline std::string in_message(const std::string& value) {
  return value.empty() ? "\"\"" : escaped(value);
}
// The whole text as a T in the range; throws usage beginning with `what` ("usage: --lr").
template <class T> T parse(const std::string& what, const std::string& text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string allowed = fmt::format("; allowed {}..{}", low, high);
  const bool whole =
      !text.empty() && end == text.data() + text.size() && error != std::errc::invalid_argument;
  SINTER_CHECK(whole, usage,
      str(what, " is not ", std::is_floating_point_v<T> ? "a number" : "a whole number", ": ",
          in_message(text), allowed));
  // TOML has no such number, and to some readers 010 is 8.
  const std::string_view bare = std::string_view(text).substr(text.starts_with('-'));
  SINTER_CHECK(bare.size() < 2 || bare[0] != '0' || bare[1] < '0' || bare[1] > '9', usage,
      str(what, " has a leading zero: ", escaped(text), allowed));
  const bool in_range = error == std::errc() && value >= low && value <= high;  // no NaN is
  SINTER_CHECK(in_range, usage, str(what, " out of range: ", escaped(text), allowed));
  return value;
}
// The items of "a, b,c", none empty; throws usage beginning with `what` ("usage: --hidden"). Blanks
// before an item do not count.
std::vector<std::string> split(const std::string& what, const std::string& text);
// "nearest is bf16; allowed f32, tf32, bf16", of a long list the nearest alone; or all, if none is
// near.
std::string nearest_or_all(std::string_view word, const std::vector<std::string>& known);
// Throws usage unless the word is one of them: "usage: unknown --act: tahn; nearest is tanh; ..".
void check_word(const std::string& what, const std::string& word,
    const std::vector<std::string>& known, const std::string& where = "",
    const std::string& hint = "");
class Flags {
 public:
  // The topic of what is added next; global: see Flag.
  void topic(std::string name, bool global = false) {
    topic_ = std::move(name);
    global_ = global;
  }

  // `names`: "batch-size,batch" or "quiet,q", the first one counts.
  Flag& toggle(std::string_view names, bool& target, std::string help);
  // `check` is called with the text once the target has it, to refuse it or to make more of it.
  Flag& word(std::string_view names, std::string& target, std::string value, std::string help,
      std::function<void(const std::string& text)> check = {});
  // Capitals or not. aliases: other words for some of those allowed.
  Flag& choice(std::string_view names, std::string& target, std::vector<std::string> allowed,
      std::string help, std::vector<std::pair<std::string, std::string>> aliases = {});
  // A whole one or one with a fraction, or a list "256,128", by the target. Ranges are inclusive.
  // An optional target is unset by default; `standard` can say what that means.
  template <class Target>
  Flag& number(std::string_view names, Target& target, NumberOf<Target> low, NumberOf<Target> high,
      std::string help) {
    using T = NumberOf<Target>;
    constexpr bool is_list = std::is_same_v<Target, std::vector<T>>;
    const auto text = [&target]() -> std::string {
      if constexpr (is_list)
        return fmt::format("{}", fmt::join(target, ","));
      else if constexpr (std::is_same_v<T, Target>)
        return fmt::format("{}", target);
      else
        return target ? fmt::format("{}", *target) : "";
    };
    const auto set = [&target, low, high](const std::string& what, const std::string& given) {
      if constexpr (is_list) {
        Target values;
        for (const std::string& item : split(what, given))
          values.push_back(parse<T>(what, item, low, high));
        target = std::move(values);
      } else {
        target = parse<T>(what, given, low, high);
      }
    };
    const char* value = is_list ? "N,N,.." : std::is_floating_point_v<T> ? "X" : "N";
    Flag& flag = add(names, value, text(), std::move(help), set,
        [text] { return is_list && !text().empty() ? '"' + text() + '"' : text(); });
    flag.once = is_list;
    return flag;
  }

  const std::deque<Flag>& all() const { return flags_; }
  std::deque<Flag>& all() { return flags_; }
  Flag* find(std::string_view name);
  const Flag& operator[](std::string_view name) const;
  bool given(std::string_view name) const { return (*this)[name].source != Source::standard; }
  std::vector<std::string> names() const;  // but for hidden ones
  bool has_use(const Flag& flag) const;
  // As TOML, or "" if there is nothing to write.
  std::string value(const Flag& flag) const { return has_use(flag) ? flag.get() : ""; }
  // Throws where somebody asked for a flag that has no use; a preset or a checkpoint may bring it
  // along.
  void check_uses() const;

  // Sets the value unless one of a higher rank is there. `where`: " in /tmp/a.toml", for messages.
  static void set(
      Flag& flag, const std::string& text, Source source, const std::string& where = "");
  // Of two flags that exclude each other, the one of higher rank wins (true: `a`); throws if both
  // have the same one.
  bool first_wins(std::string_view a, std::string_view b) const;
  // All saved flags as TOML: global ones, then [section] and the rest.
  std::string config(std::string_view section) const;

 private:
  Flag& add(std::string_view names, std::string value, std::string standard, std::string help,
      decltype(Flag::set) set, decltype(Flag::get) get);
  std::deque<Flag> flags_;  // references stay valid
  std::string topic_ = "flags";
  bool global_ = false;
};

// The entries of a config text into the flags: global keys on top, the rest under [section]; other
// sections must be in `sections` and are passed over. They have the rank `source`. `file` is for
// messages. The text is TOML, of which a line is [section], key = value or a # comment, and a value
// a text in quotes, a number, true or false; quotes may be left out around one word. Throws usage
// for a line of another form, an unknown key or section, and a repeated key.
void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections,
    Source source = Source::file);

}  // namespace sinter::cli
