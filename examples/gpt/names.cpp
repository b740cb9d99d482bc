#include "examples/gpt/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/numbers.h"
#include "data/word_stream.h"

namespace sinter::gpt {
namespace {

constexpr std::string_view kVowels[] = {"aou", "ei"}, kConsonants[] = {"bdgmv", "ptkf"},
                           kLast = "nrls";
constexpr uint64_t kSeed = 1;
constexpr uint32_t kNameStream = 0x6e616d65, kShuffleStream = 0x72616e64;  // "name", "rand"

char one_of(std::string_view letters, WordStream& words) {
  return letters[words.next() % letters.size()];
}

}  // namespace

std::vector<std::string> built_in_names(int64_t n) {
  WordStream words(kSeed, kNameStream, 0, 0);
  std::vector<std::string> names;
  for (std::set<std::string> known; std::ssize(names) < n;) {
    const uint32_t syllables = 3 + words.next() % 2, vowels = words.next() % 2,
                   first = words.next() % 2;
    std::string name;
    for (uint32_t i = 0; i < syllables; ++i) {
      name += one_of(kConsonants[(first + i) % 2], words);
      name += one_of(kVowels[vowels], words);
    }
    name += one_of(kLast, words);
    if (known.insert(name).second) names.push_back(name);
  }
  return names;
}

bool is_name(std::string_view word) {
  if ((word.size() != 7 && word.size() != 9) || kLast.find(word.back()) == kLast.npos) return false;
  const auto holds = [](std::string_view letters, char c) {
    return letters.find(c) != letters.npos;
  };
  const bool hard = holds(kConsonants[1], word[0]), front = holds(kVowels[1], word[1]);
  for (size_t i = 0; i + 1 < word.size(); i += 2) {
    if (!holds(kConsonants[hard ^ (i / 2 % 2)], word[i]) || !holds(kVowels[front], word[i + 1]))
      return false;
  }
  return true;
}

NameCount count_names(
    const std::vector<std::string>& words, const std::vector<std::string>& known) {
  const std::set<std::string_view> old(known.begin(), known.end());
  WordStream draws(kSeed, kShuffleStream, 0, 0);
  NameCount count{.words = std::ssize(words)};
  // The letters of all of them, dealt out anew.
  std::string letters;
  for (const std::string& word : words) letters += word;
  for (size_t i = letters.size(); i > 1; --i) std::swap(letters[i - 1], letters[draws.next() % i]);
  size_t at = 0;
  for (const std::string& word : words) {
    const bool valid = is_name(word);
    count.valid += valid;
    count.fresh += valid && !old.contains(word);
    count.random_valid += is_name(std::string_view(letters).substr(at, word.size()));
    at += word.size();
  }
  return count;
}

std::string NameCount::text() const {
  const auto share = [](int64_t k, int64_t n) {
    return fmt::format("{:.1f} %", 100 * double(k) / double(std::max<int64_t>(n, 1)));
  };
  return fmt::format(
      "{} of {} samples obey the rules{}; of the same letters in another order {} do",
      share(valid, words), grouped(words),
      valid > 0 ? ", " + share(fresh, valid) + " of these are new" : "",
      fmt::format("{:.2f} %", 100 * double(random_valid) / double(std::max<int64_t>(words, 1))));
}

}  // namespace sinter::gpt
