#include "cli/flags.h"

#include <algorithm>
#include <set>

#include "cli/output.h"
#include "core/json.h"

namespace sinter::cli {
namespace {

// As a config has it; "" is not written. Between ' and ' every byte but these and control bytes
// means itself, so a name of a file that is no UTF-8 comes back, too.
std::string in_quotes(const std::string& text) {
  const bool control = escaped(text) != text;
  if (text.empty() || (!control && text.find_first_of("\"\\") == text.npos))
    return text.empty() ? "" : '"' + text + '"';
  if (!control && text.find('\'') == text.npos) return '\'' + text + '\'';
  return json_text(text);
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

struct ConfigLine {
  std::string section{};  // of "[section]"
  std::string key{}, value{};
};

// See apply_config(). Others read configs, too. CLI11 2.1 passes over lines that it does not
// understand, ends a text in quotes at a #, lets the file win over the environment, and sets what
// stands under other commands. toml++ 3.3 keeps TOML's word: it refuses what runs have saved, a
// seed of 2^63 or more and the name of a folder that is no UTF-8, and a word without quotes.
ConfigLine parse_line(std::string_view text, const std::string& where) {
  const std::string_view line = trimmed(text);
  const auto check = [&](bool good, const char* why) {
    SINTER_CHECK(good, usage,
        str("usage: cannot read the config: ", where, ": ", escaped(line), "; ", why),
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

std::vector<std::string> split(const std::string& what, const std::string& text) {
  std::vector<std::string> items;
  for (std::string_view item : parts_of(text, ",")) {
    item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
    items.emplace_back(item);
    SINTER_CHECK(!items.back().empty(), usage,
        str(what, " has an empty item: ", in_message(text), "; item ", items.size()));
  }
  return items;
}

std::string nearest_or_all(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kShort = 12;
  const std::string nearest = nearest_word(word, known), allowed = "allowed " + join(known);
  if (nearest.empty()) return allowed;
  return "nearest is " + nearest + (known.size() <= kShort ? "; " + allowed : "");
}

void check_word(const std::string& what, const std::string& word,
    const std::vector<std::string>& known, const std::string& where, const std::string& hint) {
  SINTER_CHECK(std::ranges::find(known, word) != known.end(), usage,
      str("usage: ", what, ": ", in_message(word), where, "; ", nearest_or_all(word, known)), hint);
}

Flag& Flags::add(std::string_view names, std::string value, std::string standard, std::string help,
    decltype(Flag::set) set, decltype(Flag::get) get) {
  std::vector<std::string> dashed;
  for (const std::string_view name : parts_of(names, ","))
    dashed.push_back(str(name.size() == 1 ? "-" : "--", name));
  return flags_.emplace_back(Flag{.name = dashed[0].substr(2),
      .names = join(dashed, ","),
      .topic = topic_,
      .value = std::move(value),
      .help = std::move(help),
      .standard = std::move(standard),
      .set = std::move(set),
      .get = std::move(get),
      .global = global_});
}

Flag& Flags::toggle(std::string_view names, bool& target, std::string help) {
  return add(
      names, "", "", std::move(help),
      [&target](const std::string& what, const std::string& text) {
        SINTER_CHECK(text == "true" || text == "false", usage,
            str(what, " is on or off: ", in_message(text), "; allowed true, false"));
        target = text == "true";
      },
      [&target] { return target ? "true" : "false"; });
}

Flag& Flags::word(std::string_view names, std::string& target, std::string value, std::string help,
    std::function<void(const std::string& text)> check) {
  Flag& flag = add(
      names, std::move(value), target, std::move(help),
      [&target, check = std::move(check)](const std::string&, const std::string& text) {
        target = text;
        if (check) check(text);
      },
      [&target] { return in_quotes(target); });
  flag.target = &target;
  return flag;
}

Flag& Flags::choice(std::string_view names, std::string& target, std::vector<std::string> allowed,
    std::string help, std::vector<std::pair<std::string, std::string>> aliases) {
  const std::string value = join(allowed, "|");
  Flag& flag = add(
      names, value, target, std::move(help),
      [&target, allowed = std::move(allowed), aliases = std::move(aliases)](
          const std::string& what, const std::string& text) {
        const std::string word = lower_case(text);
        const auto alias = std::ranges::find(aliases, word, &decltype(aliases)::value_type::first);
        const std::string& chosen = alias == aliases.end() ? word : alias->second;
        const bool known = std::ranges::find(allowed, chosen) != allowed.end();
        check_word("unknown " + what.substr(what.find("--")), known ? chosen : text, allowed);
        target = chosen;
      },
      [&target] { return in_quotes(target); });
  flag.target = &target;
  return flag;
}

Flag* Flags::find(std::string_view name) {
  const auto it = std::ranges::find(flags_, name, &Flag::name);
  return it == flags_.end() ? nullptr : &*it;
}

const Flag& Flags::operator[](std::string_view name) const {
  const Flag* flag = const_cast<Flags*>(this)->find(name);
  SINTER_ASSERT(flag, "no flag ", name);
  return *flag;
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> out;
  for (const Flag& flag : flags_) {
    if (!flag.hidden) out.push_back(flag.name);
  }
  return out;
}

bool Flags::has_use(const Flag& flag) const {
  return flag.takers.empty() || std::ranges::count(flag.takers, *(*this)[flag.of].target) > 0;
}

void Flags::check_uses() const {
  for (const Flag& flag : flags_) {
    SINTER_CHECK(has_use(flag) || flag.source < Source::file, usage,
        str("usage: --", flag.of, " ", escaped(*(*this)[flag.of].target), " has no use for ",
            flag.shown(), ", which is for ", join(flag.takers)),
        str("leave it out, or --", flag.of, " ", flag.takers[0]));
  }
}

void Flags::set(Flag& flag, const std::string& text, Source source, const std::string& where) {
  if (source < flag.source) return;
  const std::string what = "usage: " + flag.shown();
  try {
    flag.set(what, text);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::usage) throw;
    // The library does not know whose value it refuses: "augment: unknown word: .."
    std::string said = error.message();
    if (!said.starts_with("usage: ")) said.replace(0, said.find(": "), what);
    const std::string instead = in_place_of(flag.name, text);
    throw Error(Error::Kind::usage, said + where, instead.empty() ? error.hint() : instead);
  }
  flag.given = text;
  flag.source = source;
}

bool Flags::first_wins(std::string_view a, std::string_view b) const {
  const Flag &first = (*this)[a], &second = (*this)[b];
  SINTER_CHECK(first.source != second.source || first.source == Source::standard, usage,
      str("usage: ", first.shown(), " and ", second.shown(), " exclude each other: ", a, " is ",
          escaped(first.given), ", ", b, " is ", escaped(second.given)));
  return first.source >= second.source;
}

std::string Flags::config(std::string_view section) const {
  std::string out;
  for (const bool global : {true, false}) {
    if (!global) out += fmt::format("[{}]\n", section);
    for (const Flag& flag : flags_) {
      if (const std::string text = flag.saved && flag.global == global ? value(flag) : "";
          !text.empty())
        out += fmt::format("{} = {}\n", flag.name, text);
    }
  }
  return out;
}

void apply_config(const std::string& text, const std::string& file, Flags& flags,
    const std::string& section, const std::vector<std::string>& sections, Source source) {
  std::set<std::string> seen;
  std::string under;
  int number = 0;
  for (const std::string_view text_of_line : parts_of(text, "\n")) {
    const std::string place = str(file, ", line ", ++number), in_file = " in " + place;
    const ConfigLine line = parse_line(text_of_line, place);
    if (!line.section.empty()) {
      under = line.section;
      check_word("unknown section", under, sections, in_file);
    }
    if (line.key.empty() || (!under.empty() && under != section)) continue;
    Flag* flag = flags.find(line.key);
    const std::string shown = escaped(line.key) + (under.empty() ? "" : " under [" + under + "]");
    SINTER_CHECK(line.key != "config", usage,
        str("usage: a config names no other: ", shown, in_file, " is ", in_message(line.value)),
        "its lines can stand here; what the command line gives wins over both");
    // A checkpoint may come from anywhere: it has no say in what is never saved, such as files to
    // write.
    const std::string instead = in_place_of(line.key);
    SINTER_CHECK(flag && (flag->saved || source != Source::checkpoint), usage,
        str("usage: unknown key: ", shown, in_file,
            instead.empty() ? "; " + nearest_or_all(line.key, flags.names()) : ""),
        instead);
    SINTER_CHECK(flag->global == under.empty(), usage,
        str("usage: key in the wrong place: ", shown, in_file, "; it belongs ",
            flag->global ? "on top" : "under [" + section + "]"));
    SINTER_CHECK(
        seen.insert(line.key).second, usage, str("usage: a key stands twice: ", shown, in_file));
    Flags::set(*flag, line.value, source, in_file);
  }
}

}  // namespace sinter::cli
