// `mnist train --resume`: the run to go on with. Its flags stand for those that are not given now;
// some must be as they were, others may differ and it is said that the run then is not that of the
// undisturbed one to the bit.
#pragma once

#include "examples/mnist/flags.h"
#include "nn/checkpoint.h"

namespace sinter::mnist {

struct Resumed {
  std::string folder, file;  // relative to here where they lie below
  nn::Checkpoint checkpoint;
  std::vector<std::string> differences;  // "--lr was 0.001, now 0.01"
};

// Reads the checkpoint of --resume, completes and resolves the flags. Throws checkpoint: there is
// none, or another --batch-size is asked for; usage: a flag that does not go with --resume.
Resumed open_resumed(Flags& flags, TrainFlags& train);

// Of the running program: another one may round otherwise.
std::string build_id();

}  // namespace sinter::mnist
