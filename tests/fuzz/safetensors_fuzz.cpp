// Safetensors and what is in its metadata. The first byte says what the rest is: a file; a header
// up to the first line feed, and data behind it (the length is made to fit); the text of
// sinter.state.
#include "nn/safetensors.h"

#include <cstring>
#include <vector>

#include "nn/checkpoint.h"
#include "nn/mlp.h"
#include "nn/state_dict.h"
#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {

void one(Bytes bytes) {
  if (bytes.empty()) return;
  const uint8_t form = bytes[0];
  bytes = bytes.subspan(1);
  const auto state = [](const std::string& text) { guarded([&] { nn::parse_state(text, "F"); }); };
  if (form == '2') return state(std::string(text_of(bytes)));
  std::vector<uint8_t> file(bytes.begin(), bytes.end());
  if (form == '1') {
    const uint64_t length = std::min(text_of(bytes).find('\n'), bytes.size());
    if (length < bytes.size()) file.erase(file.begin() + ptrdiff_t(length));
    file.insert(file.begin(), sizeof length, 0);
    std::memcpy(file.data(), &length, sizeof length);
  }
  nn::SafetensorsFile read = nn::read_safetensors(as_file(file));
  static const nn::Mlp model({4, 3, 2});
  guarded([&] { nn::load_state_dict(model, read.tensors); });
  nn::architecture(read.tensors);
  state(read.metadata["sinter.state"]);
}

}  // namespace sinter::fuzz
