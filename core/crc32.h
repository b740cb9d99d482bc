// CRC-32 as in gzip and PNG (polynomial 0xEDB88320, reflected), by zlib. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinter {

// Goes on from `crc`, the result for what came before.
uint32_t crc32(const void* bytes, size_t n, uint32_t crc = 0);

}  // namespace sinter
