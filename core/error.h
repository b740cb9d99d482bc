// Errors of the whole library: one class, one message form.
//
//   op: what is wrong: operands as dtype[shape] device; the failing rule with its numbers
//       in MLP / layers.2 / Linear(512 -> 256)
//       hint: something to type or to change
//
// SINTER_CHECK is for the caller's mistakes, SINTER_ASSERT for ours. Library code throws; it never
// prints and never exits.
#pragma once

#include <exception>
#include <initializer_list>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sinter {

class Error : public std::exception {
 public:
  enum class Kind {
    internal,
    shape,
    dtype,
    state,
    usage,
    data,
    checkpoint,
    device,
    memory,
    not_built,
    numeric,
    check,
    untrusted,
    interrupted
  };

  // `message` is "op: what is wrong: facts"; `hint` may be empty.
  Error(Kind kind, std::string message, std::string hint = "");

  Kind kind() const noexcept { return kind_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& hint() const noexcept { return hint_; }
  // Message, then "in <path>" and "hint: .." lines, indented by 4.
  const char* what() const noexcept override { return what_.c_str(); }

  // Names the module in which the error passed; the first (innermost, full) path stays.
  void set_path(const std::string& path);

 private:
  void compose();
  Kind kind_;
  std::string message_, hint_, path_, what_;
};

template <class T>
concept Printable = requires(std::ostream& out, const T& value) { out << value; };

namespace detail {
// A part of str(): text, or a value with what prints it. So the printing is compiled once for each
// type, not for each list of them.
struct Part {
  std::string_view text{};
  const void* value = nullptr;
  void (*print)(std::ostream& out, const void* value) = nullptr;
};
template <class T> Part part_of(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return {.text = value};
  } else {
    return {.value = &value,
        .print = [](std::ostream& out, const void* v) { out << *static_cast<const T*>(v); }};
  }
}
std::string cat_parts(std::initializer_list<Part> parts);
[[noreturn, gnu::cold]] void fail(
    Error::Kind kind, std::string_view message, std::string_view hint = "");
[[noreturn, gnu::cold]] void assertion_failed(
    const char* condition, const char* file, int line, const std::string& detail);
}  // namespace detail

// Concatenates anything that has operator<<; floats shortest first.
template <Printable... Ts> std::string str(const Ts&... parts) {
  return detail::cat_parts({detail::part_of(parts)...});
}

// Text from files or users, with control bytes as \xNN, so that it can be printed.
std::string escaped(std::string_view text);

// For "nearest is .." hints; both without the dashes of a flag. What others call by this word
// ("swish" is silu, "learning-rate" lr); else the nearest by edit distance, at most 2 and less than
// all letters; else one that begins with the word, or the word with it ("dump" is dump-graph,
// "num-epochs" epochs); or "".
std::string nearest_word(std::string_view word, const std::vector<std::string_view>& candidates);
template <class Range> std::string nearest_word(std::string_view word, const Range& candidates) {
  return nearest_word(
      word, std::vector<std::string_view>(std::begin(candidates), std::end(candidates)));
}
int edit_distance(std::string_view a, std::string_view b);

}  // namespace sinter

// SINTER_CHECK(x.rank() == 2, shape, sinter::str("linear: ..."), "optional hint")
#define SINTER_CHECK(condition, kind, ...)                              \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::sinter::detail::fail(::sinter::Error::Kind::kind, __VA_ARGS__); \
  } while (0)

#define SINTER_ASSERT(condition, ...)                                  \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::sinter::detail::assertion_failed(                              \
          #condition, __FILE__, __LINE__, ::sinter::str(__VA_ARGS__)); \
  } while (0)
