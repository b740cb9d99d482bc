// NumPy files, as an array and as what the first byte says: images or labels.
#include "data/npy.h"

#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {

void one(Bytes bytes) {
  if (bytes.empty()) return;
  const bool labels = bytes[0] & 1;
  const std::string file = as_file(bytes.subspan(1));
  guarded([&] { read_npy(file); });
  if (labels) {
    read_npy(file).labels();
  } else {
    read_npy(file).images();
  }
}

}  // namespace sinter::fuzz
