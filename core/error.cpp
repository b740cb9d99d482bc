#include "core/error.h"

#include <cxxabi.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <vector>

#include "core/classic.h"
#include "core/stack.h"

namespace sinter {
namespace {

// Not in the Error, which travels by value and is mostly a caller's mistake.
struct Stack {
  std::mutex mutex;
  std::array<void*, 64> frames;
  int size = 0;
} g_stack;

}  // namespace

std::string internal_error_stack() {
  const std::lock_guard lock(g_stack.mutex);
  const std::unique_ptr<char*, void (*)(void*)> lines(
      backtrace_symbols(g_stack.frames.data(), g_stack.size), std::free);
  std::string out;
  for (int i = 0; lines && i < g_stack.size; ++i) {
    std::string line = lines.get()[i];  // "mnist(_ZN6sinter5ErrorC2E..+0x42) [0x5581]"
    const size_t begin = line.find('(') + 1, end = line.find('+', begin);
    int status = -1;
    const std::unique_ptr<char, void (*)(void*)> name(
        end == std::string::npos ? nullptr
                                 : abi::__cxa_demangle(line.substr(begin, end - begin).c_str(),
                                       nullptr, nullptr, &status),
        std::free);
    if (status == 0) line.replace(begin, end - begin, name.get());
    out += line + "\n";
  }
  return out;
}

Error::Error(Kind kind, std::string message, std::string hint)
    : kind_(kind), message_(std::move(message)), hint_(std::move(hint)) {
  compose();
  if (kind != Kind::internal) return;
  const std::lock_guard lock(g_stack.mutex);
  g_stack.size = backtrace(g_stack.frames.data(), int(g_stack.frames.size()));
}

void Error::set_path(const std::string& path) {
  if (!path_.empty() || path.empty()) return;
  path_ = path;
  compose();
}

void Error::compose() {
  what_ = message_;
  if (!path_.empty()) what_ += "\n    in " + path_;
  if (!hint_.empty()) what_ += "\n    hint: " + hint_;
}

std::string escaped(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : text) {
    if (c >= 0x20 && c != 0x7f) {
      out += char(c);
    } else {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    }
  }
  return out;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

namespace {

// What PyTorch, Keras and others call it, and what we do.
struct OtherName {
  std::string_view theirs, ours;
};
constexpr OtherName kOtherNames[] = {{"bfloat16", "bf16"}, {"bn", "batchnorm"}, {"dense", "linear"},
    {"double", "f64"}, {"early-stopping", "patience"}, {"fc", "linear"}, {"float", "f32"},
    {"float16", "bf16"}, {"float32", "f32"}, {"float64", "f64"}, {"gpu", "cuda"}, {"gpu", "device"},
    {"gradient-accumulation-steps", "accum"}, {"half", "bf16"}, {"learning-rate", "lr"},
    {"lr-scheduler", "schedule"}, {"maxpool", "pool"}, {"opt", "optimizer"}, {"swish", "silu"},
    {"wd", "weight-decay"}};

}  // namespace

std::string nearest_word(std::string_view given, const std::vector<std::string_view>& candidates) {
  const auto letters = [](std::string_view text) {
    std::string out(text.substr(std::min(text.find_first_not_of('-'), text.size())));
    std::ranges::replace(out, '_', '-');
    return out;
  };
  const std::string word = letters(given);
  std::string nearest, related;
  int best = 3;
  for (const std::string_view candidate : candidates) {
    const std::string known = letters(candidate);
    const auto says_so = [&](const OtherName& name) {
      return name.theirs == word && name.ours == known;
    };
    if (std::ranges::any_of(kOtherNames, says_so)) return std::string(candidate);
    const int distance = edit_distance(word, known);
    if (distance < std::min(best, int(std::min(word.size(), known.size())))) {
      nearest = candidate;
      best = distance;
    }
    const bool related_here =
        std::min(word.size(), known.size()) >= 3 &&
        (known.starts_with(word) || word.starts_with(known) || word.ends_with('-' + known));
    if (related.empty() && related_here) related = candidate;
  }
  return nearest.empty() ? related : nearest;
}

namespace detail {
std::string cat_parts(std::initializer_list<Part> parts) {
  std::string all;
  // For what is no text: to make one takes a microsecond.
  std::optional<ClassicStream<std::ostringstream>> out;
  for (const Part& part : parts) {
    if (part.print) {
      if (!out) out.emplace();
      out->str("");
      part.print(*out, part.value);
      all += out->view();
    } else {
      all += part.text;
    }
  }
  return all;
}

void fail(Error::Kind kind, std::string_view message, std::string_view hint) {
  throw Error(kind, std::string(message), std::string(hint));
}

void assertion_failed(
    const char* condition, const char* file, int line, const std::string& detail) {
  throw Error(Error::Kind::internal,
      str("internal: ", condition, detail.empty() ? "" : " (", detail, detail.empty() ? "" : ")",
          " at ", file, ":", line,
          "; this is a bug in sinter, please report it with the command line"));
}
}  // namespace detail

}  // namespace sinter
