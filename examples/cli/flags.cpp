#include "examples/cli/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "examples/cli/output.h"
#include "examples/cli/text.h"

namespace sinter::cli {
namespace {

// As a config has it; "" is not written. Between ' and ' every byte but these and control bytes
// means itself, so a name of a file that is no UTF-8 comes back, too.
std::string in_quotes(const std::string& text) {
  const bool control = escaped(text) != text;
  if (text.empty() || (!control && text.find_first_of("\"\\") == text.npos))
    return text.empty() ? "" : '"' + text + '"';
  if (!control && text.find('\'') == text.npos) return '\'' + text + '\'';
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A value in a message, where "" would be read over.
std::string in_message(const std::string& value) { return value.empty() ? "\"\"" : escaped(value); }

// The whole text as a T; what is wrong with it otherwise.
template <class T>
T parse(const std::string& what, const std::string& text, T low, T high, const std::string& where) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string allowed = fmt::format("; allowed {}..{}{}", low, high, where);
  const bool whole =
      !text.empty() && end == text.data() + text.size() && error != std::errc::invalid_argument;
  SINTER_CHECK(whole, usage,
      cat(what, " is not ", std::is_floating_point_v<T> ? "a number" : "a whole number", ": ",
          in_message(text), allowed));
  bool in_range = error == std::errc() && value >= low && value <= high;  // no NaN is
  SINTER_CHECK(in_range, usage, cat(what, " out of range: ", escaped(text), allowed));
  return value;
}

}  // namespace

std::vector<std::string> split(
    const std::string& what, const std::string& text, const std::string& where) {
  std::vector<std::string> items;
  for (std::string_view item : parts_of(text, ",")) {
    item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
    items.emplace_back(item);
    SINTER_CHECK(!items.back().empty(), usage,
        cat(what, " has an empty item: ", in_message(text), "; item ", items.size(), where));
  }
  return items;
}

int64_t parse_integer(const std::string& what, const std::string& text, int64_t low, int64_t high,
    const std::string& where) {
  return parse<int64_t>(what, text, low, high, where);
}
double parse_number(const std::string& what, const std::string& text, double low, double high,
    const std::string& where) {
  return parse<double>(what, text, low, high, where);
}

std::string nearest_or_all(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kShort = 12;
  const std::string nearest = nearest_word(word, known), allowed = "allowed " + join(known);
  if (nearest.empty()) return allowed;
  return "nearest is " + nearest + (known.size() <= kShort ? "; " + allowed : "");
}

Flag& Flags::add(
    std::string_view names, std::string value, std::string standard, std::string help) {
  const std::vector<std::string_view> all = parts_of(names, ",");
  Flag flag{.name = std::string(all[0]),
      .topic = topic_,
      .value = std::move(value),
      .help = std::move(help),
      .standard = std::move(standard),
      .global = global_};
  for (size_t i = 1; i < all.size(); ++i)
    flag.other.push_back(fmt::format("{}{}", all[i].size() == 1 ? "-" : "--", all[i]));
  return flags_.emplace_back(std::move(flag));
}

Flag& Flags::toggle(std::string_view names, bool& target, std::string help) {
  Flag& flag = add(names, "", "", std::move(help));
  flag.set = [&target, name = flag.shown()](const std::string& text, const std::string& where) {
    SINTER_CHECK(text == "true" || text == "false", usage,
        cat("usage: ", name, " is on or off: ", in_message(text), "; allowed true, false", where));
    target = text == "true";
  };
  flag.get = [&target] { return target ? "true" : "false"; };
  return flag;
}

Flag& Flags::word(
    std::string_view names, std::string& target, std::string value, std::string help, Check check) {
  Flag& flag = add(names, std::move(value), target, std::move(help));
  flag.set = [&target, check = std::move(check)](const std::string& text, const std::string&) {
    target = text;
    if (check) check(text);
  };
  flag.get = [&target] { return in_quotes(target); };
  return flag;
}

Flag& Flags::choice(std::string_view names, std::string& target, std::vector<std::string> allowed,
    std::string help) {
  Flag& flag = add(names, join(allowed, "|"), target, std::move(help));
  flag.set = [&target, allowed, name = flag.shown()](
                 const std::string& text, const std::string& where) {
    const bool known = std::ranges::find(allowed, text) != allowed.end();
    SINTER_CHECK(known, usage,
        cat("usage: unknown ", name, ": ", in_message(text), "; ", nearest_or_all(text, allowed),
            where));
    target = text;
  };
  flag.get = [&target] { return in_quotes(target); };
  return flag;
}

template <class Target>
Flag& Flags::number(std::string_view names, Target& target, NumberOf<Target> low,
    NumberOf<Target> high, std::string help) {
  using T = NumberOf<Target>;
  const auto written = [&target]() -> std::string {
    if constexpr (std::is_same_v<T, Target>)
      return fmt::format("{}", target);
    else
      return target ? fmt::format("{}", *target) : "";
  };
  Flag& flag = add(names, std::is_floating_point_v<T> ? "X" : "N", written(), std::move(help));
  flag.set = [&target, low, high, what = "usage: " + flag.shown()](const std::string& text,
                 const std::string& where) { target = parse<T>(what, text, low, high, where); };
  flag.get = written;
  return flag;
}
#define SINTER_FLAG_OF_NUMBER(T) \
  template Flag& Flags::number(std::string_view, T&, NumberOf<T>, NumberOf<T>, std::string)
SINTER_FLAG_OF_NUMBER(int);
SINTER_FLAG_OF_NUMBER(int64_t);
SINTER_FLAG_OF_NUMBER(uint64_t);
SINTER_FLAG_OF_NUMBER(double);
SINTER_FLAG_OF_NUMBER(std::optional<int64_t>);
SINTER_FLAG_OF_NUMBER(std::optional<double>);
#undef SINTER_FLAG_OF_NUMBER

Flag& Flags::integers(std::string_view names, std::vector<int64_t>& target, int64_t low,
    int64_t high, std::string help) {
  Flag& flag = add(names, "N,N,..", join(target, ","), std::move(help));
  flag.once = true;
  flag.set = [&target, low, high, what = "usage: " + flag.shown()](
                 const std::string& text, const std::string& where) {
    std::vector<int64_t> values;
    for (const std::string& item : split(what, text, where))
      values.push_back(parse<int64_t>(what, item, low, high, where));
    target = std::move(values);
  };
  flag.get = [&target] { return cat('"', join(target, ","), '"'); };
  return flag;
}

Flag* Flags::find(std::string_view name) {
  const auto it =
      std::ranges::find_if(flags_, [name](const Flag& flag) { return flag.name == name; });
  return it == flags_.end() ? nullptr : &*it;
}

const Flag& Flags::operator[](std::string_view name) const {
  const Flag* flag = const_cast<Flags*>(this)->find(name);
  SINTER_ASSERT(flag, "no flag ", name);
  return *flag;
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> out;
  for (const Flag& flag : flags_) out.push_back(flag.name);
  return out;
}

void Flags::set(Flag& flag, const std::string& text, Source source, const std::string& where) {
  if (source < flag.source) return;
  flag.set(text, where);
  flag.given = text;
  flag.source = source;
}

bool Flags::first_wins(std::string_view a, std::string_view b) const {
  const Flag &first = (*this)[a], &second = (*this)[b];
  SINTER_CHECK(first.source != second.source || first.source == Source::standard, usage,
      cat("usage: ", first.shown(), " and ", second.shown(), " exclude each other: ", a, " is ",
          escaped(first.given), ", ", b, " is ", escaped(second.given)));
  return first.source >= second.source;
}

std::string Flags::config(std::string_view section) const {
  std::string out;
  for (const bool global : {true, false}) {
    if (!global) out += fmt::format("[{}]\n", section);
    for (const Flag& flag : flags_) {
      if (const std::string value = flag.saved && flag.global == global ? flag.get() : "";
          !value.empty())
        out += fmt::format("{} = {}\n", flag.name, value);
    }
  }
  return out;
}

}  // namespace sinter::cli
