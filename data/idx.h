// IDX files of bytes, as MNIST comes: big-endian header 00 00 08 ndim, the dims, then the bytes;
// raw or gzip.
//
// Every check is made before memory is taken for what the header promises, and the length must be
// exact. Errors are data errors that give the file, the field, the promised and the real number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/bytes.h"

namespace sinter {

enum class IdxKind { labels = 1, images = 3 };  // the number of dims

// u8, labels [N] or images [N, height, width].
FileArray read_idx(const std::string& path, IdxKind wanted);
// Raw, whole or not at all. REQUIRES: bytes.size() is the product of dims, each below 2^31. Throws
// checkpoint where writing fails.
void write_idx(
    const std::string& path, const std::vector<int64_t>& dims, std::span<const uint8_t> bytes);

}  // namespace sinter
