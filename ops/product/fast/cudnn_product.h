// A product with what follows it, bias and pointwise steps, as one graph of cuDNN's (its backend's
// C API): a candidate beside cuBLASLt and the own kernels, for gemm_library.cpp. The library
// compiles a kernel for such a graph, which takes a while: so it is asked for large products only,
// where cuBLASLt may have none, and by those who measure. Thread-safe.
//
// Note [What a graph of cuDNN's can say]
//   By its documentation ("Graphs", the support surfaces 80 and 90 of the fusion engines):
//   - There is one product in it, with pointwise steps behind it that may have several results. Two
//     products of one operand it has for attention only, where the second reads the first; and no
//     step takes the columns of a product with joined weights apart. So what a gated linear layer
//     wants, act(x Wg^T) (x Wu^T), is two launches: a product, and a graph that reads its result
//     (ops/fused/gated_linear.cu). Its gradient ends one product, and is one graph.
//   - The sums are the first operand of the steps that read them, and what is broadcast never is.
//     Where a program has it otherwise the library refuses, and all is as without it.
//   - A graph of several operations does not work in place: what it reads and what it writes are
//     different memory.
//   - A and B lie on 16 bytes, in rows or in columns whose neighbours may lie apart. They are bf16,
//     or f32, which it cuts to TF32; f64 it does not take. What lies between the steps is f32.
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
