// How many blocks of a kernel a multiprocessor holds at a time, as CUDA's occupancy calculator
// finds it, and how a launch's blocks fill the card. It is what the card could hold, by the
// launch's footprint alone: nobody measured it.
#pragma once

#include <optional>
#include <string>

#include "core/device/footprint.h"

namespace sinter::profiler {

struct Occupancy {
  int blocks = 0;       // of a multiprocessor at a time
  double share = 0;     // of the warps that it has room for; 1 is all of them
  std::string limit{};  // what lets no more in: "threads", "blocks", "registers", "shared memory"
  // How often the card must be filled until all blocks have run, and how full it is the last time.
  double waves = 0, tail = 0;
  // The share, if the grid has enough blocks for it: else what it can fill. Kineto's "est. achieved
  // occupancy %".
  double filled = 0;
  SINTER_FIELDS(Occupancy, blocks, share, limit, waves, tail, filled)
};

// Nothing where a part of the footprint or the card is not known, or where no block fits, so that a
// part is wrong. Barriers of blocks, of which no record tells, and clusters are left out.
std::optional<Occupancy> occupancy(const Footprint& launch, const Card& card);

}  // namespace sinter::profiler
