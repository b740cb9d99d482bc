#include "profiler/names.h"

#include <charconv>
#include <functional>
#include <iterator>
#include <mutex>
#include <unordered_set>

namespace sinter::profiler {
namespace {

struct TextHash {
  using is_transparent = void;  // a text is looked up without a copy of it
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// Texts stay where they are when the set grows.
struct InternedTexts {
  std::mutex mutex;
  std::unordered_set<std::string, TextHash, std::equal_to<>> texts;
};

}  // namespace

StaticName intern(std::string_view text) {
  // Never destroyed: threads may outlive main().
  static InternedTexts& interned = *new InternedTexts;
  std::lock_guard lock(interned.mutex);
  auto found = interned.texts.find(text);
  if (found == interned.texts.end()) found = interned.texts.emplace(text).first;
  StaticName name;
  name.text_ = found->c_str();
  return name;
}

ShapeText& ShapeText::add(std::string_view dtype, std::span<const int64_t> dims) {
  const auto append = [this](std::string_view part) {
    size_ += part.copy(text_ + size_, sizeof text_ - size_);
  };
  if (size_ > 0) append(" ");
  append(dtype);
  append("[");
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d > 0) append(", ");
    char digits[20];
    append({digits, std::to_chars(digits, std::end(digits), dims[d]).ptr});
  }
  append("]");
  return *this;
}

}  // namespace sinter::profiler
