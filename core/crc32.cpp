#include "core/crc32.h"

#include <zlib.h>

namespace sinter {

uint32_t crc32(const void* bytes, size_t n, uint32_t crc) {
  return n == 0 ? crc : uint32_t(::crc32_z(crc, static_cast<const Bytef*>(bytes), n));
}

}  // namespace sinter
