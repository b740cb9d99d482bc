// A stream of random words, drawn in order, counter-based (core/rng.h): seed and three words say
// which one. Its words are the same on every machine.
#pragma once

#include "core/rng.h"

namespace sinter {

class WordStream {
 public:
  WordStream(uint64_t seed, uint32_t a, uint32_t b, uint32_t c)
      : counter_{0, a, b, c}, key_{uint32_t(seed), uint32_t(seed >> 32)} {}
  uint32_t next() {
    if (drawn_ % 4 == 0) words_ = block(drawn_ / 4);
    return words_[drawn_++ % 4];
  }
  // Its words from 4 i on.
  std::array<uint32_t, 4> block(uint32_t i) const {
    return philox4x32({i, counter_[1], counter_[2], counter_[3]}, key_);
  }

 private:
  std::array<uint32_t, 4> counter_, words_{};
  std::array<uint32_t, 2> key_;
  uint32_t drawn_ = 0;
};

}  // namespace sinter
