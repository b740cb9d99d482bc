// What an op costs by its definition, and what it is to the training step.
//
// Cost comes from OpDef::cost(shapes): FLOPs (FMA 2; add, multiply, compare, exp, log 1) and the
// minimum of bytes (each operand once). Role tells the rows `matmul(wgrad)` and `matmul(dgrad)`
// apart; it is given by the caller of apply(). Plain values.
#pragma once

#include <cstdint>
#include <string_view>

#include "profiler/names.h"

namespace sinter::profiler {

struct Cost {
  int64_t flops = 0, bytes_read = 0, bytes_written = 0;

  int64_t bytes() const { return bytes_read + bytes_written; }
  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    return *this;
  }
  friend Cost operator+(Cost a, const Cost& b) { return a += b; }
  bool operator==(const Cost&) const = default;
};

// data: fetches the batch, so it is counted for no step. comm: between ranks.
enum class Role : uint8_t { none, fwd, wgrad, dgrad, bgrad, update, data, comm };

constexpr auto names_of(Role) {
  return std::to_array<std::string_view>(
      {"none", "fwd", "wgrad", "dgrad", "bgrad", "update", "data", "comm"});
}

}  // namespace sinter::profiler
