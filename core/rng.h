// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC11). The same counter and key give the same bits on every device and in every launch
// shape; there is no state to share between threads.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/math.h"

namespace sinter {

// Ten rounds of Philox on a 128-bit counter and a 64-bit key.
SINTER_FN constexpr std::array<uint32_t, 4> philox4x32(
    std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0], p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], uint32_t(p1),
        uint32_t(p0 >> 32) ^ counter[3] ^ key[1], uint32_t(p0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Words 4 * block to 4 * block + 3 of the stream (seed, stream).
SINTER_FN constexpr std::array<uint32_t, 4> philox_words(
    uint64_t seed, uint64_t stream, uint64_t block) {
  return philox4x32(
      {uint32_t(block), uint32_t(block >> 32), uint32_t(stream), uint32_t(stream >> 32)},
      {uint32_t(seed), uint32_t(seed >> 32)});
}
// Element i of a tensor draws word i, whatever thread computes it.
SINTER_FN constexpr uint32_t philox_word(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox_words(seed, stream, index / 4)[index % 4];
}

// 24 random bits -> a float in [0, 1), exactly.
SINTER_FN constexpr float uniform_from_bits(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// Two words -> a draw from the normal distribution N(0, 1), on the host. Box and Muller 1958, of
// which one of the two results is used; + 0.5 keeps the logarithm finite.
inline double normal_from_bits(uint32_t radius, uint32_t angle) {
  const double u = (radius + 0.5) * 0x1p-32, v = angle * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace sinter
