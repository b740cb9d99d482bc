// One PNG image as a model's input: read as grey, and prepared the way MNIST was: white on black,
// centred by mass, of 28 pixels 20 high or wide.
//
// Used by `mnist predict`. Any colour type and depth, at most 4096 x 4096; errors are data errors
// (not_built without libpng). Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace sinter {

struct GreyImage {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width]; transparent parts lie on black under bright ink,
                                // on white under dark
  std::string name;             // of the file, for messages
};
using DigitImage = std::vector<uint8_t>;  // [height, width] of the size asked for

// Reads the file (a path; /dev/stdin works too).
GreyImage read_png(const std::string& path);

// Inverted if the border is bright, cropped to the ink, longer side scaled to 20/28 of the shorter
// one of `size`, stretched to full white, centre of mass in the middle. REQUIRES: size is grey.
DigitImage prepare_digit(const GreyImage& image, const ImageShape& size = {});

// The pixels as they are; throws data unless the image has that size. REQUIRES: size is grey.
DigitImage raw_digit(const GreyImage& image, const ImageShape& size = {});

}  // namespace sinter
