#include "examples/gpt/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/numbers.h"
#include "data/bytes.h"

namespace sinter::gpt {

char32_t next_letter(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : 0U; };
  const uint32_t first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  char32_t letter = first & (0x3fU >> more);
  for (int i = 0; i < more; ++i, ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
    letter = letter << 6 | (byte(at) & 0x3f);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  const bool is_one = first >= 0xc0 && first < 0xf8 && letter >= kLeast[more] &&
                      letter < 0x110000 && (letter < 0xd800 || letter > 0xdfff);
  return is_one ? letter : 0;
}

namespace {

void append(std::string& out, char32_t letter, bool bytes) {
  if (bytes || letter < 0x80) {
    out += char(letter);
    return;
  }
  const int more = letter >= 0x10000 ? 3 : letter >= 0x800 ? 2 : 1;
  out += char(((0xff00U >> (more + 1)) & 0xff) | letter >> (6 * more));
  for (int i = more - 1; i >= 0; --i) out += char(0x80 | (letter >> (6 * i) & 0x3f));
}

}  // namespace

Letters letters_of(std::string_view text, bool bytes, const std::string& name, int64_t line) {
  Letters out;
  out.reserve(text.size());
  for (const char c : bytes ? text : "") out.push_back(uint8_t(c));
  if (bytes) return out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    out.push_back(next_letter(text, at));
    if (out.back() != 0) continue;
    const std::string_view before = text.substr(0, begin);
    SINTER_CHECK(false, data,
        str("text: ", text[begin] == 0 ? "a NUL" : "not UTF-8", ": ", name, ", line ",
            line + std::ranges::count(before, '\n'), ", byte ", begin - before.rfind('\n'),
            text[begin] == 0 ? "" : fmt::format(" is {:#04x}", uint8_t(text[begin]))),
        "a model trained with --symbols bytes takes any bytes for letters");
  }
  return out;
}

Vocabulary::Vocabulary(std::string_view text, bool bytes, bool documents, const std::string& name)
    : letters_(letters_of(text, bytes, name)), bytes_(bytes), documents_(documents) {
  if (documents) std::erase(letters_, U'\n');
  std::ranges::sort(letters_);
  const auto rest = std::ranges::unique(letters_);
  letters_.erase(rest.begin(), rest.end());
  SINTER_CHECK(letters_.size() >= 2, data,
      str("text: one letter: ", name, " has ",
          letters_.empty() ? "none but ends of lines" : "no letter but " + shown(letters_[0]),
          "; at least 2, or there is nothing to learn"));
  SINTER_CHECK(letters_.size() <= kMost, data,
      str("text: too many letters: ", name, " has ", letters_.size(), " different ones, at most ",
          kMost),
      "--symbols bytes has 256 at most");
}

Vocabulary::Vocabulary(const std::string& ranges, bool bytes, bool documents)
    : bytes_(bytes), documents_(documents) {
  for (const std::string_view range : parts_of(ranges, ",")) {
    const char* const end = range.data() + range.size();
    uint32_t first = 0;
    const auto [at, error] = std::from_chars(range.data(), end, first);
    uint32_t last = first;
    const bool pair = error == std::errc() && at != end && *at == '-';
    const auto [stop, more] =
        pair ? std::from_chars(at + 1, end, last) : std::from_chars_result{at, error};
    SINTER_CHECK(more == std::errc() && stop == end && first <= last && last < 0x110000 &&
                     last - first + letters_.size() < kMost &&
                     (letters_.empty() || first > letters_.back()),
        checkpoint, str("checkpoint: letters are no rising ranges: ", escaped(ranges)));
    for (; first <= last; ++first) letters_.push_back(first);
  }
}

std::string Vocabulary::text() const {
  std::string out;
  for (size_t i = 0; i < letters_.size();) {
    size_t last = i;
    while (last + 1 < letters_.size() && letters_[last + 1] == letters_[last] + 1) ++last;
    out += str(i ? "," : "", uint32_t(letters_[i]));
    if (last > i) out += str("-", uint32_t(letters_[last]));
    i = last + 1;
  }
  return out;
}

std::string Vocabulary::shown(char32_t letter) const {
  std::string out;
  append(out, letter, bytes_);
  if (bytes_ && letter >= 0x80) return str("byte ", uint32_t(letter));
  if (letter >= 0x80) return fmt::format("{} (U+{:04X})", out, uint32_t(letter));
  return out == " " ? "a blank" : escaped(out);
}

std::string Vocabulary::describe() const {
  const bool range = letters_.back() - letters_[0] + 1 == letters_.size() && letters_.back() < 127;
  return str(letters_.size(), bytes_ ? " bytes" : " letters",
      range ? str(" ", shown(letters_[0]), "-", shown(letters_.back())) : "");
}

std::vector<int32_t> Vocabulary::encode(
    std::string_view text, const std::string& name, int64_t line) const {
  std::vector<int32_t> out;
  int64_t place = 0, lines = 0;  // of a letter in its line, and lines before that
  for (const char32_t letter : letters_of(text, bytes_, name, std::max<int64_t>(line, 1))) {
    const auto found = std::ranges::lower_bound(letters_, letter);
    ++place;
    SINTER_CHECK(found != letters_.end() && *found == letter, data,
        str("text: the model knows no such letter: ", shown(letter), " in ", name,
            line > 0 ? str(", line ", line + lines) : "", ", letter ", place, "; it has ",
            describe()),
        "a model of a text that has it");
    out.push_back(int32_t(found - letters_.begin()));
    if (letter != U'\n') continue;
    ++lines;
    place = 0;
  }
  return out;
}

std::string Vocabulary::decode(std::span<const int32_t> tokens) const {
  std::string out;
  for (const int32_t token : tokens) append(out, letters_.at(size_t(token)), bytes_);
  return out;
}

std::vector<Document> documents_of(std::string_view text) {
  std::vector<Document> out;
  int64_t number = 0;
  for (const std::string_view line : parts_of(text, "\n")) {
    ++number;
    if (!line.empty()) out.push_back({number, std::string(line)});
  }
  return out;
}

std::string read_text(const std::string& file, bool raw) {
  ByteSource source(file);
  const std::vector<uint8_t> bytes = source.read_up_to(uint64_t(kMostBytes) + 1);
  SINTER_CHECK(std::ssize(bytes) <= kMostBytes, data,
      str("text: too large: ", source.name(), " has more than ", grouped(kMostBytes), " bytes"));
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool ends_line = i + 1 == bytes.size() || bytes[i + 1] == '\n';
    if (raw || bytes[i] != '\r' || !ends_line) out += char(bytes[i]);
  }
  if (!raw && out.starts_with("\xef\xbb\xbf")) out.erase(0, 3);
  SINTER_CHECK(!out.empty(), data, str("text: the file is empty: ", source.name()));
  return out;
}

int32_t Vocabulary::beginning() const {
  if (documents_) return boundary();
  const auto found = std::ranges::find(letters_, U'\n');
  return found == letters_.end() ? 0 : int32_t(found - letters_.begin());
}

double least_loss(const Tensors& rows) {
  const std::vector<int32_t> x = rows[0].to_vector<int32_t>(),
                             labels = rows[1].to_vector<int32_t>();
  const int64_t places = rows[0].size(1);
  using Longer = std::pair<int64_t, int32_t>;  // a beginning by its number, and the letter behind
  std::map<Longer, int64_t> numbers, counts;
  std::map<int64_t, int64_t> totals;
  int64_t number = 0, all = 0;
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    if (i % places == 0) number = 0;
    const auto at = size_t(i);
    number = numbers.try_emplace({number, x[at]}, std::ssize(numbers) + 1).first->second;
    if (labels[at] == kIgnoredLabel) continue;
    ++counts[{number, labels[at]}];
    ++totals[number];
    ++all;
  }
  double sum = 0;
  for (const auto& [of, n] : counts)
    sum -= double(n) * std::log(double(n) / double(totals[of.first]));
  return sum / double(std::max<int64_t>(all, 1));
}

Tensors token_rows(const std::vector<std::vector<int32_t>>& documents, const Vocabulary& vocabulary,
    int64_t context) {
  std::vector<int32_t> x, labels;
  const auto width = size_t(context);
  // Of which the label of each but the last is the next one.
  const auto add_row = [&](std::span<const int32_t> tokens) {
    const size_t n = std::min(width, tokens.size() - 1);
    x.insert(x.end(), tokens.begin(), tokens.begin() + int64_t(n));
    labels.insert(labels.end(), tokens.begin() + 1, tokens.begin() + 1 + int64_t(n));
    x.resize(x.size() + width - n, 0);
    labels.resize(x.size(), kIgnoredLabel);
  };
  for (const std::vector<int32_t>& document : documents) {
    if (vocabulary.documents()) {
      std::vector<int32_t> tokens{vocabulary.boundary()};
      tokens.insert(tokens.end(), document.begin(), document.end());
      tokens.push_back(vocabulary.boundary());
      add_row(tokens);
    } else {
      for (size_t at = 0; at + width < document.size(); at += width)
        add_row(std::span(document).subspan(at, width + 1));
    }
  }
  const Shape shape{int64_t(x.size()) / context, context};
  return {Tensor::from(x, shape), Tensor::from(labels, shape)};
}

}  // namespace sinter::gpt
