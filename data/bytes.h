// The bytes of a file, whether it is stored raw or as gzip (told by its first two bytes, never by
// its name).
//
// Used by the IDX and PNG readers. Bytes come in order and only as asked for, so a reader unpacks
// no more than its header promises (and one byte to see that the end is there). Errors are data
// errors; paths in them are absolute. One ByteSource belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sinter {

// No file of data may promise more than this.
inline constexpr uint64_t kMaxBytes = uint64_t{4} << 30;

class ByteSource {
 public:
  // Throws data if the file cannot be read, or is gzip and this build has no zlib.
  explicit ByteSource(const std::string& path);
  ~ByteSource();

  // Fills `to` as far as the file reaches and returns the count. Throws data on a damaged or cut
  // gzip stream.
  size_t read(std::span<uint8_t> to);
  // As read, into a new vector of at most `n` bytes that grows with what is there: a false promise
  // costs no memory.
  std::vector<uint8_t> read_up_to(uint64_t n);

  bool is_gzip() const;
  // Size of the file; empty where it is not known before reading (gzip, a pipe).
  std::optional<uint64_t> raw_size() const;
  // The absolute path, escaped: as messages print it.
  const std::string& name() const { return name_; }

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
  std::string name_;
};

}  // namespace sinter
