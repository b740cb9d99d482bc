// Attributes of an op: a small struct with a defaulted == and a list of its fields, held by value
// behind one type-erased `Attrs`. The list makes attributes printable and parseable (graph files)
// without code per op; a type without == does not compile, so a captured op can never be confused
// with one of other attributes.
//
//   struct SliceAttrs {
//     int64_t dim = 0, begin = 0, end = 0;
//     bool operator==(const SliceAttrs&) const = default;
//     static constexpr auto fields() { return std::tuple(field("dim", &SliceAttrs::dim), ...); }
//   };
#pragma once

#include <charconv>
#include <concepts>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "core/dtype.h"
#include "core/shape.h"

namespace sinter {

template <class Struct, class T>
struct AttrField {
  const char* name;
  T Struct::*member;
};
template <class Struct, class T>
constexpr AttrField<Struct, T> field(const char* name, T Struct::*member) {
  return {name, member};
}

// The == must be A's own: one inherited from a base would not see A's members.
template <class A>
concept AttrStruct =
    std::convertible_to<decltype(&A::operator==), bool (A::*)(const A&) const> &&
    std::is_trivially_copyable_v<A> && std::default_initializable<A> && requires { A::fields(); };

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
  return std::string(enum_names(value)[static_cast<size_t>(value)]);
}
template <class E>
  requires std::is_enum_v<E>
bool parse_value(std::string_view text, E& value) {
  size_t i = 0;
  for (const std::string_view name : enum_names(value)) {
    if (name == text) return value = static_cast<E>(i), true;
    ++i;
  }
  return false;
}

class Attrs;

// What the framework knows of one attribute struct.
struct AttrType {
  Attrs (*defaults)();
  bool (*equal)(const void*, const void*);
  std::string (*print)(
      const void*);  // "act=relu saves=1", fields that differ from the default only
  // Sets one field; 0 done, 1 no such field, 2 not a value of its type.
  int (*parse)(void*, std::string_view field, std::string_view text);
  std::string (*field_names)();
};

namespace detail {
template <class A>
Attrs default_attrs();  // below, behind Attrs
template <class A>
std::string print_attrs(const void* p) {
  const A& a = *static_cast<const A*>(p);
  const A defaults{};
  std::string out;
  std::apply(
      [&](auto... f) {
        ((a.*f.member == defaults.*f.member
                 ? void()
                 : void(out += (out.empty() ? "" : " ") + std::string(f.name) + "=" +
                               print_value(a.*f.member))),
            ...);
      },
      A::fields());
  return out;
}
template <class A>
int parse_attr(void* p, std::string_view name, std::string_view text) {
  A& a = *static_cast<A*>(p);
  int result = 1;
  std::apply(
      [&](auto... f) {
        ((name == f.name ? void(result = parse_value(text, a.*f.member) ? 0 : 2) : void()), ...);
      },
      A::fields());
  return result;
}
template <class A>
std::string attr_names() {
  std::string out;
  std::apply([&](auto... f) { ((out += (out.empty() ? "" : " ") + std::string(f.name)), ...); },
      A::fields());
  return out;
}
}  // namespace detail

template <AttrStruct A>
inline constexpr AttrType kAttrType{detail::default_attrs<A>,
    [](const void* a, const void* b) {
      return *static_cast<const A*>(a) == *static_cast<const A*>(b);
    },
    detail::print_attrs<A>, detail::parse_attr<A>, detail::attr_names<A>};
template <AttrStruct A>
constexpr const AttrType* attr_type() {
  return &kAttrType<A>;
}

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
  template <AttrStruct A>
  const A& as() const {
    SINTER_ASSERT(type_ == attr_type<A>(), "attributes of another type");
    return *std::launder(reinterpret_cast<const A*>(bytes_));
  }
  bool operator==(const Attrs& other) const {
    return type_ == other.type_ && (!type_ || type_->equal(bytes_, other.bytes_));
  }
  std::string str() const { return type_ ? type_->print(bytes_) : ""; }
  int parse(std::string_view name, std::string_view text) {
    return type_ ? type_->parse(bytes_, name, text) : 1;
  }

 private:
  const AttrType* type_ = nullptr;
  size_t size_ = 0;
  alignas(8) unsigned char bytes_[kCapacity];
};

template <class A>
Attrs detail::default_attrs() {
  return A{};
}

}  // namespace sinter
