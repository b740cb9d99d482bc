#include "examples/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <sstream>

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

void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections, Source source) {
  const std::string in_file = " in " + file;
  std::istringstream in(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(in);
  } catch (const CLI::Error& error) {
    throw Error(Error::Kind::usage,
        cat("usage: cannot read the config: ", file, "; ", escaped(error.what())));
  }
  std::set<std::string> seen;
  for (const CLI::ConfigItem& item : items) {
    const std::string under = item.parents.empty() ? "" : CLI::detail::join(item.parents, ".");
    const bool known_section =
        under.empty() || std::ranges::find(sections, under) != sections.end();
    SINTER_CHECK(known_section, usage,
        cat("usage: unknown section: [", escaped(under), "]", in_file, "; ",
            nearest_or_all(under, sections)));
    if (item.name == "++" || item.name == "--" || (!under.empty() && under != section))
      continue;  // a section's begin, end, or not ours
    Flag* flag = flags.find(item.name);
    const std::string shown = escaped(item.name) + (under.empty() ? "" : " under [" + under + "]");
    // A checkpoint may come from anywhere: it has no say in what is never saved, such as files to
    // write.
    SINTER_CHECK(flag && (flag->saved || source != Source::checkpoint), usage,
        cat("usage: unknown key: ", shown, in_file, "; ",
            nearest_or_all(item.name, flags.names())));
    SINTER_CHECK(flag->global == under.empty(), usage,
        cat("usage: key in the wrong place: ", shown, in_file, "; it belongs ",
            flag->global ? "on top" : "under [" + section + "]"));
    const bool single = item.inputs.size() == 1 && seen.insert(item.name).second;
    SINTER_CHECK(single, usage,
        cat("usage: one value is wanted: ", shown, in_file,
            "; it has several, or stands there twice"),
        cat(item.name, " = \"", flag->once ? "256,128" : "..", "\""));
    Flags::set(*flag, item.inputs[0], source, in_file);
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
