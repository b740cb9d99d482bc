// NumPy files (.npy, format 1.0 to 3.0), raw or gzip: digits and labels as Python saves them.
//
// Little-endian and in C order. Every check is made before memory is taken for what the header
// promises, and the length must be exact. Errors are data errors with the file, what is there and
// the line of Python that cures it.
#pragma once

#include <string>

#include "core/tensor.h"
#include "data/bytes.h"

namespace sinter {

FileArray read_npy(const std::string& path);  // u8, i32, i64 or f32

// u8 [N, 28, 28] from u8 or f32 [N, 28, 28] or [N, 784], or one image [28, 28]. f32 is 0..1 and
// becomes the nearest of the 256 levels.
Tensor read_npy_images(const std::string& path);
// i32 [N] from u8, i32 or i64 [N].
Tensor read_npy_labels(const std::string& path);

}  // namespace sinter
