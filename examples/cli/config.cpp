#include <algorithm>
#include <set>
#include <sstream>

#include "examples/cli/app.h"

namespace sinter::cli {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Where a comment begins, or the end: a # inside quotes begins none.
size_t end_of_content(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote == 0 && line[i] == '#') return i;
    if (quote == 0 && (line[i] == '"' || line[i] == '\'')) {
      quote = line[i];
    } else if (line[i] == quote) {
      quote = 0;
    }
  }
  return line.size();
}

bool is_in_quotes(std::string_view text) {
  return text.size() >= 2 && (text[0] == '"' || text[0] == '\'') &&
         text.find(text[0], 1) == text.size() - 1;
}

struct Config {
  const std::string& file;
  Flags& flags;
  const std::string& wanted_section;
  const std::vector<std::string>& sections;
  Source source;
  std::string section{};  // of the lines being read
  std::set<std::string> seen{};

  void begin_section(std::string_view name) {
    section = without_blanks(name);
    SINTER_CHECK(std::ranges::find(sections, section) != sections.end(), usage,
        cat("usage: unknown section: [", escaped(section), "] in ", file, "; ",
            nearest_or_all(section, sections)));
  }

  void take(const std::string& key, std::string_view value) {
    if (!section.empty() && section != wanted_section) return;
    Flag* flag = flags.find(key);
    const std::string shown = escaped(key) + (section.empty() ? "" : " under [" + section + "]");
    // A checkpoint may come from anywhere: it has no say in what is never saved, such as files to
    // write.
    SINTER_CHECK(flag && (flag->saved || source != Source::checkpoint), usage,
        cat("usage: unknown key: ", shown, " in ", file, "; ", nearest_or_all(key, flags.names())));
    SINTER_CHECK(flag->global == section.empty(), usage,
        cat("usage: key in the wrong place: ", shown, " in ", file, "; it belongs ",
            flag->global ? "on top" : "under [" + wanted_section + "]"));
    SINTER_CHECK(!value.starts_with('[') && seen.insert(key).second, usage,
        cat("usage: one value is wanted: ", shown, " in ", file,
            "; it has several, or stands there twice"),
        cat(key, " = \"", flag->once ? "256,128" : "..", "\""));
    if (is_in_quotes(value)) value = value.substr(1, value.size() - 2);
    Flags::set(*flag, std::string(value), source, " in " + file);
  }
};

}  // namespace

void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections, Source source) {
  Config config{file, flags, section, sections, source};
  std::istringstream in(text);
  int number = 0;
  for (std::string whole; std::getline(in, whole);) {
    ++number;
    const std::string_view line =
        without_blanks(std::string_view(whole).substr(0, end_of_content(whole)));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    const bool is_section = line.front() == '[' && line.back() == ']';
    SINTER_CHECK(is_section || (equals != std::string_view::npos && equals > 0), usage,
        cat("usage: cannot read the config: ", file, "; line ", number,
            " is neither [section] nor key = value: ", escaped(line.substr(0, 80))));
    if (is_section) {
      config.begin_section(line.substr(1, line.size() - 2));
    } else {
      config.take(std::string(without_blanks(line.substr(0, equals))),
          without_blanks(line.substr(equals + 1)));
    }
  }
}

}  // namespace sinter::cli
