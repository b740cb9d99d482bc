// PNG, and the digit made of it. The checksums of the chunks are made right first, else hardly an
// input would pass them.
#include "data/png.h"

#include <zlib.h>

#include <vector>

#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {
namespace {

void big_endian(uint8_t* to, uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = uint8_t(value >> (24 - 8 * i));
}

}  // namespace

void one(Bytes bytes) {
  std::vector<uint8_t> file(bytes.begin(), bytes.end());
  for (size_t at = 8; at + 12 <= file.size();) {  // length, type, data, checksum
    const uint32_t length =
        uint32_t{file[at]} << 24 | file[at + 1] << 16 | file[at + 2] << 8 | file[at + 3];
    if (length > file.size() - at - 12) break;
    big_endian(&file[at + 8 + length], uint32_t(crc32(0, &file[at + 4], length + 4)));
    at += 12 + length;
  }
  const PngImage image = read_png(as_file(file));
  guarded([&] { prepare_digit(image); });
  guarded([&] { raw_image(image); });
}

}  // namespace sinter::fuzz
