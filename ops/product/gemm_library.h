// How the products are made on devices: on CUDA by cuBLASLt (ops/product/gemm_plans.h) or by the
// own kernels, which are its reference; with or without TF32. Thread-safe.
#pragma once

#include "core/tensor.h"
#include "ops/product/gemm_plans.h"

namespace sinter {

// Who makes a product that both can make.
enum class GemmChoice : uint8_t {
  model,  // bare products, with or without a bias: the library by its first proposal; with another
          // epilogue: the own kernel. Runs repeat to the bit. The default
  measured,  // whoever is the fastest, timed as a captured graph when the plan is made; that is
             // kept for good, and for later processes (core/device/kept_choices.h)
  library,   // the library by the first proposal that will do: for tests
  own,       // own kernels always
};
void set_gemm_choice(GemmChoice choice);
GemmChoice gemm_choice();

// c = op(a) op(b) (+ bias over columns) by the library. `own` does the same by the own kernel.
// False: nothing was done, the own kernel must.
bool library_gemm(const Tensor& a, bool trans_a, const Tensor& b, bool trans_b, const Tensor& bias,
    const Tensor& c, const std::function<void()>& own, const GemmEpilogue& epilogue = {});

// f32 products of cuda and simt on tensor cores, which read 19 bits of each operand (TF32). Off by
// default.
void set_allow_tf32(bool allow);
bool allow_tf32();

}  // namespace sinter
