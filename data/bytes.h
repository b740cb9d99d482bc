// The bytes of a file, whether it is stored raw or as gzip (told by its first two bytes, never by
// its name), and the array that they hold.
//
// Used by the IDX, NumPy and PNG readers. Bytes come in order and only as asked for, so a reader
// unpacks no more than its header promises (and one byte to see that the end is there). Errors are
// data errors; paths in them are absolute. One ByteSource belongs to one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

struct gzFile_s;  // of zlib

namespace sinter {

// No file of data may promise more than this.
inline constexpr uint64_t kMaxBytes = uint64_t{4} << 30;

// An array as it stands in a file.
struct FileArray {
  DType dtype = DType::u8;
  std::vector<int64_t> dims;   // none: a scalar
  std::vector<uint8_t> bytes;  // row-major, exactly the product of dims
  std::string name;            // absolute path, for messages

  std::string describe() const;  // "u8[60000, 28, 28]"
  // u8 [N, C, H, W] from u8 or f32 [N, H, W], [N, H, W, C] of at most 4 channels, [N, 784], or one
  // image [28, 28]. f32 is 0..1 and becomes the nearest of the 256 levels. Throws data.
  Tensor images() const;
  // i32 [N] from u8, i32 or i64 [N]. Throws data.
  Tensor labels() const;
  // REQUIRES: T is the type that dtype names.
  template <class T> std::vector<T> items() const {
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};

class ByteSource {
 public:
  // Throws data if the file cannot be read.
  explicit ByteSource(const std::string& path);

  // Fills `to` as far as the file reaches and returns the count. Throws data on a damaged or cut
  // gzip stream.
  size_t read(std::span<uint8_t> to);
  // As read, into a new vector of at most `n` bytes that grows with what is there: a false promise
  // costs no memory.
  std::vector<uint8_t> read_up_to(uint64_t n);
  // All that is left, as the array that the header promises. Throws data where it promises more
  // than kMaxBytes, or the file holds less or more; `format` begins the message.
  FileArray read_array(const std::string& format, DType dtype, std::vector<int64_t> dims);

  // The absolute path, escaped: as messages print it.
  const std::string& name() const { return name_; }

 private:
  void check_stream() const;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::string name_;
  std::optional<uint64_t> raw_size_;  // empty where it is not known before reading: gzip, a pipe
  uint64_t read_ = 0;                 // bytes so far
};

}  // namespace sinter
