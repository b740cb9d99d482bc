#include "profiler/names.h"

#include <fmt/format.h>

#include <functional>
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
  const auto result = fmt::format_to_n(text_ + size_, sizeof text_ - size_, "{}{}[{}]",
      size_ > 0 ? " " : "", dtype, fmt::join(dims, ", "));
  size_ = static_cast<size_t>(result.out - text_);
  return *this;
}

}  // namespace sinter::profiler
