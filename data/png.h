// One PNG image as a model's input: read as grey, and prepared the way MNIST was: white on black,
// 20 pixels high or wide, centred by mass.
//
// Used by `mnist predict`. Any colour type and depth, at most 4096 x 4096; errors are data errors
// (not_built without libpng). Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/digits.h"

namespace sinter {

struct GreyImage {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width]; transparent parts lie on black under bright ink,
                                // on white under dark
  std::string name;             // of the file, for messages
};
using DigitImage = std::array<uint8_t, kImagePixels>;

// Reads the file (a path; /dev/stdin works too).
GreyImage read_png(const std::string& path);

// Inverted if the border is bright, cropped to the ink, longer side scaled to 20, stretched to full
// white, centre of mass in the middle.
DigitImage prepare_digit(const GreyImage& image);

// The pixels as they are; throws data unless the image is 28 x 28.
DigitImage raw_digit(const GreyImage& image);

}  // namespace sinter
