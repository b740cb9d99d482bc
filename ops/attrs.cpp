#include "ops/attrs.h"

#include "core/numbers.h"

namespace sinter {

std::string Attrs::str() const {
  if (!type_) return "";
  const Attrs defaults = type_->defaults();
  const std::vector<AttrField> own = fields(), usual = defaults.fields();
  std::string out;
  for (size_t i = 0; i < own.size(); ++i) {
    const std::string text = own[i].text();
    if (text != usual[i].text()) out += sinter::str(out.empty() ? "" : " ", own[i].name, "=", text);
  }
  return out;
}

int Attrs::parse(std::string_view name, std::string_view text) {
  for (const AttrField& field : fields()) {
    if (field.name == name) return field.type->parse(text, place_of(field)) ? 0 : 2;
  }
  return 1;
}

void Attrs::set(const AttrField& from) {
  for (const AttrField& field : fields()) {
    if (field.name == from.name && field.type == from.type)
      std::memcpy(place_of(field), from.value, field.type->size);
  }
}

std::string print_value(int64_t value) { return std::to_string(value); }
std::string print_value(double value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
std::string print_value(bool value) { return value ? "1" : "0"; }
std::string print_value(const Dims& value) { return str("[", join(value, ","), "]"); }

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
  if (text.empty()) return true;
  for (const std::string_view part : parts_of(text, ",")) {
    int64_t item = 0;
    if (value.rank() == kMaxRank || !parse_all(part, item)) return false;
    value.push_back(item);
  }
  return true;
}

}  // namespace sinter
