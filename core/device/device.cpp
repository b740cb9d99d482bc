#include "core/device/device.h"

#include <algorithm>
#include <array>

#include "core/device/cuda.h"
#include "core/error.h"
#include "core/numbers.h"

namespace sinter {

std::string Device::str() const {
  switch (type) {
    case Type::cpu: return "cpu";
    case Type::simt: return "simt";
    case Type::cuda: return "cuda:" + std::to_string(index);
  }
  return "?";
}

Device Device::parse(std::string_view text) {
  if (text == "cpu") return kCpu;
  if (text == "simt") return {Type::simt, 0};
  int index = 0;
  const std::string_view number = text.substr(std::min<size_t>(5, text.size()));
  const bool numbered =
      text.starts_with("cuda:") && parse_all(number, index) && index >= 0 && index < 128;
  const auto nearest = [&] {
    const std::string word = nearest_word(text, std::array{"cpu", "cuda", "simt"});
    return word.empty() ? "" : sinter::str("nearest is ", word, "; ");
  };
  SINTER_CHECK(text == "cuda" || numbered, usage,
      sinter::str(
          "device: unknown: ", escaped(text), "; ", nearest(), "allowed cpu, cuda, cuda:N, simt"));
  cuda::check_device(index);
  return {Type::cuda, int8_t(index)};
}

// A definition of this file alone: the emulator is taken in or left out without another compilation
// of the library.
const char* devices_without_cuda() {
#if SINTER_EMULATOR
  return "device cpu or device simt";
#else
  return "device cpu";
#endif
}

}  // namespace sinter
