// Attributes of an op: a small struct that lists its fields once, held by value behind one
// type-erased `Attrs`. The list makes attributes comparable, printable, parseable (graph files) and
// copied field by field (patterns), without code per op; a struct without one does not compile, so
// a captured op can never be confused with one of other attributes.
//
//   struct SliceAttrs {
//     int64_t dim = 0, begin = 0, end = 0;
//     SINTER_FIELDS(SliceAttrs, dim, begin, end)
//   };
#pragma once

#include <algorithm>
#include <concepts>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "core/fields.h"
#include "core/shape.h"

namespace sinter {

// A struct says which fields it has by SINTER_FIELDS. The == must be A's own: one inherited from a
// base would not see A's members.
template <class A>
concept AttrStruct =
    HasFields<A> && std::convertible_to<decltype(&A::operator==), bool (A::*)(const A&) const> &&
    std::is_trivially_copyable_v<A> && std::default_initializable<A>;

// Value <-> text for the field types: int64_t, double, bool, Dims, and enums whose array of names,
// names_of(E) or enum_names(E), ADL finds. parse_value returns false if the text is no such value,
// and then `value` is any.
std::string print_value(int64_t value);
std::string print_value(double value);  // shortest text that reads back the same
std::string print_value(bool value);
std::string print_value(const Dims& value);
bool parse_value(std::string_view text, int64_t& value);
bool parse_value(std::string_view text, double& value);
bool parse_value(std::string_view text, bool& value);
bool parse_value(std::string_view text, Dims& value);

template <NamedEnum E> std::string print_value(E value) {
  return std::string(names_in(value)[size_t(value)]);
}
template <NamedEnum E> bool parse_value(std::string_view text, E& value) {
  const auto& names = names_in(value);
  const auto name = std::ranges::find(names, text);
  if (name == std::end(names)) return false;
  value = static_cast<E>(name - std::begin(names));
  return true;
}

// What the framework knows of a type of fields.
struct FieldType {
  std::string (*print)(const void* value);
  bool (*parse)(std::string_view text, void* value);
  size_t size;
};
template <class T>
inline constexpr FieldType kFieldType{
    [](const void* value) { return print_value(*static_cast<const T*>(value)); },
    [](std::string_view text, void* value) { return parse_value(text, *static_cast<T*>(value)); },
    sizeof(T)};

// One field of attributes that live as long.
struct AttrField {
  std::string_view name;
  const FieldType* type;
  const void* value;
  // nullptr: it is of another type.
  template <class T> const T* as() const {
    return type == &kFieldType<T> ? static_cast<const T*>(value) : nullptr;
  }
  std::string text() const { return type->print(value); }
};

class Attrs;

// What the framework knows of one attribute struct.
struct AttrType {
  std::string_view field_names;  // "dim, begin, end"
  Attrs (*defaults)();
  bool (*equal)(const void*, const void*);
  std::vector<AttrField> (*fields)(const void*);
  int64_t (*number)(const void*, std::string_view name);  // see Attrs::number
};

namespace detail {
template <class A> Attrs default_attrs();  // below, behind Attrs
template <class A> std::vector<AttrField> fields_of(const void* attrs) {
  std::vector<AttrField> fields;
  const auto add = [&]<class T>(std::string_view name, const T& value) {
    fields.push_back({name, &kFieldType<T>, &value});
  };
  visit_fields(*static_cast<const A*>(attrs), add);
  return fields;
}
template <class A> int64_t number_of(const void* attrs, std::string_view wanted) {
  std::optional<int64_t> found;
  const auto look = [&]<class T>(std::string_view name, const T& value) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      if (name == wanted) found = int64_t(value);
    }
  };
  visit_fields(*static_cast<const A*>(attrs), look);
  SINTER_ASSERT(found, "no such number: ", wanted, " of ", A::field_names);
  return *found;
}
}  // namespace detail

template <AttrStruct A>
inline constexpr AttrType kAttrType{A::field_names, detail::default_attrs<A>,
    [](const void* a, const void* b) {
      return *static_cast<const A*>(a) == *static_cast<const A*>(b);
    },
    detail::fields_of<A>, detail::number_of<A>};
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
  // A field that is a whole number, a switch or an enum, as a number.
  int64_t number(std::string_view name) const {
    SINTER_ASSERT(type_, "no attributes");
    return type_->number(bytes_, name);
  }
  // Sets one field; 0 done, 1 no such field, 2 not a value of its type.
  int parse(std::string_view name, std::string_view text);
  // Gives the field of this name and type the value; does nothing if there is none.
  void set(const AttrField& from);
  template <class T> void set(std::string_view name, const T& value) {
    set({name, &kFieldType<T>, &value});
  }

 private:
  void* place_of(const AttrField& own) {
    return bytes_ + (static_cast<const unsigned char*>(own.value) - bytes_);
  }
  const AttrType* type_ = nullptr;
  size_t size_ = 0;
  alignas(8) unsigned char bytes_[kCapacity];
};

template <class A> Attrs detail::default_attrs() { return A{}; }

}  // namespace sinter
