// One PNG image as a model's input. Read as grey, and prepared the way MNIST was: white on black,
// centred by mass, of 28 pixels 20 high or wide; or read in colour, and scaled.
//
// Used by `mnist predict`. Any colour type and depth but interlaced files of 16 bits a channel, at
// most 4096 x 4096; errors are data errors. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace sinter {

struct PngImage {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]; transparent parts lie on black under
                                // bright ink, on white under dark
  std::string name;             // of the file, for messages
  int channels = 1;             // 1 grey, 3 red, green, blue
};
using ImagePixels = std::vector<uint8_t>;  // [channels, height, width] of the size asked for

// Reads the file (a path; /dev/stdin works too). channels: 1 or 3, whatever the file has. What it
// says of gamma and colours is heeded, as a viewer shows it; `raw`: it is not, and grey bytes are
// those of the file.
PngImage read_png(const std::string& path, int channels = 1, bool raw = false);

// Inverted if the border is bright, cropped to the ink, longer side scaled to 20/28 of the shorter
// one of `size`, stretched to full white, centre of mass in the middle. REQUIRES: both are grey.
ImagePixels prepare_digit(const PngImage& image, const ImageShape& size = {});

// All of it, each pixel the mean of what it covers. REQUIRES: both have the same channels.
ImagePixels scaled_image(const PngImage& image, const ImageShape& size);

// The pixels as they are; throws data unless the image has that size.
ImagePixels raw_image(const PngImage& image, const ImageShape& size = {});

}  // namespace sinter
