#include "core/numbers.h"

namespace sinter {

std::string grouped(int64_t n) {
  std::string text = std::to_string(n);
  const int first_digit = n < 0 ? 1 : 0;
  for (int at = int(text.size()) - 3; at > first_digit; at -= 3) text.insert(size_t(at), 1, ',');
  return text;
}

std::string count_of(int64_t n, const std::string& thing, const char* plural) {
  return grouped(n) + " " + thing + (n == 1 ? "" : plural);
}

std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos;) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  parts.push_back(text);
  return parts;
}

}  // namespace sinter
