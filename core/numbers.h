// Numbers and lists as people read and write them: "55,000", "1 step", "a, b". ASCII. Pure
// functions.
#pragma once

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

// Of anything that cat() takes.
template <class Range> std::string join(const Range& parts, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out += separator;
    out += cat(part);
    first = false;
  }
  return out;
}

}  // namespace sinter
