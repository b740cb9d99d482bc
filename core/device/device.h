// Which device a tensor lives on. A value; what the device can do is behind core/allocator.h and
// the kernels of an OpDef.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace sinter {

struct Device {
  enum class Type : uint8_t { cpu, cuda, simt };
  Type type = Type::cpu;
  int8_t index = 0;

  auto operator<=>(const Device&) const = default;
  // "cpu", "cuda:0", "simt"
  std::string str() const;
  // Throws usage for an unknown name and not_built or device where the device cannot be used.
  static Device parse(std::string_view text);
};
inline constexpr Device kCpu{};

// For the hint of an error of cuda: what else this build can run on, "device cpu or device simt".
const char* devices_without_cuda();

}  // namespace sinter
