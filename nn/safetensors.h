// The safetensors format: 8 bytes header length, a JSON header (name -> dtype, shape, byte range;
// "__metadata__": text -> text), data. Files are input from strangers: everything is checked before
// anything is allocated for it, and never mapped (a file that is cut meanwhile is an error, not
// a signal). Files are written whole or not at all, and the same content gives the same bytes. Used
// for checkpoints. Errors are of kind checkpoint and name the file by its absolute path.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/atomic_file.h"
#include "nn/named_tensor.h"

namespace sinter::nn {

using Metadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  NamedTensors tensors;  // in the order of their data
  Metadata metadata;
  // What is not as it was in the file: "converted F16 to f32: 0.weight and 3 more".
  std::vector<std::string> notes;
  bool crc_checked = false;  // the metadata had sinter.crc32 and the data agrees
};

// The types F64 F32 BF16 I64 I32 U8 as they are; F16 becomes f32. Tensors of BOOL I8 I16 U16 U32
// U64 are left out, which a note says; a file with any other is refused.
SafetensorsFile read_safetensors(const std::string& path);

// Tensors by falling element size, then name; data from a multiple of 64 on. Adds sinter.crc32, of
// all data bytes, to the metadata. Throws usage unless names are unique, of 1 to 512 bytes.
// REQUIRES: they are valid UTF-8.
void write_safetensors(const std::string& path, const NamedTensors& tensors, Metadata metadata = {},
    const FileCalls& calls = FileCalls::system());

}  // namespace sinter::nn
