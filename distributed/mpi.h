// A Communicator of MPI processes, as `mpirun -np 4 program` starts them. In the library where
// CMake found MPI (Debian: libopenmpi-dev); elsewhere make_mpi_communicator() says how to get it.
#pragma once

#include <memory>

#include "core/communicator.h"

namespace sinter::distributed {

// "Open MPI 4.1.4" of the library that is loaded; "" without MPI in this build.
std::string mpi_version();
// Processes that a launcher of MPI (Open MPI's, or one that speaks PMI) started together with this
// one, by its environment; 1 without a launcher. Does not start MPI.
int launched_ranks();

// Starts MPI, all ranks together; on one rank too. MPI ends with the process, or when the result
// goes. Throws not_built without MPI, state if there is one already.
std::unique_ptr<Communicator> make_mpi_communicator();

}  // namespace sinter::distributed
