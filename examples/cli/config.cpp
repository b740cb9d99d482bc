#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/cli/flags.h"
#include "examples/cli/output.h"

namespace sinter::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

struct ConfigLine {
  std::string section{};  // of "[section]"
  std::string key{}, value{};
};

// See apply_config(). CLI11 2.1 reads configs, too, but passes over lines that it does not
// understand, ends a text in quotes at a #, lets the file win over the environment, and sets what
// stands under other commands.
ConfigLine parse_line(std::string_view text, const std::string& where) {
  const std::string_view line = trimmed(text);
  const auto check = [&](bool good, const char* why) {
    SINTER_CHECK(good, usage,
        cat("usage: cannot read the config: ", where, ": ", escaped(line), "; ", why),
        "lr = 0.001, act = \"relu\" and hidden = \"256,128\" are values");
  };
  const auto ends = [](std::string_view rest) {
    return trimmed(rest).empty() || trimmed(rest).starts_with('#');
  };
  if (ends(line)) return {};
  if (line.starts_with('[')) {
    const size_t end = line.find(']');
    const std::string section(trimmed(line.substr(1, std::min(end, line.size()) - 1)));
    check(end != line.npos && !section.empty() && section[0] != '[' && ends(line.substr(end + 1)),
        "a section is one name, [train]");
    return {.section = section};
  }
  const size_t equals = line.find('=');
  check(equals != line.npos, "it is no [section], no key = value and no # comment");
  ConfigLine out{.key = std::string(trimmed(line.substr(0, equals)))};
  check(!out.key.empty(), "its key is missing");
  const std::string_view rest = trimmed(line.substr(equals + 1));
  if (rest.starts_with('"') || rest.starts_with('\'')) {
    // A text ends at its quote. In double quotes \ begins an escape; TOML's are JSON's.
    const bool escapes = rest[0] == '"';
    size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += escapes && rest[end] == '\\' ? 2 : 1;
    check(end < rest.size(), "its quotes are not closed");
    check(ends(rest.substr(end + 1)), "one value is wanted, and more stands behind it");
    out.value = rest.substr(1, end - 1);
    if (!escapes || out.value.find('\\') == out.value.npos) return out;
    const Json value = Json::parse(rest.substr(0, end + 1), nullptr, false);
    check(value.is_string(), "allowed escapes are \\\" \\\\ \\b \\f \\n \\r \\t \\uXXXX");
    out.value = value.get<std::string>();
    return out;
  }
  out.value = trimmed(rest.substr(0, rest.find('#')));
  check(!out.value.empty(), "its value is missing");
  check(out.value.find_first_of(" \t\"'[]{}=") == out.value.npos,
      "one value is wanted, a text in quotes");
  return out;
}

}  // namespace

void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections, Source source) {
  const std::string in_file = " in " + file;
  std::set<std::string> seen;
  std::string under;
  int number = 0;
  for (const std::string_view text_of_line : parts_of(text, "\n")) {
    const ConfigLine line = parse_line(text_of_line, cat(file, ", line ", ++number));
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
