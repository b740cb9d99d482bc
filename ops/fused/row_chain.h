// Where row_chain keeps a chain of layers in a block's shared memory: for its limit, and for its
// kernels.
#pragma once

#include <span>

#include "ops/fused/activation.h"

namespace sinter {

// Matrices lie in tiles of 16 rows of 128 bytes, the last ones filled up with zeros. A row has 16
// bytes more, so that what a warp reads at once lies in different banks.
struct ChainLayout {
  static constexpr int kRows = 16, kRowBytes = 128, kTileBytes = kRows * (kRowBytes + 16),
                       kLogitBytes = kRows * (int(kHeadClasses) + 4) * 4;
  // The first tile of each weight and of each layer's input; the last rows are dz. And of what the
  // activation that gave a layer's input saved: that input itself, if it reads no other.
  int weight[kChainLayers], rows[kChainLayers + 1], saved[kChainLayers];
  int tiles = 0;

  // widths: of the chain's input and of each layer's result.
  ChainLayout(std::span<const int64_t> widths, DType dtype, const RowChainAttrs& attrs) {
    const bool of_inputs = act_saves(attrs.act) == pointwise::Saves::inputs;
    const auto take = [&](int64_t outer, int64_t inner) {
      const int64_t columns = kRowBytes / int64_t(size_of(dtype));
      const int first = tiles;
      tiles += int((outer + kRows - 1) / kRows * ((inner + columns - 1) / columns));
      return first;
    };
    for (size_t l = 0; l < widths.size(); ++l) rows[l] = take(kRows, widths[l]);
    for (size_t l = 0; l + 1 < widths.size(); ++l) {
      weight[l] = take(widths[l + 1], widths[l]);
      saved[l] = of_inputs && (l > 0 || attrs.of_act) ? take(kRows, widths[l]) : rows[l];
    }
  }
  size_t bytes() const { return size_t(kLogitBytes) + size_t(tiles) * kTileBytes; }
};

// The widths of a chain by its operands (fused.h).
std::vector<int64_t> chain_widths(std::span<const Tensor> in);

}  // namespace sinter
