// Built-in names, which obey rules of their own, so that a program can say how much of them a model
// has learnt:
//   a name is of three or four syllables, each a consonant and a vowel, and a last letter, n, r, l
//     or s;
//   its vowels are all of a, o, u or all of e, i;
//   its consonants take turns: a soft one (b d g m v) and a hard one (p t k f).
// "tabokur" is one, "timekes" another. There are 335,600 of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::gpt {

inline constexpr int64_t kBuiltInNames = 10'000;

// The same each time, each once.
std::vector<std::string> built_in_names(int64_t n = kBuiltInNames);
bool is_name(std::string_view word);

// Of some words: how many obey the rules, how many of these are not among `known`, and how many of
// as many words of the same letters in another order do.
struct NameCount {
  int64_t words = 0, valid = 0, fresh = 0, random_valid = 0;
  std::string text() const;
};
NameCount count_names(const std::vector<std::string>& words, const std::vector<std::string>& known);

}  // namespace sinter::gpt
