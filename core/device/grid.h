// The shape of a kernel launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sinter {

inline constexpr int kMaxBlockThreads = 1024;
inline constexpr int64_t kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535;
inline constexpr size_t kMaxSharedBytes =
    227 << 10;  // of a block on sm_90; less elsewhere, which the driver checks

struct Grid {
  int64_t x = 1, y = 1, z = 1;
  int64_t blocks() const { return x * y * z; }
  bool operator==(const Grid&) const = default;
};

struct LaunchShape {
  std::string_view kernel;  // "softmax_forward<float>"; static storage
  Grid grid;
  int block = 1;  // threads
  size_t shared_bytes = 0;
  std::span<const size_t> parameter_bytes{};  // of each parameter; static storage
};

}  // namespace sinter
