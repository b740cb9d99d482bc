#include "ops/attrs.h"

#include <cmath>

namespace sinter {
namespace {

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string print_value(int64_t value) { return std::to_string(value); }
std::string print_value(double value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
std::string print_value(bool value) { return value ? "1" : "0"; }
std::string print_value(DType value) { return std::string(name_of(value)); }
std::string print_value(const Dims& value) {
  std::string out = "[";
  for (int i = 0; i < value.rank(); ++i) out += (i ? "," : "") + std::to_string(value[i]);
  return out + "]";
}

bool parse_value(std::string_view text, int64_t& value) { return parse_number(text, value); }
bool parse_value(std::string_view text, double& value) { return parse_number(text, value); }
bool parse_value(std::string_view text, bool& value) {
  if (text != "0" && text != "1") return false;
  value = text == "1";
  return true;
}
bool parse_value(std::string_view text, Dims& value) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return false;
  text = text.substr(1, text.size() - 2);
  value = Dims{};
  while (!text.empty()) {
    const size_t comma = text.find(',');
    int64_t item = 0;
    if (value.rank() == kMaxRank || !parse_number(text.substr(0, comma), item)) return false;
    value.push_back(item);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return false;
  }
  return true;
}
bool parse_value(std::string_view text, DType& value) {
  for (int i = 0; i < kDTypes; ++i) {
    if (name_of(static_cast<DType>(i)) == text) return value = static_cast<DType>(i), true;
  }
  return false;
}

}  // namespace sinter
