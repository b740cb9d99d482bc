// The header of a safetensors file, parsed and checked against the rules of the format, before any
// tensor is made. Internal to nn/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "nn/safetensors.h"

namespace sinter::nn::detail {

struct FileType {
  std::string_view name;
  int64_t bytes;
  DType loaded;  // as what it is read
  bool same;     // bytes are taken as they are
};
// nullptr for a type that the format, or we, do not have.
const FileType* file_type(std::string_view name);
// How a tensor of ours is written.
std::string_view file_type_name(DType dtype);

struct HeaderEntry {
  std::string name;
  const FileType* type = nullptr;
  Dims shape;
  int64_t numel = 0;
  uint64_t begin = 0, end = 0;  // in the data part
};
struct Header {
  std::vector<HeaderEntry> entries;  // in the order of the data
  Metadata metadata;
};

inline constexpr uint64_t kMaxHeader = 100'000'000;
inline constexpr size_t kMaxTensors = 65'536, kMaxName = 512;

// `file` is the path, for messages. Throws checkpoint unless the ranges cover [0, data_bytes)
// exactly and all else is right.
Header parse_header(std::string_view json, uint64_t data_bytes, const std::string& file);

}  // namespace sinter::nn::detail
