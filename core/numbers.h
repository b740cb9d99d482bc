// Numbers and lists as people read and write them: "55,000", "1 step", "a, b". ASCII. Pure
// functions.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace sinter {

std::string grouped(int64_t n);  // 55,000
// "1 step", "2,150 steps".
std::string count_of(int64_t n, const std::string& thing, const char* plural = "s");

// What stands between the separators: "a,,b" -> "a", "", "b"; of "" one that is empty.
std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator);

// False unless the whole text is a number of that type, in its range.
template <class T> bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Of anything that str() takes.
template <class Range> std::string join(const Range& parts, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out += separator;
    out += str(part);
    first = false;
  }
  return out;
}

}  // namespace sinter
