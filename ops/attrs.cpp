#include "ops/attrs.h"

#include "core/numbers.h"

namespace sinter {

std::string_view detail::next_name(std::string_view& names) {
  const size_t end = names.find(',');
  const std::string_view name = names.substr(0, end);
  names.remove_prefix(end == std::string_view::npos ? names.size() : end + 2);
  return name;
}

std::string Attrs::str() const {
  if (!type_) return "";
  const std::vector<AttrField> fields = this->fields(), defaults = type_->defaults().fields();
  std::string out;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].value == defaults[i].value) continue;
    if (!out.empty()) out += ' ';
    out += std::string(fields[i].name) + '=' + fields[i].value;
  }
  return out;
}

int Attrs::parse(std::string_view name, std::string_view text) {
  std::string_view names = type_ ? type_->field_names : "";
  for (size_t field = 0; !names.empty(); ++field) {
    if (detail::next_name(names) == name) return type_->parse(bytes_, field, text) ? 0 : 2;
  }
  return 1;
}

std::string print_value(int64_t value) { return std::to_string(value); }
std::string print_value(double value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
std::string print_value(bool value) { return value ? "1" : "0"; }
std::string print_value(DType value) { return std::string(name_of(value)); }
std::string print_value(const Dims& value) {
  std::string out = "[";
  for (int i = 0; i < value.rank(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(value[i]);
  }
  return out + "]";
}

bool parse_value(std::string_view text, int64_t& value) { return parse_all(text, value); }
bool parse_value(std::string_view text, double& value) { return parse_all(text, value); }
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
    if (value.rank() == kMaxRank || !parse_all(text.substr(0, comma), item)) return false;
    value.push_back(item);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return false;
  }
  return true;
}
bool parse_value(std::string_view text, DType& value) {
  for (int i = 0; i < kDTypes; ++i) {
    if (name_of(static_cast<DType>(i)) == text) {
      value = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

}  // namespace sinter
