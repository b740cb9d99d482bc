// The CPU kernels of conv2d and of its gradients by input and weight, for ops/conv2d.cpp.
#pragma once

#include "ops/op.h"

namespace sinter {

void conv2d_forward_cpu(const Call& call);
void conv2d_input_grad_cpu(const Call& call);
void conv2d_weight_grad_cpu(const Call& call);

}  // namespace sinter
