// Attributes of an op: a small struct that lists its fields once, held by value behind one
// type-erased `Attrs`. The list makes attributes comparable, printable and parseable (graph files)
// without code per op; a struct without one does not compile, so a captured op can never be
// confused with one of other attributes.
//
//   struct SliceAttrs {
//     int64_t dim = 0, begin = 0, end = 0;
//     SINTER_FIELDS(SliceAttrs, dim, begin, end)
//   };
#pragma once

#include <concepts>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace sinter {

// The fields of an attribute struct, all of them, after their declaration.
#define SINTER_FIELDS(Struct, ...)                              \
  bool operator==(const Struct&) const = default;               \
  static constexpr std::string_view field_names = #__VA_ARGS__; \
  auto fields() { return std::tie(__VA_ARGS__); }               \
  auto fields() const { return std::tie(__VA_ARGS__); }

// A struct says which fields it has by SINTER_FIELDS. The == must be A's own: one inherited from a
// base would not see A's members.
template <class A>
concept HasFields = requires(const A& a) {
  a.fields();
  A::field_names;
};
template <class A>
concept AttrStruct =
    HasFields<A> && std::convertible_to<decltype(&A::operator==), bool (A::*)(const A&) const> &&
    std::is_trivially_copyable_v<A> && std::default_initializable<A>;

// Value <-> text for the field types: int64_t, double, bool, Dims, DType, and enums with an
// `enum_names(E)` array found by ADL. parse_value returns false if the text is no such value.
std::string print_value(int64_t value);
std::string print_value(double value);  // shortest text that reads back the same
std::string print_value(bool value);
std::string print_value(const Dims& value);
std::string print_value(DType value);
bool parse_value(std::string_view text, int64_t& value);
bool parse_value(std::string_view text, double& value);
bool parse_value(std::string_view text, bool& value);
bool parse_value(std::string_view text, Dims& value);
bool parse_value(std::string_view text, DType& value);

template <class E>
  requires std::is_enum_v<E>
std::string print_value(E value) {
  return std::string(enum_names(value)[size_t(value)]);
}
template <class E>
  requires std::is_enum_v<E>
bool parse_value(std::string_view text, E& value) {
  size_t i = 0;
  for (const std::string_view name : enum_names(value)) {
    if (name == text) {
      value = static_cast<E>(i);
      return true;
    }
    ++i;
  }
  return false;
}

class Attrs;

// One field, as text.
struct AttrField {
  std::string_view name;
  std::string value;
  bool is_switch;  // of type bool: the op does another thing, not the same thing with other numbers
};

// What the framework knows of one attribute struct.
struct AttrType {
  std::string_view field_names;  // "dim, begin, end"
  Attrs (*defaults)();
  bool (*equal)(const void*, const void*);
  std::vector<AttrField> (*fields)(const void*);
  // Sets a field, given by its place; false if the text is no value of its type.
  bool (*parse)(void*, size_t field, std::string_view text);
};

namespace detail {
template <class A> Attrs default_attrs();  // below, behind Attrs
// The first name of "dim, begin, end", which it takes off.
std::string_view next_name(std::string_view& names);
template <class A> std::vector<AttrField> fields_of(const void* p) {
  std::vector<AttrField> fields;
  std::string_view names = A::field_names;
  const auto add = [&]<class T>(const T& value) {
    fields.push_back({next_name(names), print_value(value), std::is_same_v<T, bool>});
  };
  std::apply([&](const auto&... value) { (add(value), ...); }, static_cast<const A*>(p)->fields());
  return fields;
}
template <class A> bool parse_attr(void* p, size_t field, std::string_view text) {
  bool parsed = false;
  const auto parse_if = [&](bool here, auto& value) {
    if (here) parsed = parse_value(text, value);
  };
  std::apply(
      [&](auto&... value) {
        size_t i = 0;
        (parse_if(i++ == field, value), ...);
      },
      static_cast<A*>(p)->fields());
  return parsed;
}
}  // namespace detail

template <AttrStruct A>
inline constexpr AttrType kAttrType{A::field_names, detail::default_attrs<A>,
    [](const void* a, const void* b) {
      return *static_cast<const A*>(a) == *static_cast<const A*>(b);
    },
    detail::fields_of<A>, detail::parse_attr<A>};
template <AttrStruct A> constexpr const AttrType* attr_type() { return &kAttrType<A>; }

class Attrs {
 public:
  static constexpr size_t kCapacity = 320;
  Attrs() = default;
  template <AttrStruct A>
  Attrs(const A& value)
      : type_(attr_type<A>()), size_(sizeof(A)) {  // NOLINT: an attribute struct is an Attrs
    static_assert(sizeof(A) <= kCapacity && alignof(A) <= 8);
    new (bytes_) A(value);
  }
  Attrs(const Attrs& other) { *this = other; }
  Attrs& operator=(const Attrs& other) {  // copies what is used only
    type_ = other.type_;
    size_ = other.size_;
    std::memcpy(bytes_, other.bytes_, size_);
    return *this;
  }

  const AttrType* type() const { return type_; }
  template <AttrStruct A> const A& as() const {
    SINTER_ASSERT(type_ == attr_type<A>(), "attributes of another type");
    return *std::launder(reinterpret_cast<const A*>(bytes_));
  }
  bool operator==(const Attrs& other) const {
    return type_ == other.type_ && (!type_ || type_->equal(bytes_, other.bytes_));
  }
  std::vector<AttrField> fields() const {
    return type_ ? type_->fields(bytes_) : std::vector<AttrField>();
  }
  // "act=relu saves=1": the fields that differ from the default.
  std::string str() const;
  // Sets one field; 0 done, 1 no such field, 2 not a value of its type.
  int parse(std::string_view name, std::string_view text);

 private:
  const AttrType* type_ = nullptr;
  size_t size_ = 0;
  alignas(8) unsigned char bytes_[kCapacity];
};

template <class A> Attrs detail::default_attrs() { return A{}; }

}  // namespace sinter
