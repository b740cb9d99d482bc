// Values of a tensor as a small picture: for inspect.cpp. JSON with tiles x rows x columns pixels
// in `pixels`, a character each: '#' for the lowest of 57 levels, '?' for 0, '[' for the highest;
// `top`, the magnitude that the ends stand for; of all values, not of the sampled ones alone: low,
// high, mean, deviation, the share of zeros, 16 counts from low to high, and if they are few the
// `values`. A bit mask has levels
// '#' and '[', `mask`, and as `mean` its share of ones.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/tensor.h"

namespace sinter::measure {

using InspectJson = nlohmann::ordered_json;

inline constexpr int64_t kFewTiles = 8, kManyTiles = 32;

// Matrices are one tile, of at most 24 x 64 samples. Images [N, C, H, W], kernels of a convolution,
// and rows that are images ([N, C H W] for an `image` [C, H, W]) are tiles of H x W.
InspectJson picture(const std::vector<double>& values, const Shape& shape, const Shape& image,
    int64_t most_tiles = kFewTiles);
InspectJson picture(const Tensor& t, const Shape& image);
// Of the bits of a mask (ops/relu_mask.h) that belong to a tensor of that shape.
InspectJson mask_picture(const Tensor& mask, const Shape& of);
// Is this, beside y in an op's results, y's mask?
bool is_mask(DType dtype, const Shape& shape, const Shape& y);

}  // namespace sinter::measure
