// Values of a tensor as a small picture, for inspect.cpp.
#pragma once

#include "core/tensor.h"

namespace sinter::measure {

struct Picture {
  int64_t tiles = 0, rows = 0, columns = 0;  // as many pixels are shown; a tile may be sampled
  // A character each: '#' for the lowest of 57 levels, '?' for 0, '[' for the highest; the ends
  // stand for the largest magnitude.
  std::string pixels{};
  // Of all values, not of the sampled ones alone:
  double low = 0, high = 0, mean = 0, deviation = 0;
  double zeros = 0;               // the share of zeros
  std::vector<int64_t> counts{};  // 16, from low to high
  std::vector<double> values{};   // if they are few
};

inline constexpr int64_t kFewTiles = 8, kManyTiles = 32;

// Matrices are one tile, of at most 24 x 64 samples. Images [N, C, H, W], kernels of a convolution,
// and rows that are images ([N, C H W] for an `image` [C, H, W]) are tiles of H x W.
Picture picture(const std::vector<double>& values, const Shape& shape, const Shape& image,
    int64_t most_tiles = kFewTiles);
Picture picture(const Tensor& t, const Shape& image);

}  // namespace sinter::measure
