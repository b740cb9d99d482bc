#include "profiler/names.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace sinter::profiler {
namespace {

// Texts at addresses that stay (a deque never moves its elements), numbered in the order of first
// sight.
class Interner {
 public:
  uint32_t number(std::string_view text) {
    std::lock_guard lock(mutex_);
    if (auto found = numbers_.find(text); found != numbers_.end()) return found->second;
    const std::string& kept = texts_.emplace_back(text);
    const auto number = static_cast<uint32_t>(texts_.size() - 1);
    numbers_.emplace(kept, number);
    return number;
  }
  const std::string& text(uint32_t number) {
    std::lock_guard lock(mutex_);
    return texts_.at(number);
  }

 private:
  std::mutex mutex_;
  std::deque<std::string> texts_{""};
  std::unordered_map<std::string_view, uint32_t> numbers_{{texts_[0], 0}};
};

// Never destroyed: threads may outlive main().
Interner& interner() {
  static Interner* const instance = new Interner;
  return *instance;
}

}  // namespace

StaticName intern(std::string_view text) {
  StaticName name;
  name.text_ = interner().text(interner().number(text)).c_str();
  return name;
}

uint32_t intern_shape(std::string_view text) { return interner().number(text); }
std::string_view shape_text(uint32_t shape_key) { return interner().text(shape_key); }

void ShapeKey::put(std::string_view text) {
  const size_t n = std::min(text.size(), sizeof text_ - size_);
  std::memcpy(text_ + size_, text.data(), n);
  size_ += n;
}

ShapeKey& ShapeKey::add(std::string_view dtype, std::span<const int64_t> dims) {
  if (size_ > 0) put(" ");
  put(dtype);
  put("[");
  for (size_t i = 0; i < dims.size(); ++i) {
    char digits[24];
    if (i > 0) put(", ");
    put({digits,
        static_cast<size_t>(std::to_chars(digits, digits + sizeof digits, dims[i]).ptr - digits)});
  }
  put("]");
  return *this;
}

}  // namespace sinter::profiler
