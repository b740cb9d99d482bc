// All of Sinter that a program uses, as one header: #include <sinter/sinter.h>. Installed only; a
// file of the tree includes what it needs. The README's table of folders says what is where.
#pragma once

#include <sinter/autograd/autograd.h>
#include <sinter/capture/explain.h>
#include <sinter/capture/step.h>
#include <sinter/core/device/denormal.h>
#include <sinter/core/error.h>
#include <sinter/core/parallel.h>
#include <sinter/core/tensor.h>
#include <sinter/data/batches.h>
#include <sinter/distributed/data_parallel.h>
#include <sinter/distributed/mpi.h>
#include <sinter/distributed/thread_group.h>
#include <sinter/measure/comparison.h>
#include <sinter/nn/activations.h>
#include <sinter/nn/batch_norm.h>
#include <sinter/nn/checkpoint.h>
#include <sinter/nn/clip.h>
#include <sinter/nn/conv2d.h>
#include <sinter/nn/glu.h>
#include <sinter/nn/linear.h>
#include <sinter/nn/loss.h>
#include <sinter/nn/mlp.h>
#include <sinter/nn/net.h>
#include <sinter/nn/optim.h>
#include <sinter/nn/pool.h>
#include <sinter/nn/safetensors.h>
#include <sinter/nn/schedule.h>
#include <sinter/nn/sequential.h>
#include <sinter/nn/state_dict.h>
#include <sinter/ops/fused/reference.h>
#include <sinter/ops/ops.h>
#include <sinter/ops/pointwise/pointwise_op.h>
#include <sinter/profiler/session.h>
#include <sinter/train/trainer.h>
