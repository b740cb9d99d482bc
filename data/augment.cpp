#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/numbers.h"
#include "data/word_stream.h"

namespace sinter {
namespace {

constexpr uint32_t kAugmentStream = 0x61756772;  // "augr": apart from those of order and dropout

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

constexpr const char* kAugmentExample = "shift=2,rotate=10,scale=10";
struct AugmentWord {
  const char* name;
  double Augment::*field;
  double high;
};
constexpr AugmentWord kAugmentWords[] = {{"shift", &Augment::shift, 1000},
    {"rotate", &Augment::rotate, 180}, {"scale", &Augment::scale, 90}};

void parse_augment_item(Augment& out, std::string_view item) {
  const std::string_view name = item.substr(0, item.find('='));
  const std::string_view number = item.substr(std::min(name.size() + 1, item.size()));
  const auto word = std::ranges::find(kAugmentWords, name, &AugmentWord::name);
  std::vector<std::string> names;
  for (const AugmentWord& known : kAugmentWords) names.push_back(known.name);
  const std::string nearest = nearest_word(name, names);
  SINTER_CHECK(word != std::end(kAugmentWords), usage,
      str("augment: unknown word: ", escaped(name), "; ",
          nearest.empty() ? "" : str("nearest is ", nearest, "; "), "allowed ", join(names)),
      kAugmentExample);
  double& value = out.*word->field;
  SINTER_CHECK(parse_all(number, value) && value >= 0 && value <= word->high, usage,
      str("augment: number wanted: ", escaped(number), " in ", escaped(item), "; allowed 0..",
          word->high),
      kAugmentExample);
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
  WordStream words(seed, kAugmentStream ^ uint32_t(index >> 32), uint32_t(index), uint32_t(epoch));
  const auto draw = [&words](double most) {
    return float(most) * (2 * uniform_from_bits(words.next()) - 1);
  };
  const float angle = draw(augment.rotate * std::numbers::pi / 180),
              factor = 1 + draw(augment.scale / 100), dx = draw(augment.shift),
              dy = draw(augment.shift), cosine = std::cos(angle) / factor,
              sine = std::sin(angle) / factor;
  const float centre_x = float(shape.width - 1) / 2, centre_y = float(shape.height - 1) / 2;
  for (int64_t y = 0, i = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; ++x, ++i) {
      const float rx = float(x) - centre_x - dx, ry = float(y) - centre_y - dy;
      const float from_x = centre_x + cosine * rx + sine * ry,
                  from_y = centre_y - sine * rx + cosine * ry;
      for (int64_t c = 0; c < shape.channels; ++c) {
        const int64_t plane = c * shape.height * shape.width;
        out[plane + i] = sample(image + plane, shape, from_x, from_y);
      }
    }
  }
}

}  // namespace sinter
