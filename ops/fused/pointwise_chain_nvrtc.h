// Chains on cuda: a kernel of their own, generated and compiled by NVRTC when a chain is first run
// (or rehearsed, before a capture). Where that cannot be, the interpreter of pointwise_chain.cu
// runs, which makes the same bits in f32.
#pragma once

#include <span>

#include "core/device/nvrtc.h"
#include "ops/fused/fused.h"

namespace sinter {

inline constexpr const char* kChainKernel = "pointwise_chain_nvrtc";

// Source of the kernel. Element i of the result reads x[i] of an input whose period is 0, else x[i
// mod period]; periods are 1 or a multiple of the elements in 16 bytes.
std::string chain_source(
    const ChainProgram& program, DType dtype, std::span<const int64_t> periods);
// What it includes.
std::span<const cuda::SourceHeader> chain_headers();
// How cuda runs a chain whose operands and result these are, and why: "compiled by NVRTC", or
// "interpreted: ..". For explain(); compiles the chain if that is still to be done.
std::string chain_way(Operands in, const Tensor& out, const Attrs& attrs);

namespace on_cuda {
void generated_pointwise_chain(const Call& call);
}

}  // namespace sinter
