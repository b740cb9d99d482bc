#include "examples/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/cli/output.h"
#include "examples/cli/text.h"

namespace sinter::cli {
namespace {

[[noreturn]] void refuse_flag(const std::string& given, const Flags& flags, const std::string& name,
    const std::string& hint) {
  std::vector<std::string> known;
  for (const Flag& flag : flags.all()) {
    known.push_back(flag.shown());
    known.insert(known.end(), flag.other.begin(), flag.other.end());
  }
  const std::string nearest = nearest_word(given, known);
  throw Error(Error::Kind::usage,
      cat("usage: unknown flag: ", escaped(given), " for ", name,
          nearest.empty() ? "" : "; nearest is " + nearest),
      hint);
}

// CLI11 takes the words apart; what a value may be, which source counts and what is nearest to a
// misspelt name is for Flags to say.
class Splitter {
 public:
  Splitter(const Flags& flags, std::vector<std::string>* inputs) {
    app_.set_help_flag();
    app_.allow_extras();
    for (const Flag& flag : flags.all()) {
      const std::string names =
          flag.shown() + (flag.other.empty() ? "" : "," + join(flag.other, ","));
      CLI::Option* option = flag.value.empty() ? app_.add_flag(names) : app_.add_option(names);
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      if (!flag.bare_value.empty()) option->expected(0, 1);
      options_.push_back(option);
    }
    if (inputs) app_.add_option("inputs", *inputs);
  }
  void parse(std::vector<std::string> words) {
    std::ranges::reverse(words);  // as CLI11 wants them
    app_.parse(words);
  }
  // What was given for the flags, in their order.
  std::vector<std::string> values(size_t flag) const { return options_[flag]->results(); }
  std::vector<std::string> not_placed() const { return app_.remaining(); }

 private:
  CLI::App app_;
  std::vector<CLI::Option*> options_;
};

void take_values(Flag& flag, const std::vector<std::string>& values, const std::string& hint) {
  if (values.empty()) return;
  SINTER_CHECK(!flag.once || values.size() == 1, usage,
      cat("usage: ", flag.shown(), " is a list, given ", values.size(),
          " times: ", escaped(join(values, " and "))),
      cat("one list, as in ", flag.shown(), " ", escaped(values.back())));
  // CLI11 takes the next word as the value, whatever it is; and an optional value left out arrives
  // as "true" or empty.
  std::string value = values.back();
  if (!flag.bare_value.empty() && (value.empty() || value == "true")) value = flag.bare_value;
  SINTER_CHECK(flag.value.empty() || !value.starts_with("--"), usage,
      cat("usage: ", flag.shown(), " needs a value: the next word is ", escaped(value)), hint);
  Flags::set(flag, value, Source::command_line);
}

}  // namespace

std::vector<std::string> words_of(int argc, char** argv) {
  return {argv + std::min(argc, 1), argv + argc};
}

void take_words(const std::vector<std::string>& given, Flags& flags, const std::string& name,
    const std::string& call, std::vector<std::string>* inputs) {
  const std::string hint = cat(call, " --help lists the flags");
  Splitter splitter(flags, inputs);
  try {
    splitter.parse(given);
  } catch (const CLI::ArgumentMismatch& error) {  // "--epochs: 1 required  missing"
    const std::string said = error.what();
    throw Error(Error::Kind::usage,
        cat("usage: ", escaped(said.substr(0, said.find(": "))),
            " needs a value: nothing follows it"),
        hint);
  } catch (const CLI::ParseError& error) {
    throw Error(Error::Kind::usage, cat("usage: ", escaped(error.what())), hint);
  }
  size_t number = 0;
  for (Flag& flag : flags.all()) take_values(flag, splitter.values(number++), hint);
  const std::vector<std::string> others = splitter.not_placed();
  if (others.empty()) return;
  const std::string first = others[0].substr(0, others[0].find('='));
  SINTER_CHECK(first.starts_with('-'), usage,
      cat("usage: unexpected word: ", escaped(others[0]), " for ", name, "; a flag is wanted"),
      hint);
  refuse_flag(first, flags, name, hint);
}

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// A line of a config, see apply_config(). CLI11 2.1 reads one, too, but passes over what it does
// not understand and ends a text in quotes at a #.
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
      SINTER_CHECK(std::ranges::find(sections, under) != sections.end(), usage,
          cat("usage: unknown section: [", escaped(under), "]", in_file, "; ",
              nearest_or_all(under, sections)));
    }
    if (line.key.empty() || (!under.empty() && under != section)) continue;
    Flag* flag = flags.find(line.key);
    const std::string shown = escaped(line.key) + (under.empty() ? "" : " under [" + under + "]");
    // A checkpoint may come from anywhere: it has no say in what is never saved, such as files to
    // write.
    SINTER_CHECK(flag && (flag->saved || source != Source::checkpoint), usage,
        cat("usage: unknown key: ", shown, in_file, "; ", nearest_or_all(line.key, flags.names())));
    SINTER_CHECK(flag->global == under.empty(), usage,
        cat("usage: key in the wrong place: ", shown, in_file, "; it belongs ",
            flag->global ? "on top" : "under [" + section + "]"));
    SINTER_CHECK(
        seen.insert(line.key).second, usage, cat("usage: a key stands twice: ", shown, in_file));
    Flags::set(*flag, line.value, source, in_file);
  }
}

std::string wrapped(std::string start, std::string_view text, size_t indent) {
  size_t column = start.size() - (start.rfind('\n') + 1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const bool line_is_empty = column <= indent;
    if (!line_is_empty && column + 1 + word.size() > 80) {
      start += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!line_is_empty) {
      start += ' ';
      ++column;
    }
    start += word;
    column += word.size();
  }
  return start + "\n";
}

std::string flag_lines(const Flags& flags) {
  std::vector<std::string> topics;
  for (const Flag& flag : flags.all()) {
    if (std::ranges::find(topics, flag.topic) == topics.end()) topics.push_back(flag.topic);
  }
  if (!flags.all().empty() && flags.all().front().global)
    std::rotate(topics.begin(), topics.begin() + 1, topics.end());
  std::string out;
  for (const std::string& topic : topics) {
    out += "\n" + (topic.empty() ? "" : topic + "\n");
    for (const Flag& flag : flags.all()) {
      if (flag.topic != topic || flag.hidden) continue;
      std::string left = "  " + flag.shown();
      for (const std::string& other : flag.other) left += ", " + other;
      if (!flag.value.empty())
        left += flag.bare_value.empty() ? " " + flag.value : "[=" + flag.value + "]";
      if (left.size() > 27) left += "\n" + std::string(28, ' ');
      const std::string standard = flag.standard.empty() ? "" : "[" + flag.standard + "]";
      out += wrapped(fmt::format("{:<28}", left),
          flag.help + (flag.help.empty() || standard.empty() ? "" : " ") + standard, 28);
    }
  }
  return out;
}

}  // namespace sinter::cli
