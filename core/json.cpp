#include "core/json.h"

#include <cstdlib>

namespace sinter {

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void detail::refuse_json(const Json& found, const std::string& where, const std::string& wanted) {
  // A scalar says what it is; an array or an object would fill the screen.
  const std::string what = found.is_discarded()    ? "no JSON"
                           : found.is_structured() ? str("an ", found.type_name())
                                                   : json_text(found);
  throw Error(Error::Kind::data, str(where, " is ", what.substr(0, 60), ", wanted ", wanted));
}

// Not by Device::parse(): what ran on a card is read where there is none, too.
Device detail::device_in(const Json& from, const std::string& where) {
  const std::string text = from.is_string() ? from.get<std::string>() : "";
  Device device;
  if (text.starts_with("simt")) device.type = Device::Type::simt;
  if (text.starts_with("cuda:")) device = {Device::Type::cuda, int8_t(std::atoi(text.c_str() + 5))};
  if (device.str() != text) refuse_json(from, where, "cpu, simt or cuda:N");
  return device;
}

}  // namespace sinter
