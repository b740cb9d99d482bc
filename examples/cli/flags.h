// The flags of a command: declared once, each with its target variable, range, topic and help; then
// given values from a preset, a config file, the environment and the command line, in rising rank.
// Values are checked by us, with messages that give flag, text and range. Help, --print-config and
// the config saved with a run come from the same list. Lists are one string ("256,128"), split
// here. Targets outlive the Flags. Errors are of kind usage.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace sinter::cli {

// checkpoint: of the run that --resume goes on with.
enum class Source : uint8_t { standard, checkpoint, preset, file, environment, command_line };

struct Flag {
  std::string name;                // "batch-size": the long flag, and the key of a config file
  std::vector<std::string> other;  // "--batch", "-q"
  std::string topic, value, help;  // value: what follows it in the help, "N"; empty for a switch
  std::string standard;            // the default, for the help
  std::function<void(const std::string& text, const std::string& where)> set;
  std::function<std::string()> get;  // as TOML, or "" if there is nothing to write
  bool global = false;               // one of every command's: stands on top of a config file
  bool saved = true;                 // is part of a config
  bool hidden = false;               // from the help
  bool once = false;                 // a list: a repeat is an error
  std::string bare_value;            // a flag that may stand without a value means this one
  const char* variable = nullptr;    // of the environment
  Source source = Source::standard;
  std::string given{};  // the text that was taken last

  std::string shown() const { return "--" + name; }
};

template <class T> struct OptionalOr : std::type_identity<T> {};
template <class T> struct OptionalOr<std::optional<T>> : std::type_identity<T> {};
template <class Target> using NumberOf = typename OptionalOr<Target>::type;

// Of this call alone: it is not part of a config.
inline Flag& not_saved(Flag& flag) {
  flag.saved = false;
  return flag;
}

class Flags {
 public:
  // The topic of what is added next; global: see Flag.
  void topic(std::string name, bool global = false) {
    topic_ = std::move(name);
    global_ = global;
  }

  // Called with the text once the target has it, to refuse it or to make more of it.
  using Check = std::function<void(const std::string& text)>;
  // `names`: "batch-size,batch" or "quiet,q", the first one counts.
  Flag& toggle(std::string_view names, bool& target, std::string help);
  Flag& word(std::string_view names, std::string& target, std::string value, std::string help,
      Check check = {});
  Flag& choice(std::string_view names, std::string& target, std::vector<std::string> allowed,
      std::string help);
  // A whole one or one with a fraction, by the target: int, int64_t, uint64_t, double. Ranges are
  // inclusive. An optional target is unset by default; `standard` can say what that means.
  template <class Target>
  Flag& number(std::string_view names, Target& target, NumberOf<Target> low, NumberOf<Target> high,
      std::string help);
  Flag& integers(std::string_view names, std::vector<int64_t>& target, int64_t low, int64_t high,
      std::string help);

  const std::deque<Flag>& all() const { return flags_; }
  std::deque<Flag>& all() { return flags_; }
  Flag* find(std::string_view name);
  const Flag& operator[](std::string_view name) const;
  bool given(std::string_view name) const { return (*this)[name].source != Source::standard; }
  std::vector<std::string> names() const;

  // Sets the value unless one of a higher rank is there. `where`: " in /tmp/a.toml", for messages.
  static void set(
      Flag& flag, const std::string& text, Source source, const std::string& where = "");
  // Of two flags that exclude each other, the one of higher rank wins (true: `a`); throws if both
  // have the same one.
  bool first_wins(std::string_view a, std::string_view b) const;
  // All saved flags as TOML: global ones, then [section] and the rest.
  std::string config(std::string_view section) const;

 private:
  Flag& add(std::string_view names, std::string value, std::string standard, std::string help);
  std::deque<Flag> flags_;  // references stay valid
  std::string topic_;
  bool global_ = false;
};

// "nearest is bf16; allowed f32, tf32, bf16", of a long list the nearest alone; or all, if none is
// near.
std::string nearest_or_all(std::string_view word, const std::vector<std::string>& known);
// The items of "a, b,c", none empty; throws usage beginning with `what` ("usage: --hidden"). Blanks
// before an item do not count.
std::vector<std::string> split(
    const std::string& what, const std::string& text, const std::string& where = "");
// The whole text as a number in the range; throws usage beginning with `what` ("usage: --lr").
int64_t parse_integer(const std::string& what, const std::string& text, int64_t low, int64_t high,
    const std::string& where = "");
double parse_number(const std::string& what, const std::string& text, double low, double high,
    const std::string& where = "");

}  // namespace sinter::cli
