// A process that a launcher (mpirun) started beside others. All but rank 0 are silent; of an error
// that several have the first says it, with its rank.
#pragma once

#include <string>

namespace sinter::cli {

// 0, 1, ..; 0 without a launcher. Known before MPI is started, by the environment.
int launched_rank();
// "rank 2: " beside others, else "".
std::string rank_prefix();
// Of an error: lower ranks go first, and end this process if it is theirs, too. Returns false if
// they have.
bool wait_for_turn();

}  // namespace sinter::cli
