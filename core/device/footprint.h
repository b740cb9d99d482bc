// What a launch of a kernel takes of a card: its shape, and what each of its blocks holds on a
// multiprocessor while it runs. Who knows a part says it; nobody guesses one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/fields.h"

namespace sinter {

struct Footprint {
  std::array<int, 3> grid{}, block{};  // blocks, and threads of one; zeros: not known
  // Registers of a thread, bytes of shared memory of a block; nothing: not known
  std::optional<int> registers{}, static_shared{}, dynamic_shared{};

  bool has_shape() const { return block[0] > 0; }
  static int64_t volume(const std::array<int, 3>& n) { return int64_t{n[0]} * n[1] * n[2]; }
  SINTER_FIELDS(Footprint, grid, block, registers, static_shared, dynamic_shared)
};

// As far as it decides how many blocks run at a time. 0: not known.
struct Card {
  int capability = 0;  // 90: compute capability 9.0
  int multiprocessors = 0;
  SINTER_FIELDS(Card, capability, multiprocessors)
};

}  // namespace sinter
