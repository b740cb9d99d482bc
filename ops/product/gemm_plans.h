// Matrix products on the card by cuBLASLt, behind a cache of plans: which algorithm, with which
// workspace, how many kernels, for each product that was asked for. For gemm_library.cpp and
// reports; in a build without the toolkit it declines everything. Thread-safe.
//
// A product that an own kernel makes too has two candidates; gemm_library.h says who chooses. Plans
// are made at the first call or in a rehearsal, never inside a capture. Making one runs the product
// once, so that its kernels are loaded, and counts them in a throw-away graph.
//
// Note [A bias in f32 for a result in bf16]
//   cuBLASLt has no product with a bias of another type than its result, so a linear layer in bf16,
//   whose bias is f32 as all that is trained, is the own kernel's. A copy of the bias in bf16 would
//   be rounded to 8 bits where the CPU and the own kernel add all 24, and where bias and product
//   nearly cancel, the result would be another number. A product without the bias would be rounded
//   before the bias is added, and need a launch more; in f32 it would need that, and twice the
//   bytes. So explain() says it, and a product without a bias does reach the library.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/device/cpu_gemm.h"

namespace sinter {

// Scratch of a stream that the products of cuBLASLt and cuDNN use in turn: what the former wants on
// Hopper.
inline constexpr size_t kLibraryWorkspace = 32 << 20;

// What the kernel of a product does with the sums besides adding a bias. GELU is the tanh form. A
// NaN may leave the library's ReLU as 0. The library's gradient of ReLU reads a bit mask that its
// forward wrote; ours reads y, so that product is the own kernel's.
struct GemmEpilogue {
  enum Kind : uint8_t { none, relu, gelu, gelu_pre, gelu_grad, bias_grad };
  Kind kind = none;
  // gelu_pre: the pre-activation (of C's type), written; gelu_grad: the same, read. bias_grad: of
  // C's type, written: the sums of A over k.
  void* aux = nullptr;
  int64_t ld = 0;  // of the pre-activation: elements, a multiple of 8
};

// C[m, n] = A B (+ bias over columns), row-major, as core/device/cpu_gemm.h has it: f32, f64,
// or bf16 with f32 accumulation and a bf16 or f32 result. On the thread's stream. `own` launches
// the own kernel for the same work. False: nothing was done, because the library has nothing for it
// (for an epilogue: nothing of one kernel), or the own kernel is chosen. REQUIRES: m, n, k >= 1.
bool cublaslt_gemm(const Gemm& gemm, const void* a, const void* b, const void* bias, void* c,
    const GemmEpilogue& epilogue = {}, const std::function<void()>& own = {});

// Who makes the product with two candidates that the thread rehearsed last, and why, in words; then
// forgets it. For explain().
std::string take_gemm_choice();

// One line per plan: product, proposals, choice, launches, times. For reports.
std::vector<std::string> gemm_plan_lines();

}  // namespace sinter
