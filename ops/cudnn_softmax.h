// softmax and log_softmax by cuDNN, forward and backward: the library's op to compare ours with.
// For the host functions of .cu files, in world on_cuda: they ask here first. Off by default; a
// build without cuDNN declines.
#pragma once

#include "ops/op.h"

namespace sinter {

// Throws not_built where the build lacks cuDNN.
void use_cudnn_softmax(bool use);

// Calls as the ops get them: x -> y, and (dy, y) -> dx. False: not in use, or not for these
// operands; nothing was done.
bool cudnn_softmax(const Call& call, bool log);
bool cudnn_softmax_backward(const Call& call, bool log);

}  // namespace sinter
