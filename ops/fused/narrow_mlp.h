// How a chain of narrow layers lies in a block's shared memory: the rows that each layer reads, two
// turns of gradients, weights, biases. Rows are an odd number of elements long, so that
// neighbouring rows lie in different banks.
#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "ops/fused/fused.h"

namespace sinter {

inline constexpr int64_t kNarrowRows = 64, kNarrowWidth = 128, kNarrowWeights = 16 << 10;
// There are two kernels, for layouts of up to so many bytes: every card has the first, sm_80 and
// sm_90 the second too.
inline constexpr int64_t kNarrowBytes = 64 << 10, kNarrowMostBytes = 160 << 10;

struct NarrowLayout {
  struct Layer {
    int64_t rows = 0, weight = 0, bias = 0,
            gradients = 0;  // gradients: where dW, then db begin among all gradients
  };
  Layer layer[kNarrowLayers];
  int64_t turn[2] = {}, turn_row = 1, size = 0, gradients = 0, weights = 0;  // elements

  static constexpr int64_t row(int64_t width) { return width | 1; }
  explicit NarrowLayout(std::span<const int64_t> widths) {
    const size_t layers = widths.size() - 1;
    turn_row = row(*std::max_element(widths.begin() + 1, widths.end()));
    for (size_t l = 0; l < layers; ++l) {
      const int64_t ins = widths[l], outs = widths[l + 1];
      const auto take = [&](int64_t n) { return std::exchange(size, size + n); };
      layer[l] = {take(kNarrowRows * row(ins)), take(outs * row(ins)), take(outs),
          std::exchange(gradients, gradients + outs * (ins + 1))};
      weights += outs * ins;
    }
    for (int64_t& t : turn) t = std::exchange(size, size + kNarrowRows * turn_row);
  }
};

}  // namespace sinter
