// NumPy files (.npy, format 1.0 to 3.0), raw or gzip: digits and labels as Python saves them.
//
// Little-endian and in C order. Every check is made before memory is taken for what the header
// promises, and the length must be exact. Errors are data errors with the file, what is there and
// the line of Python that cures it.
#pragma once

#include <string>

#include "data/bytes.h"

namespace sinter {

FileArray read_npy(const std::string& path);  // u8, i32, i64 or f32

}  // namespace sinter
