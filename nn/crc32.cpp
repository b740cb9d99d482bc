#include "nn/crc32.h"

#if defined(SINTER_HAS_ZLIB)
#include <zlib.h>
#else
#include <array>
#endif

namespace sinter::nn {

#if defined(SINTER_HAS_ZLIB)
uint32_t crc32(const void* bytes, size_t n, uint32_t crc) {
  return n == 0 ? crc : uint32_t(::crc32_z(crc, static_cast<const Bytef*>(bytes), n));
}
#else
uint32_t crc32(const void* bytes, size_t n, uint32_t crc) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0);
      table[i] = c;
    }
    return table;
  }();
  crc = ~crc;
  for (const auto* p = static_cast<const unsigned char*>(bytes); n > 0; --n, ++p)
    crc = crc >> 8 ^ kTable[(crc ^ *p) & 0xff];
  return ~crc;
}
#endif

}  // namespace sinter::nn
