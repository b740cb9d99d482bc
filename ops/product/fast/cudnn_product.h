// A product with what follows it, bias and pointwise steps, as one graph of cuDNN's (its backend's
// C API): a candidate beside cuBLASLt and the own kernels, for gemm_library.cpp. The library
// compiles a kernel for such a graph, which takes a while: so it is asked for large products only,
// where cuBLASLt may have none, and by those who measure. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "ops/product/gemm_library.h"

namespace sinter {

// What a product reads and writes beside what its epilogue names.
struct ProductMemory {
  const void *a, *b, *bias, *c;
};

class CudnnProduct {
 public:
  virtual ~CudnnProduct() = default;
  // On the thread's stream.
  virtual void run(const ProductMemory& memory, const GemmEpilogue& epilogue) const = 0;
};

// The graph as text, for the key of a plan: with its layouts, and without its sizes and types. "":
// it is too small to be worth a graph, no graph of ours says it, or there is no cuDNN in this
// build. Whether the library has a kernel is known when the graph is made.
std::string cudnn_graph(
    const Gemm& gemm, const ProductMemory& memory, const GemmEpilogue& epilogue);
// Throws device where the library is not there, or has no kernel that gives equal bits at each run.
// REQUIRES: it has a text; not inside a capture.
std::unique_ptr<CudnnProduct> make_cudnn_product(
    const Gemm& gemm, bool has_bias, const GemmEpilogue& epilogue);

}  // namespace sinter
