// The emulator without its arithmetic: while one of these lives, launches are counted, logged and
// told to profilers, but not run. For their numbers and shapes at sizes that would take hours.
// REQUIRES: nobody reads a result.
#pragma once

namespace sinter::simt {

struct CountOnly {
  CountOnly();
  ~CountOnly();
  CountOnly(const CountOnly&) = delete;
  CountOnly& operator=(const CountOnly&) = delete;
};

}  // namespace sinter::simt
