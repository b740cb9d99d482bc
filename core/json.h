// JSON out of, and into, any struct that states its fields (core/fields.h): numbers, texts, truth
// values, Device, Dims, enumerations by name, and vectors, sets, maps by text, pairs, arrays,
// optionals (nothing is null) and structs of them. Out, each is a value of Json:
//
//   const std::string text = json_text({{"schema", "sinter.roofs/1"}, {"rows", table.rows}});
//   read_json(parsed["rows"], table.rows, "table.rows");
//
// For .cpp files: it names nlohmann's library, and so it is the one header that is not installed.
#pragma once

#include <algorithm>
#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "core/error.h"
#include "core/fields.h"
#include "core/numbers.h"
#include "core/shape.h"

namespace sinter {

using Json = nlohmann::ordered_json;

// The one function that writes JSON: on one line, or with `indent`. Bytes that are no UTF-8 become
// U+FFFD, NaN and infinity null.
std::string json_text(const Json& json, int indent = -1);

// `where` is the value's path in the file. Throws data: "profile.rows[3].calls is "three", wanted
// an integer". A list's fields are all wanted but those that are newer; keys that no field has are
// passed over.
template <class T> void read_json(const Json& from, T& value, const std::string& where);

namespace detail {
[[noreturn]] void refuse_json(
    const Json& found, const std::string& where, const std::string& wanted);
Device device_in(const Json& from, const std::string& where);

template <class Field>
void read_field(const Json& object, std::string_view key, Field& field, const std::string& where) {
  const auto found = object.find(key);
  const std::string path = str(where, ".", key);
  if constexpr (requires { field.set(field.get()); }) {
    auto value = field.get();
    read_field(object, key, value, where);
    if constexpr (std::is_void_v<decltype(field.set(value))>) {
      field.set(value);
    } else if (const std::string wrong = field.set(value); !wrong.empty()) {
      throw Error(Error::Kind::data, str(path, " ", wrong));
    }
  } else if constexpr (requires { field.field; }) {  // newer
    if (found != object.end()) read_field(object, key, field.field, where);
  } else if constexpr (!requires { field.set; }) {
    SINTER_CHECK(found != object.end(), data, str(path, " is missing"));
    read_json(*found, field, path);
  }
}

template <class T> bool is_integer_of(const Json& json) {
  return json.is_number_unsigned()
             ? std::in_range<T>(json.get<uint64_t>())
             : json.is_number_integer() && std::in_range<T>(json.get<int64_t>());
}
}  // namespace detail

template <class T> void read_json(const Json& from, T& value, const std::string& where) {
  const auto want = [&](bool right, const std::string& wanted) {
    if (!right) detail::refuse_json(from, where, wanted);
  };
  if constexpr (HasFields<T>) {
    want(from.is_object(), "an object");
    visit_fields(value,
        [&](std::string_view key, auto& field) { detail::read_field(from, key, field, where); });
  } else if constexpr (requires { value.has_value(); }) {
    value.reset();
    if (!from.is_null()) read_json(from, value.emplace(), where);
  } else if constexpr (std::same_as<T, std::string>) {
    want(from.is_string(), "text");
    value = from.get<std::string>();
  } else if constexpr (requires { typename T::mapped_type; }) {
    want(from.is_object(), "an object");
    value.clear();
    for (const auto& [key, item] : from.items())
      read_json(item, value[key], str(where, ".", escaped(key)));
  } else if constexpr (std::same_as<T, Dims>) {
    std::vector<int64_t> sizes;
    read_json(from, sizes, where);
    want(sizes.size() <= kMaxRank, str("at most ", kMaxRank, " sizes"));
    value = Dims(std::span(std::as_const(sizes)));
  } else if constexpr (requires { value.insert(value.end(), *value.begin()); }) {
    want(from.is_array(), "an array");
    value.clear();
    for (size_t i = 0; i < from.size(); ++i) {
      typename T::value_type item{};
      read_json(from[i], item, str(where, "[", i, "]"));
      value.insert(value.end(), std::move(item));
    }
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    want(from.is_array() && from.size() == std::tuple_size_v<T>,
        str("an array of ", std::tuple_size_v<T>));
    size_t i = 0;
    const auto read = [&](auto& item) {
      read_json(from[i], item, str(where, "[", i, "]"));
      ++i;
    };
    std::apply([&](auto&... items) { (read(items), ...); }, value);
  } else if constexpr (NamedEnum<T>) {
    const auto& names = names_in(value);
    const auto found = std::ranges::find(names, from.is_string() ? from.get<std::string>() : "");
    want(from.is_string() && found != std::end(names), str("one of ", join(names)));
    value = T(found - std::begin(names));
  } else if constexpr (std::same_as<T, Device>) {
    value = detail::device_in(from, where);
  } else if constexpr (std::same_as<T, bool>) {
    want(from.is_boolean(), "true or false");
    value = from.get<bool>();
  } else if constexpr (std::integral<T>) {
    want(detail::is_integer_of<T>(from), str("an integer of ", 8 * sizeof(T), " bits"));
    value = from.get<T>();
  } else {
    static_assert(std::floating_point<T>, "no such value stands in JSON");
    want(from.is_number(), "a number");
    value = from.get<T>();
  }
}

}  // namespace sinter

// What nlohmann's library asks for a type that it does not know.
namespace nlohmann {
template <sinter::HasFields T> struct adl_serializer<T, void> {
  static void to_json(ordered_json& json, const T& value) {
    json = ordered_json::object();
    sinter::visit_fields(
        value, [&](std::string_view key, const auto& field) { json[std::string(key)] = field; });
  }
};
template <class Field> struct adl_serializer<sinter::NewerField<Field>, void> {
  static void to_json(ordered_json& json, const sinter::NewerField<Field>& newer) {
    json = newer.field;
  }
};
template <class Get, class Set> struct adl_serializer<sinter::ThroughField<Get, Set>, void> {
  static void to_json(ordered_json& json, const sinter::ThroughField<Get, Set>& through) {
    json = through.get();
  }
};
template <class T> struct adl_serializer<std::optional<T>, void> {
  static void to_json(ordered_json& json, const std::optional<T>& value) {
    json = value ? ordered_json(*value) : ordered_json();
  }
};
template <sinter::NamedEnum E> struct adl_serializer<E, void> {
  static void to_json(ordered_json& json, E value) {
    json = std::string(sinter::names_in(value)[size_t(value)]);
  }
};
template <> struct adl_serializer<sinter::Dims, void> {
  static void to_json(ordered_json& json, const sinter::Dims& dims) {
    json = std::vector<int64_t>(dims.begin(), dims.end());
  }
};
template <> struct adl_serializer<sinter::Device, void> {
  static void to_json(ordered_json& json, const sinter::Device& device) { json = device.str(); }
};
}  // namespace nlohmann
