#include "core/file_start.h"

#include <string_view>

#include "core/error.h"

namespace sinter {

std::string describe_start(std::span<const uint8_t> start) {
  if (start.empty()) return "is empty";
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  static constexpr struct {
    std::string_view start, what;
  } kFormats[] = {{"<!", "a web page"}, {"<h", "a web page"}, {"<H", "a web page"},
      {"<?xml", "an XML page"}, {"\x89PNG", "a PNG image"}, {"\xff\xd8\xff", "a JPEG image"},
      {"GIF8", "a GIF image"}, {"BM", "a BMP image"}, {"\x93NUMPY", "a NumPy array"},
      {"PK", "a zip archive"}, {"\x80", "a pickle"}, {"\x89HDF", "an HDF5 file"},
      {"GGUF", "a GGUF file"}, {"BZh", "bzip2"},
      {"\xfd"
       "7zXZ",
          "xz"},
      {"\x28\xb5\x2f\xfd", "zstd"},
      {"version https://git-lfs", "a Git LFS pointer, not the file itself"}, {"\x1f\x8b", "gzip"},
      {std::string_view("\0\0\x08", 3), "an IDX file"}};
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "starts with \"";
  for (const unsigned char c : text.substr(0, 4)) {
    if (c >= 0x20 && c < 0x7f) {
      out += char(c);
    } else {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    }
  }
  out += '"';
  for (const auto& format : kFormats) {
    if (text.starts_with(format.start)) return str(out, ", ", format.what);
  }
  return out;
}

}  // namespace sinter
