// What an op computes, in one line for a reader, and where it says so: the line of the source to
// read on from. A literal becomes one: .formula = "y = x W^T + b".
#pragma once

#include <string>

namespace sinter {

struct Formula {
  const char *text = "", *file = "";
  int line = 0;
  constexpr Formula() = default;
  constexpr Formula(  // NOLINT: implicit, see above
      const char* words, const char* in = __builtin_FILE(), int at = __builtin_LINE())
      : text(words), file(in), line(at) {}
  // "ops/product/linear.cpp:72"; of a file outside of our source its name as the compiler was given
  // it.
  std::string place() const;
};

}  // namespace sinter
