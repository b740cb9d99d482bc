#include "examples/cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "examples/cli/text.h"

namespace sinter::cli {
namespace {

bool looks_like_flag(std::string_view word) { return word.size() > 1 && word[0] == '-'; }

Flag* flag_of_name(Flags& flags, const std::string& name) {
  for (Flag& flag : flags.all()) {
    if (name == flag.shown() || std::ranges::find(flag.other, name) != flag.other.end())
      return &flag;
  }
  return nullptr;
}

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

// The words that are left, from the front.
class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : left_(words.begin(), words.end()) {}
  bool empty() const { return left_.empty(); }
  const std::string& front() const { return left_.front(); }
  void put_back(std::string word) { left_.push_front(std::move(word)); }
  std::string take() {
    std::string word = std::move(left_.front());
    left_.pop_front();
    return word;
  }

 private:
  std::deque<std::string> left_;
};

// What follows a flag that was given without "=".
std::string next_value(const Flag& flag, Words& words, const std::string& hint) {
  if (flag.value.empty()) return "true";
  if (!flag.bare_value.empty() && (words.empty() || looks_like_flag(words.front())))
    return flag.bare_value;
  SINTER_CHECK(!words.empty(), usage,
      cat("usage: ", flag.shown(), " needs a value: it is the last word"), hint);
  const std::string value = words.take();
  SINTER_CHECK(!value.starts_with("--"), usage,
      cat("usage: ", flag.shown(), " needs a value: the next word is ", escaped(value)), hint);
  return value;
}

}  // namespace

std::vector<std::string> words_of(int argc, char** argv) {
  return {argv + std::min(argc, 1), argv + argc};
}

void take_words(const std::vector<std::string>& given, Flags& flags, const std::string& name,
    const std::string& call, std::vector<std::string>* inputs) {
  const std::string hint = cat(call, " --help lists the flags");
  std::map<const Flag*, std::string> lists;  // as they were given
  Words words(given);
  bool no_more_flags = false;
  while (!words.empty()) {
    std::string word = words.take();
    if (word == "--" && !no_more_flags) {
      no_more_flags = true;
      continue;
    }
    if (no_more_flags || !looks_like_flag(word)) {
      SINTER_CHECK(inputs, usage,
          cat("usage: unexpected word: ", escaped(word), " for ", name, "; a flag is wanted"),
          hint);
      inputs->push_back(word);
      continue;
    }
    // "-qv" is "-q -v", and "-oNAME" is "-o NAME".
    if (word[1] != '-' && word.size() > 2 && word[2] != '=') {
      if (const Flag* first = flag_of_name(flags, word.substr(0, 2))) {
        words.put_back((first->value.empty() ? "-" : "") + word.substr(2));
        word.resize(2);
      }
    }
    const size_t equals = word.find('=');
    const std::string flag_name = word.substr(0, equals);
    Flag* flag = flag_of_name(flags, flag_name);
    if (!flag) refuse_flag(flag_name, flags, name, hint);
    std::string value =
        equals == std::string::npos ? next_value(*flag, words, hint) : word.substr(equals + 1);
    if (value.empty()) value = flag->bare_value;
    if (flag->once) {
      const auto [earlier, is_first] = lists.emplace(flag, value);
      SINTER_CHECK(is_first, usage,
          cat("usage: ", flag->shown(), " is a list, given 2 times: ", escaped(earlier->second),
              " and ", escaped(value)),
          cat("one list, as in ", flag->shown(), " ", escaped(value)));
    }
    Flags::set(*flag, value, Source::command_line);
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
