// Helpers of the data tests: files written byte by byte (gzip and PNG with stored blocks, so that
// no library of the code under test makes its input).
#pragma once

#include <span>

#include "tests/test_util.h"

namespace sinter {
inline constexpr auto kData = Error::Kind::data;
}

namespace sinter::test {

using Bytes = std::vector<uint8_t>;

inline uint32_t crc32(std::span<const uint8_t> bytes) {
  uint32_t crc = 0xffffffffu;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

inline Bytes big32(uint32_t v) {
  return {uint8_t(v >> 24), uint8_t(v >> 16), uint8_t(v >> 8), uint8_t(v)};
}
inline Bytes little32(uint32_t v) {
  return {uint8_t(v), uint8_t(v >> 8), uint8_t(v >> 16), uint8_t(v >> 24)};
}
inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A deflate stream of stored blocks.
inline Bytes deflate_stored(const Bytes& data) {
  Bytes out;
  for (size_t at = 0; at == 0 || at < data.size(); at += 65535) {
    const auto n = static_cast<uint16_t>(std::min<size_t>(data.size() - at, 65535));
    const uint16_t inverse = static_cast<uint16_t>(~n);
    out = out + Bytes{uint8_t(at + n == data.size()), uint8_t(n), uint8_t(n >> 8), uint8_t(inverse),
                    uint8_t(inverse >> 8)};
    out.insert(out.end(), data.begin() + ptrdiff_t(at), data.begin() + ptrdiff_t(at + n));
  }
  return out;
}

inline Bytes gzip(const Bytes& data) {
  return Bytes{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3} + deflate_stored(data) + little32(crc32(data)) +
         little32(uint32_t(data.size()));
}

// A PNG of 8 or 16 bits a channel; `channels` 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA. Rows are
// taken from `pixels`, all at once or in the seven passes of an interlaced file.
inline Bytes png(uint32_t width, uint32_t height, int channels, const Bytes& pixels,
    uint8_t bits = 8, bool interlaced = false) {
  const auto chunk = [](const char* type, const Bytes& body) {
    const Bytes named = bytes_of(type) + body;
    return big32(uint32_t(body.size())) + named + big32(crc32(named));
  };
  constexpr uint8_t kColour[] = {0, 0, 4, 2, 6};
  struct Pass {
    size_t x, y, step_x, step_y;
  };
  const std::vector<Pass> whole{{0, 0, 1, 1}},
      adam7{{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2},
          {0, 1, 1, 2}};
  Bytes raw;
  const size_t size = size_t(channels) * bits / 8, row = width * size;
  for (const Pass& pass : interlaced ? adam7 : whole) {
    for (size_t y = pass.y; y * row < pixels.size() && pass.x < width; y += pass.step_y) {
      raw.push_back(0);
      for (size_t x = pass.x; x < width; x += pass.step_x) {
        const auto at = pixels.begin() + ptrdiff_t(y * row + x * size);
        raw.insert(raw.end(), at, at + ptrdiff_t(size));
      }
    }
  }
  uint32_t a = 1, b = 0;  // Adler-32
  for (const uint8_t byte : raw) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  return Bytes{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'} +
         chunk("IHDR", big32(width) + big32(height) +
                           Bytes{bits, kColour[channels], 0, 0, uint8_t(interlaced)}) +
         chunk("IDAT", Bytes{0x78, 1} + deflate_stored(raw) + big32(b << 16 | a)) +
         chunk("IEND", {});
}

// An IDX file whose header says `dims`.
inline Bytes idx(const std::vector<uint32_t>& dims, const Bytes& body) {
  Bytes out{0, 0, 8, uint8_t(dims.size())};
  for (const uint32_t dim : dims) out = out + big32(dim);
  return out + body;
}

// A NumPy file of version 1.0 with this header dict.
inline Bytes npy(const std::string& dict, const Bytes& body) {
  const std::string header = dict + "\n";
  return bytes_of("\x93NUMPY") + Bytes{1, 0, uint8_t(header.size()), uint8_t(header.size() >> 8)} +
         bytes_of(header) + body;
}
inline std::string npy_dict(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}
inline Bytes npy(const std::string& descr, const std::string& shape, const Bytes& body) {
  return npy(npy_dict(descr, shape), body);
}

// `n` bytes that differ from each other and from run to run of `salt`.
inline Bytes pattern(size_t n, unsigned salt = 0) {
  Bytes out(n);
  for (size_t i = 0; i < n; ++i) out[i] = uint8_t((i * 2654435761u + salt * 97u) >> 13);
  return out;
}

}  // namespace sinter::test

// Gzip or PNG cases mean nothing in a build without the library: skips, visibly.
#define SKIP_IF_NOT_BUILT(expression)                                                 \
  try {                                                                               \
    (void)(expression);                                                               \
  } catch (const sinter::Error& error) {                                              \
    if (error.kind() == sinter::Error::Kind::not_built) GTEST_SKIP() << error.what(); \
    throw;                                                                            \
  }
