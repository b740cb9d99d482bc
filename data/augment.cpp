#include "data/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/numbers.h"
#include "core/rng.h"

namespace sinter {
namespace {

constexpr uint32_t kAugmentStream = 0x61756772;  // "augr": apart from those of order and dropout

// The draws of one image in one epoch: word k of its stream as a number in [-1, 1).
class AugmentDraws {
 public:
  AugmentDraws(uint64_t seed, int64_t epoch, int64_t index)
      : counter_{0, kAugmentStream ^ uint32_t(index >> 32), uint32_t(index), uint32_t(epoch)},
        key_{uint32_t(seed), uint32_t(seed >> 32)} {}
  float next() {
    if (drawn_ % 4 == 0) {
      counter_[0] = drawn_ / 4;
      words_ = philox4x32(counter_, key_);
    }
    return 2 * uniform_from_bits(words_[drawn_++ % 4]) - 1;
  }

 private:
  std::array<uint32_t, 4> counter_, words_{};
  std::array<uint32_t, 2> key_;
  uint32_t drawn_ = 0;
};

// out = in smoothed along one axis: `lines` of `length` items, `step` from item to item and `skip`
// from line to line. What lies beyond the ends counts as 0.
void smooth_lines(const std::vector<float>& in, std::vector<float>& out,
    const std::vector<float>& taps, int64_t lines, int64_t skip, int64_t length, int64_t step) {
  const auto radius = int64_t(taps.size()) / 2;
  std::ranges::fill(out, 0.0f);
  for (int64_t t = -radius; t <= radius; ++t) {
    const float tap = taps[size_t(t + radius)];
    const int64_t begin = std::max<int64_t>(0, -t), end = std::min(length, length - t);
    // The inner loop runs along memory.
    if (step == 1) {
      for (int64_t line = 0; line < lines; ++line) {
        float* to = out.data() + line * skip;
        const float* from = in.data() + line * skip + t;
        for (int64_t i = begin; i < end; ++i) to[i] += tap * from[i];
      }
    } else {
      for (int64_t i = begin; i < end; ++i) {
        float* to = out.data() + i * step;
        const float* from = in.data() + (i + t) * step;
        for (int64_t line = 0; line < lines; ++line) to[line] += tap * from[line];
      }
    }
  }
}

// A displacement for each pixel, along one axis: draws that a Gaussian smooths.
std::vector<float> elastic_field(
    const Augment& augment, const ImageShape& shape, AugmentDraws& draws) {
  const auto radius = int64_t(std::ceil(3 * augment.sigma));
  std::vector<float> taps;
  double sum = 0;
  for (int64_t t = -radius; t <= radius; ++t) {
    const double z = double(t) / augment.sigma;
    taps.push_back(float(std::exp(-z * z / 2)));
    sum += taps.back();
  }
  for (float& tap : taps) tap = float(tap / sum);
  const auto size = size_t(shape.height * shape.width);
  std::vector<float> field(size), rows(size);
  for (float& value : field) value = float(augment.elastic) * draws.next();
  smooth_lines(field, rows, taps, shape.height, shape.width, shape.width, 1);
  smooth_lines(rows, field, taps, shape.width, 1, shape.height, shape.width);
  return field;
}

// The value at (x, y), between its four neighbours.
uint8_t sample(const uint8_t* plane, const ImageShape& shape, float x, float y) {
  const float left = std::floor(x), top = std::floor(y), right_share = x - left,
              low_share = y - top;
  const auto at = [&](float column, float row) -> float {
    const bool inside =
        column >= 0 && row >= 0 && column < float(shape.width) && row < float(shape.height);
    if (!inside) return 0;
    return plane[int64_t(row) * shape.width + int64_t(column)];
  };
  const float upper = at(left, top) * (1 - right_share) + at(left + 1, top) * right_share;
  const float lower = at(left, top + 1) * (1 - right_share) + at(left + 1, top + 1) * right_share;
  return uint8_t(upper * (1 - low_share) + lower * low_share + 0.5f);
}

struct AugmentWord {
  const char* name;
  double Augment::*field;
  double high;
};
constexpr AugmentWord kAugmentWords[] = {{"shift", &Augment::shift, 1000},
    {"rotate", &Augment::rotate, 180}, {"scale", &Augment::scale, 90},
    {"elastic", &Augment::elastic, 10000}};

double augment_number(std::string_view item, std::string_view text, double low, double high) {
  double value = 0;
  SINTER_CHECK(parse_all(text, value) && value >= low && value <= high, usage,
      cat("augment: number wanted: ", escaped(text), " in ", escaped(item), "; allowed ", low, "..",
          high),
      "shift=2,rotate=10,scale=10,elastic=34:4");
  return value;
}

void parse_augment_item(Augment& out, std::string_view item) {
  const std::string_view name = item.substr(0, item.find('='));
  const std::string_view number = item.substr(std::min(name.size() + 1, item.size()));
  const auto word = std::ranges::find(kAugmentWords, name, &AugmentWord::name);
  std::vector<std::string> names;
  for (const AugmentWord& known : kAugmentWords) names.push_back(known.name);
  const std::string nearest = nearest_word(name, names);
  SINTER_CHECK(word != std::end(kAugmentWords), usage,
      cat("augment: unknown word: ", escaped(name), "; ",
          nearest.empty() ? "" : cat("nearest is ", nearest, "; "), "allowed ", join(names)),
      "shift=2,rotate=10,scale=10,elastic=34:4");
  const size_t colon = word->field == &Augment::elastic ? number.find(':') : std::string::npos;
  out.*word->field = augment_number(item, number.substr(0, colon), 0, word->high);
  if (colon != std::string::npos)
    out.sigma = augment_number(item, number.substr(colon + 1), 0.5, 100);
}

}  // namespace

Augment parse_augment(const std::string& text) {
  Augment out;
  if (text.empty()) return out;
  for (const std::string_view item : parts_of(text, ",")) parse_augment_item(out, item);
  return out;
}

void augment_image(const Augment& augment, uint64_t seed, int64_t epoch, int64_t index,
    const ImageShape& shape, const uint8_t* image, uint8_t* out) {
  AugmentDraws draws(seed, epoch, index);
  const auto draw = [&draws](double most) { return float(most) * draws.next(); };
  const float angle = draw(augment.rotate * std::numbers::pi / 180),
              factor = 1 + draw(augment.scale / 100), dx = draw(augment.shift),
              dy = draw(augment.shift), cosine = std::cos(angle) / factor,
              sine = std::sin(angle) / factor;
  std::vector<float> field_x, field_y;
  if (augment.elastic > 0) {
    field_x = elastic_field(augment, shape, draws);
    field_y = elastic_field(augment, shape, draws);
  }
  const float centre_x = float(shape.width - 1) / 2, centre_y = float(shape.height - 1) / 2;
  for (int64_t y = 0, i = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; ++x, ++i) {
      const float rx = float(x) - centre_x - dx, ry = float(y) - centre_y - dy;
      float from_x = centre_x + cosine * rx + sine * ry,
            from_y = centre_y - sine * rx + cosine * ry;
      if (!field_x.empty()) {
        from_x += field_x[size_t(i)];
        from_y += field_y[size_t(i)];
      }
      for (int64_t c = 0; c < shape.channels; ++c) {
        const int64_t plane = c * shape.height * shape.width;
        out[plane + i] = sample(image + plane, shape, from_x, from_y);
      }
    }
  }
}

}  // namespace sinter
