// A Communicator of MPI processes, as `mpirun -np 4 program` starts them. MPI is loaded when the
// first of mpi_version() and make_mpi_communicator() is called, by libsinter_mpi.so: built where
// CMake found MPI (Debian: libopenmpi-dev), and looked for beside the program and beside libsinter.
#pragma once

#include <memory>

#include "core/communicator.h"

namespace sinter::distributed {

// "Open MPI v4.1.4"; "" without MPI, and `why` is what the loader said.
std::string mpi_version(std::string* why = nullptr);
// Processes that a launcher of MPI (Open MPI's, or one that speaks PMI) started together with this
// one, by its environment; 1 without a launcher. Does not start MPI.
int launched_ranks();

// Starts MPI, all ranks together; on one rank too. MPI ends with the process, or when the result
// goes. Throws not_built without MPI, with how to get it; state if there is one already.
std::unique_ptr<Communicator> make_mpi_communicator();

}  // namespace sinter::distributed
