// A product with what follows it, bias and pointwise steps, as one graph of cuDNN's (its backend's
// C API): a candidate beside cuBLASLt and the own kernels, for gemm_library.cpp. The library
// compiles a kernel for such a graph, which takes a while: so it is asked for large products only,
// where cuBLASLt may have none, and by those who measure. Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "ops/product/gemm_library.h"

namespace sinter {

// What a product reads and writes beside what its epilogue names. aux: cuBLASLt's for that.
struct ProductMemory {
  const void *a, *b, *bias;
  void *c, *aux;
};

// Runs it on the thread's stream.
using CudnnProduct = std::function<void(const ProductMemory& memory, const GemmEpilogue& epilogue)>;

// The graph as text, for the key of a plan: with its layouts, and without its sizes and types. "":
// it is too small to be worth a graph, no graph of ours says it, or there is no cuDNN in this
// build. Whether the library has a kernel is known when the graph is made.
std::string cudnn_graph(
    const Gemm& gemm, const ProductMemory& memory, const GemmEpilogue& epilogue);
// Throws device where the library is not there, or has no kernel that gives equal bits at each run.
// REQUIRES: it has a text; not inside a capture.
CudnnProduct make_cudnn_product(const Gemm& gemm, bool has_bias, const GemmEpilogue& epilogue);

}  // namespace sinter
