// How the products are made on devices: on CUDA by cuBLASLt, large ones with what follows them by
// cuDNN, or by the own kernels, which are the reference of both (core/device/chooser.h says who
// chooses); with or without TF32. Behind it is a cache of plans: which algorithms there are, and
// who makes it, for each product that was asked for. Plans are made at the first call or in a
// rehearsal, never inside a capture. In a build without the toolkit it declines everything.
// Thread-safe.
//
// Note [A bias in f32 for a result in bf16]
//   cuBLASLt has no product with a bias of another type than its result, so a linear layer in bf16,
//   whose bias is f32 as all that is trained, is the own kernel's, or where it is large and that is
//   measured to be faster, a graph of cuDNN's, which adds the bias to the sums in f32. A copy of
//   the bias in bf16 would be rounded to 8 bits where the CPU and the own kernel add all 24, and
//   where bias and product nearly cancel, the result would be another number. A product without the
//   bias would be rounded before the bias is added, and need a launch more; in f32 it would need
//   that, and twice the bytes. So explain() says it, and a product without a bias does reach the
//   library.
#pragma once

#include <functional>

#include "core/device/chooser.h"
#include "core/device/cpu_gemm.h"
#include "core/tensor.h"
#include "ops/op.h"

namespace sinter {

// Scratch of a stream that the products of cuBLASLt and cuDNN use in turn: what the former wants on
// Hopper.
inline constexpr size_t kLibraryWorkspace = 32 << 20;

struct ChainProgram;
// What follows a product one element at a time: a program whose operand 0 is the sums with their
// bias (ops/pointwise/chain.h), its other operands, and where its results go.
struct ProductSteps {
  const ChainProgram* program;
  Operands operands;
  Operands results;  // matrices whose rows may lie apart
  // The first operand is another product of the same A, which a library makes before: this is its
  // B, which lies as the other does. A storage of its own without memory is given some.
  const Tensor* operand_b = nullptr;
};

// What the kernel of a product does with the sums besides adding a bias. GELU is the tanh form. A
// NaN may leave the library's ReLU as 0. The library's gradient of ReLU reads a bit mask that its
// forward wrote; ours reads y, so that product is the own kernel's.
struct GemmEpilogue {
  enum Kind : uint8_t { none, relu, gelu, gelu_pre, gelu_grad, bias_grad, other };
  Kind kind = none;
  void* bias_grad_to = nullptr;  // of C's type: the sums of A over k
  // What cuBLASLt has no word for is `other`. gelu_pre writes the pre-activation, the second
  // result; gelu_grad reads the first operand. Their rows are multiples of 8 elements.
  const ProductSteps* steps = nullptr;
};

// c = op(a) op(b) (+ bias over columns) by the library, of several products where those lie evenly.
// `own` does the same by the own kernel.
// False: nothing was done, the own kernel must: because the library has nothing for it (for an
// epilogue: nothing of one kernel), or the own kernel is chosen.
bool library_gemm(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const Tensor& bias,
    const Tensor& c, const std::function<void()>& own, const GemmEpilogue& epilogue = {});
// The same for C[m, n] = A B (+ bias over columns), row-major, as core/device/cpu_gemm.h has it:
// f32, f64, or bf16 with f32 accumulation and a bf16 or f32 result. On the thread's stream.
// `batch`: one dim of products, its count[0] is 1, of which none has a bias or an epilogue.
// REQUIRES: m, n, k >= 1.
bool cublaslt_gemm(const Gemm& gemm, const void* a, const void* b, const void* bias, void* c,
    const std::function<void()>& own, const GemmEpilogue& epilogue = {},
    const GemmBatch& batch = {});

// f32 products of cuda and simt on tensor cores, which read 19 bits of each operand (TF32). Off by
// default.
void set_allow_tf32(bool allow);
bool allow_tf32();

}  // namespace sinter
