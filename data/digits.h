// The built-in synthetic digits: 28x28 grey images of handwritten-looking digits, drawn on demand,
// so that training needs no file.
//
// Item i is a pure function of (data seed, i) from its own counter-based stream, so items can be
// drawn alone, in any order, in parallel. The bytes are the same on every machine, compiler and
// thread count: float + - * / sqrt only, no libm, no contraction. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace sinter {

inline constexpr int kImageSide = 28;
inline constexpr int kImagePixels = kImageSide * kImageSide;
inline constexpr uint64_t kFirstTestDigit = uint64_t{1}
                                            << 32;  // training items are 0.., test items start here
inline constexpr uint64_t kDataSeed =
    1;  // whatever the training seed is, so that runs share one data set

// Draws item `index` into `image` and returns its label, 0..9. REQUIRES: image.size() ==
// kImagePixels.
int draw_digit(uint64_t data_seed, uint64_t index, std::span<uint8_t> image);

// Items first.. into images and labels. REQUIRES: images.size() == labels.size() * kImagePixels.
void draw_digits(
    uint64_t data_seed, uint64_t first, std::span<uint8_t> images, std::span<int32_t> labels);

}  // namespace sinter
