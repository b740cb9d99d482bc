// Augmentation: an image as an epoch sees it: moved, turned and scaled a little, so that a
// net does not learn the training images by heart.
//
// Batches does it on the CPU, beside training, with BatchOptions::augment. What an image becomes is
// a pure function of (seed, epoch, index of the image): the same at every batch size and number of
// threads, and after a resume. All three are one map from a pixel of the result to the place in the
// image that it is read from, between four pixels; beyond the border all is 0.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace sinter {

struct Augment {
  double shift = 0;   // at most so many pixels, along x and y
  double rotate = 0;  // at most so many degrees
  double scale = 0;   // larger or smaller by at most so many percent

  bool any() const { return shift > 0 || rotate > 0 || scale > 0; }
};

// "shift=2,rotate=10,scale=10", or "" for none. Throws usage.
Augment parse_augment(const std::string& text);

// REQUIRES: both hold shape.pixels() bytes, [C, H, W].
void augment_image(const Augment& augment, uint64_t seed, int64_t epoch, int64_t index,
    const ImageShape& shape, const uint8_t* image, uint8_t* out);

}  // namespace sinter
