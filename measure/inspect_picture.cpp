#include "measure/inspect_picture.h"

#include <algorithm>
#include <cmath>

namespace sinter::measure {
namespace {

constexpr size_t kFewValues = 160;  // are given as they are, too

struct Tiles {
  int64_t count, rows, columns;
};

Tiles tiles_of(const Shape& shape, const Shape& image) {
  const int64_t last = shape.rank() > 0 ? shape[-1] : 1, n = shape.numel();
  if (n == 0) return {0, 0, 0};
  if (shape.rank() == 4) return {shape[0] * shape[1], shape[2], shape[3]};
  if (shape.rank() == 2 && image.rank() == 3 && last == image.numel())
    return {shape[0] * image[0], image[1], image[2]};
  return {1, n / last, last};
}

char pixel(double v, double top) {
  constexpr double kMiddle = 28;  // levels 0..56
  const double level = top > 0 ? kMiddle + kMiddle * std::clamp(v / top, -1.0, 1.0) : kMiddle;
  return static_cast<char>('#' + static_cast<int>(std::isnan(v) ? kMiddle : std::lround(level)));
}

// Samples, evenly spread over what is too large.
std::string pixels_of(
    const std::vector<double>& values, const Tiles& all, const Tiles& shown, double top) {
  std::string out;
  for (int64_t t = 0; t < shown.count; ++t) {
    for (int64_t r = 0; r < shown.rows; ++r) {
      for (int64_t c = 0; c < shown.columns; ++c) {
        const int64_t row = r * all.rows / shown.rows, column = c * all.columns / shown.columns;
        out += pixel(values[(t * all.rows + row) * all.columns + column], top);
      }
    }
  }
  return out;
}

}  // namespace

Picture picture(
    const std::vector<double>& values, const Shape& shape, const Shape& image, int64_t most_tiles) {
  Picture out{.low = INFINITY, .high = -INFINITY, .counts = std::vector<int64_t>(16, 0)};
  double sum = 0, squares = 0;
  int64_t zeros = 0;
  for (const double v : values) {
    out.low = std::fmin(out.low, v);
    out.high = std::fmax(out.high, v);
    sum += v;
    squares += v * v;
    zeros += v == 0;
  }
  for (const double v : values) {
    const double share = out.high > out.low ? (v - out.low) / (out.high - out.low) : 0;
    if (std::isfinite(share)) ++out.counts[static_cast<size_t>(std::min(15.0, 16 * share))];
  }
  const auto n = static_cast<double>(std::max<size_t>(values.size(), 1));
  out.mean = sum / n;
  out.deviation = std::sqrt(std::fmax(squares / n - out.mean * out.mean, 0));
  out.zeros = static_cast<double>(zeros) / n;
  const double top = std::fmax(std::abs(out.low), std::abs(out.high));
  if (values.size() <= kFewValues) out.values = values;
  const Tiles all = tiles_of(shape, image);
  const bool matrix = all.count == 1;
  out.tiles = std::min(all.count, most_tiles);
  out.rows = std::min<int64_t>(all.rows, matrix ? 24 : 28);
  out.columns = std::min<int64_t>(all.columns, matrix ? 64 : 28);
  out.pixels = pixels_of(values, all, {out.tiles, out.rows, out.columns}, top);
  return out;
}

Picture picture(const Tensor& t, const Shape& image) {
  return picture(t.to_vector<double>(), t.shape(), image);
}

}  // namespace sinter::measure
