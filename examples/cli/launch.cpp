#include "examples/cli/launch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/error.h"
#include "distributed/mpi.h"
#include "examples/cli/signals.h"

namespace sinter::cli {

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return 0;
}

std::string rank_prefix() {
  return distributed::launched_ranks() > 1 ? cat("rank ", launched_rank(), ": ") : "";
}

bool wait_for_turn() {
  using std::chrono::milliseconds;
  const auto turn =
      std::chrono::steady_clock::now() + std::min(launched_rank(), 2) * milliseconds(1500);
  while (launched_rank() > 0 && std::chrono::steady_clock::now() < turn) {
    if (interrupted()) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

}  // namespace sinter::cli
