#include "examples/cli/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/cli/output.h"
#include "examples/cli/text.h"

namespace sinter::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// A line of a config, see apply_config(). CLI11 2.1 reads configs, too, but passes over lines that
// it does not understand, ends a text in quotes at a #, lets the file win over the environment, and
// sets what stands under other commands.
class ConfigLine {
 public:
  std::string section;  // of "[section]"
  std::string key, value;

  ConfigLine(std::string_view line, std::string where)
      : line_(trimmed(line)), where_(std::move(where)) {
    if (ends(line_)) return;
    if (line_.starts_with('[')) {
      take_section();
      return;
    }
    const size_t equals = line_.find('=');
    check(equals != line_.npos, "it is no [section], no key = value and no # comment");
    key = trimmed(line_.substr(0, equals));
    check(!key.empty(), "its key is missing");
    if (key.size() > 2 && key.front() == key.back() && (key[0] == '"' || key[0] == '\''))
      key = key.substr(1, key.size() - 2);
    const std::string_view rest = trimmed(line_.substr(equals + 1));
    value = rest.starts_with('"') || rest.starts_with('\'') ? quoted(rest)
                                                            : bare(rest.substr(0, rest.find('#')));
  }

 private:
  static bool ends(std::string_view text) {
    return trimmed(text).empty() || trimmed(text).starts_with('#');
  }
  void check(bool good, const char* why) const {
    SINTER_CHECK(good, usage,
        cat("usage: cannot read the config: ", where_, ": ", escaped(line_), "; ", why),
        "lr = 0.001, act = \"relu\" and hidden = \"256,128\" are values");
  }
  void take_section() {
    const size_t end = line_.find(']');
    section = trimmed(line_.substr(1, std::min(end, line_.size()) - 1));
    check(end != line_.npos && !section.empty() && section[0] != '[' && ends(line_.substr(end + 1)),
        "a section is one name, [train]");
  }
  // A text ends at its quote. In double quotes \ begins an escape; TOML's are JSON's.
  std::string quoted(std::string_view rest) const {
    const bool escapes = rest[0] == '"';
    size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += escapes && rest[end] == '\\' ? 2 : 1;
    check(end < rest.size(), "its quotes are not closed");
    check(ends(rest.substr(end + 1)), "one value is wanted, and more stands behind it");
    const std::string_view inside = rest.substr(1, end - 1);
    if (!escapes || inside.find('\\') == inside.npos) return std::string(inside);
    const Json text = Json::parse(rest.substr(0, end + 1), nullptr, false);
    check(text.is_string(), "allowed escapes are \\\" \\\\ \\b \\f \\n \\r \\t \\uXXXX");
    return text;
  }
  // A number as the flags read it: TOML has 1_000, +0.5 and 0x10, too. Other words stay as they
  // are.
  std::string bare(std::string_view rest) const {
    std::string text(trimmed(rest));
    check(!text.empty(), "its value is missing");
    check(text.find_first_of(" \t\"'[]{}=") == text.npos, "one value is wanted, a text in quotes");
    const std::string_view prefix = std::string_view(text).substr(0, 2);
    const int base = prefix == "0x" ? 16 : prefix == "0o" ? 8 : prefix == "0b" ? 2 : 0;
    const char* const of_a_number = base ? "0123456789abcdefABCDEF_" : "0123456789_.eE+-";
    const auto digit = [&](size_t i) { return i < text.size() && std::isxdigit(uint8_t(text[i])); };
    const bool sign = text[0] == '+' || text[0] == '-';
    if (!digit(sign) || text.find_first_not_of(of_a_number, base ? 2 : 0) != text.npos) return text;
    check(base || text[sign] != '0' || !digit(sign + 1), "a number begins with no 0");
    for (size_t at = 0; (at = text.find('_', at)) != text.npos; text.erase(at, 1))
      check(digit(at - 1) && digit(at + 1), "_ stands between two digits");
    if (text[0] == '+') text.erase(0, 1);
    uint64_t number = 0;
    const char* const end = text.data() + text.size();
    return base && std::from_chars(text.data() + 2, end, number, base).ptr == end
               ? std::to_string(number)
               : text;
  }

  std::string_view line_;
  std::string where_;
};

}  // namespace

void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections, Source source) {
  const std::string in_file = " in " + file;
  std::set<std::string> seen;
  std::string under;
  int number = 0;
  for (const std::string_view text_of_line : parts_of(text, "\n")) {
    const ConfigLine line(text_of_line, cat(file, ", line ", ++number));
    if (!line.section.empty()) {
      under = line.section;
      check_word("unknown section", under, sections, in_file);
    }
    if (line.key.empty() || (!under.empty() && under != section)) continue;
    Flag* flag = flags.find(line.key);
    const std::string shown = escaped(line.key) + (under.empty() ? "" : " under [" + under + "]");
    // A checkpoint may come from anywhere: it has no say in what is never saved, such as files to
    // write.
    const std::string instead = in_place_of(line.key);
    SINTER_CHECK(flag && (flag->saved || source != Source::checkpoint), usage,
        cat("usage: unknown key: ", shown, in_file,
            instead.empty() ? "; " + nearest_or_all(line.key, flags.names()) : ""),
        instead);
    SINTER_CHECK(flag->global == under.empty(), usage,
        cat("usage: key in the wrong place: ", shown, in_file, "; it belongs ",
            flag->global ? "on top" : "under [" + section + "]"));
    SINTER_CHECK(
        seen.insert(line.key).second, usage, cat("usage: a key stands twice: ", shown, in_file));
    Flags::set(*flag, line.value, source, in_file);
  }
}

}  // namespace sinter::cli
