// A struct states its fields once. Comparison, text and parsing of an op's attributes follow from
// the list (ops/attrs.h), and so does JSON, out and in (core/json.h).
//
//   struct SliceAttrs {
//     int64_t dim = 0, begin = 0, end = 0;
//     SINTER_FIELDS(SliceAttrs, dim, begin, end)
//   };
//
// A field's key is the last name of its expression (`cost.flops` is "flops"). What is not so plain
// says so where it stands in the list: named(), newer(), through(), written().
#pragma once

#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace sinter {

// The fields of a struct, behind their declaration. A struct that this lists need not have a ==.
#define SINTER_FIELD_LIST(...)                                  \
  static constexpr std::string_view field_names = #__VA_ARGS__; \
  auto fields() { return ::sinter::field_list(__VA_ARGS__); }   \
  auto fields() const { return ::sinter::field_list(__VA_ARGS__); }
// The same, all of them, and the ==.
#define SINTER_FIELDS(Struct, ...)                \
  bool operator==(const Struct&) const = default; \
  SINTER_FIELD_LIST(__VA_ARGS__)

template <class A>
concept HasFields = requires(const A& a) {
  a.fields();
  A::field_names;
};

// References to members, and what the functions below make.
template <class... Fields> constexpr std::tuple<Fields...> field_list(Fields&&... fields) {
  return {std::forward<Fields>(fields)...};
}

// named("roofs", roofline): a key of its own.
template <class T> constexpr T&& named(const char*, T&& field) { return std::forward<T>(field); }

// newer(spread): files of earlier builds lack it; then the field keeps its default.
template <class Field> struct NewerField {
  Field field;
};
template <class Field> constexpr NewerField<Field> newer(Field&& field) {
  return {std::forward<Field>(field)};
}

// through(get, set): what stands for members in a file: get() gives it, set(value) takes it and may
// answer what is wrong with it. `set` is a generic lambda, since a const struct has a list, too.
template <class Get, class Set> struct ThroughField {
  Get get;
  Set set;
};
template <class Get, class Set> constexpr ThroughField<Get, Set> through(Get get, Set set) {
  return {get, set};
}
// written(size()): of what the struct computes, and nobody reads back.
template <class T> constexpr auto written(T value) {
  return through([value] { return value; }, nullptr);
}

namespace detail {
// Takes the first field off "dim, named(\"to\", end)"; its key.
constexpr std::string_view next_key(std::string_view& list) {
  size_t end = 0;
  for (int depth = 0; end < list.size() && (depth > 0 || list[end] != ','); ++end) {
    depth += list[end] == '(' || list[end] == '{';
    depth -= list[end] == ')' || list[end] == '}';
  }
  const std::string_view field = list.substr(0, end);
  list.remove_prefix(end < list.size() ? end + 1 : end);
  if (const size_t quote = field.find('"'); quote != field.npos)
    return field.substr(quote + 1, field.find('"', quote + 1) - quote - 1);
  constexpr std::string_view kOfNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const std::string_view name = field.substr(0, field.find_last_of(kOfNames) + 1);
  return name.substr(name.find_last_not_of(kOfNames) + 1);
}
template <size_t n> constexpr std::array<std::string_view, n> keys_in(std::string_view list) {
  std::array<std::string_view, n> keys{};
  for (std::string_view& key : keys) key = next_key(list);
  return keys;
}
}  // namespace detail

template <HasFields A>
inline constexpr auto kKeysOf =
    detail::keys_in<std::tuple_size_v<decltype(std::declval<const A&>().fields())>>(A::field_names);

// f("dim", a.dim), f("begin", a.begin), .. All that is done with fields goes through it.
template <class A, class F> constexpr void visit_fields(A& a, F&& f) {
  [[maybe_unused]] size_t i = 0;
  std::apply(
      [&](auto&&... field) { (f(kKeysOf<std::remove_const_t<A>>[i++], field), ...); }, a.fields());
}

// An enumeration with an array of names, names_of(E) or enum_names(E), which ADL finds.
template <class E> constexpr decltype(auto) names_in(E value) {
  if constexpr (requires { names_of(value); }) {
    return names_of(value);
  } else {
    return enum_names(value);
  }
}
template <class E>
concept NamedEnum = std::is_enum_v<E> && (
                                             requires(E value) { names_of(value); } ||
                                             requires(E value) { enum_names(value); });

}  // namespace sinter
