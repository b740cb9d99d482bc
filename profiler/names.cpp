#include "profiler/names.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <mutex>
#include <unordered_set>

#include "core/numbers.h"

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

namespace {
std::vector<std::string> split_names(std::string_view text, std::string_view at) {
  if (text.empty()) return {};
  const std::vector<std::string_view> parts = parts_of(text, at);
  return {parts.begin(), parts.end()};
}
void add_unless_there(std::vector<std::string>& to, std::string text) {
  if (std::ranges::find(to, text) == to.end()) to.push_back(std::move(text));
}
}  // namespace

void add_modules(std::string& to, std::string_view from) {
  std::vector<std::string> all = split_names(to, " + ");
  for (std::string& path : split_names(from, " + ")) add_unless_there(all, std::move(path));
  to = join(all, " + ");
}

std::vector<std::string> module_frames(std::string_view modules, size_t depth) {
  std::vector<std::vector<std::string>> paths;
  for (const std::string& path : split_names(modules, " + ")) {
    paths.push_back(split_names(path, " / "));
    paths.back().resize(std::min(paths.back().size(), depth));
  }
  if (paths.empty()) return {};
  std::vector<std::string> shared = paths[0], rest;
  for (const auto& path : paths)
    shared.erase(std::ranges::mismatch(shared, path).in1, shared.end());
  for (const auto& path : paths) {
    const std::vector<std::string> own(path.begin() + int64_t(shared.size()), path.end());
    if (!own.empty()) add_unless_there(rest, join(own, " / "));
  }
  if (!rest.empty()) shared.push_back(join(rest, " + "));
  return shared;
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
