// conv2d and its gradients by cuDNN 9, for the host functions of conv2d.cu in world on_cuda: they
// ask here first. The library makes what it can where it is there; without it, and where it has
// nothing, own kernels do. Plans (descriptors, an algorithm, the number of its kernels) are made at
// the first call or in a rehearsal, never inside a capture. Thread-safe.
//
// Allowed are the algorithms that sum the products as they are, in a fixed order: those by Fourier
// transforms and by Winograd's method round otherwise, and spread a NaN over the image; the
// backward ones of number 0 add by atomics.
#pragma once

#include <functional>

#include "ops/image/conv2d.h"

namespace sinter {

// What an algorithm may have. Copies of images of 32 and 64 channels, 26 x 26, in the order that
// tensor cores want are 240 MB in f32 at batch 1024.
inline constexpr size_t kConvWorkspace = size_t{512} << 20;

// A call of kConv2dInputGradOp or kConv2dWeightGradOp, or one that is conv2d of its first inputs,
// with `relu` behind it by the library's fused kernels, which want a bias; `own` launches the own
// kernel for the same work. False: nothing was done, because the library is not there or has
// nothing for it (sizes beyond int; an f32 bias or an f32 result of bf16 operands), or the own
// kernel is chosen (core/device/chooser.h says how).
bool cudnn_conv2d(const Call& call, const Conv2dSizes& sizes, const std::function<void()>& own,
    bool relu = false);

}  // namespace sinter
