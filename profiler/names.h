// Names that records can hold as one pointer for the life of the process.
//
// StaticName is built at compile time from a literal, so an OpDef with static storage may hold it;
// any other text goes through intern(). ShapeText builds "f32[64, 784] f32[256, 784]" on the stack:
// no allocation once a text has been seen. All functions are thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::profiler {

// The name of an enumerator: beside the enumeration stands names_of(E), in the order of its values.
template <class E>
  requires requires(E value) { names_of(value).size(); }
constexpr std::string_view name_of(E value) {
  return names_of(value)[size_t(value)];
}

class StaticName {
 public:
  constexpr StaticName() = default;
  template <size_t N>
  consteval StaticName(const char (&literal)[N])
      : text_(literal) {}  // NOLINT: implicit, so that Scope s("name") reads well

  constexpr const char* c_str() const { return text_; }
  constexpr std::string_view view() const { return text_; }
  constexpr operator std::string_view() const { return text_; }
  friend bool operator==(StaticName a, StaticName b) {
    return a.text_ == b.text_ || std::strcmp(a.text_, b.text_) == 0;
  }
  friend std::ostream& operator<<(std::ostream& out, StaticName name) { return out << name.text_; }

 private:
  friend StaticName intern(std::string_view text);
  const char* text_ = "";
};

// The same text gives the same pointer. A text is allocated when it is first seen, and kept until
// the process ends.
StaticName intern(std::string_view text);

// Paths of modules: "MLP / 0 / Linear(4 -> 3)", of what was fused from several "PATH + PATH".
// Adds to `to` those of `from` that are not there.
void add_modules(std::string& to, std::string_view from);
// The parts of a path, at most `depth`; of several paths what they share, and then all else in one:
// {"MLP", "0 / Linear(4 -> 3) + 1 / ReLU"}.
std::vector<std::string> module_frames(std::string_view modules, size_t depth = SIZE_MAX);

// ShapeText text; text.add("f32", dims_of_x); text.add("f32", dims_of_w); info.shapes =
// text.intern();
class ShapeText {
 public:
  ShapeText& add(std::string_view dtype, std::span<const int64_t> dims);
  std::string_view view() const { return {text_, size_}; }
  StaticName intern() const { return profiler::intern(view()); }

 private:
  char text_[240];  // what does not fit is cut off
  size_t size_ = 0;
};

}  // namespace sinter::profiler
