// Text that is the same whatever locale the host program has set, by std::locale::global() or by
// setlocale(): streams whose numbers are C's, "1200" and "0.5", where others write and read "1.200"
// and "0,5"; errors of the system in English; and what is a letter. (std::to_chars, std::from_chars
// and fmt::format know no locale.)
//
//   ClassicStream<std::ifstream> in(file);
//   in >> milliseconds;
#pragma once

#include <locale.h>
#include <string.h>

#include <locale>
#include <string>
#include <utility>

namespace sinter {

template <class Stream> struct ClassicStream : Stream {
  template <class... A>
  explicit ClassicStream(A&&... arguments) : Stream(std::forward<A>(arguments)...) {
    this->imbue(std::locale::classic());
  }
};

// Of an errno.
inline std::string error_text(int number) {
  static const locale_t english = newlocale(LC_ALL_MASK, "C", nullptr);
  return strerror_l(number, english);
}

// As isalnum() and tolower() of the C locale: of ASCII alone.
constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }
constexpr bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (lower_case(c) >= 'a' && lower_case(c) <= 'z');
}

}  // namespace sinter
