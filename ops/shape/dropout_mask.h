// Which elements dropout keeps: a pure function of (seed, step offset, op id, element), so a mask
// is drawn again in backward and in fused ops, on every device, and never stored.
#pragma once

#include <cmath>

#include "core/rng.h"

namespace sinter {

struct DropoutMask {
  uint64_t seed, stream;
  uint32_t threshold;  // of the upper 24 bits: kept iff uniform_from_bits(word) >= p
  double scale;        // 1 / (1 - p); 0 for p = 1, where nothing is kept

  // rng: (seed, offset, first op id), see ops/optim/step_state.h
  DropoutMask(const int64_t* rng, int64_t op_id, double p)
      : DropoutMask(rng[0], rng[1], rng[2] + op_id, threshold_of(p)) {
    scale = scale_of(p);
  }
  // The mask alone, without the scale: for kernels, whose rng lies on the device.
  SINTER_FN DropoutMask(int64_t seed, int64_t offset, int64_t op_id, uint32_t threshold)
      : seed(uint64_t(seed)),
        stream((uint64_t(offset) << 32) + uint64_t(op_id)),
        threshold(threshold),
        scale(0) {}
  static uint32_t threshold_of(double p) { return uint32_t(std::ceil(p * 0x1p24)); }
  static double scale_of(double p) { return p < 1 ? 1 / (1 - p) : 0; }

  // words[i] for elements [4 * block, 4 * block + 4 * kBlocks); kept(words[i]) says which stay.
  static constexpr int kBlocks = 32;
  void draw(uint64_t block, uint32_t (&words)[4 * kBlocks]) const {
    uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      c0[b] = uint32_t(block + uint64_t(b));
      c1[b] = uint32_t((block + uint64_t(b)) >> 32);
      c2[b] = uint32_t(stream);
      c3[b] = uint32_t(stream >> 32);
    }
    // Philox4x32-10 of core/rng.h, on kBlocks counters side by side.
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int b = 0; b < kBlocks; ++b) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c0[b], p1 = uint64_t{0xCD9E8D57u} * c2[b];
        c0[b] = uint32_t(p1 >> 32) ^ c1[b] ^ k0;
        c1[b] = uint32_t(p1);
        c2[b] = uint32_t(p0 >> 32) ^ c3[b] ^ k1;
        c3[b] = uint32_t(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int b = 0; b < kBlocks; ++b) {
      words[4 * b] = c0[b];
      words[4 * b + 1] = c1[b];
      words[4 * b + 2] = c2[b];
      words[4 * b + 3] = c3[b];
    }
  }
  SINTER_FN bool kept(uint32_t word) const { return (word >> 8) >= threshold; }
  bool kept_at(uint64_t element) const { return kept(philox_word(seed, stream, element)); }
};

}  // namespace sinter
