// Matrix products on the card by cuBLASLt, behind a cache of plans: which algorithm, with which workspace, for each product that was asked
// for. For the host functions of .cu files, in world on_cuda; in a build without the toolkit it declines everything. Thread-safe.
//
// The plan is the library's first proposal, or, with set_gemm_timing(true) on a real card, the fastest of its first eight, timed as a
// captured graph on random operands. Plans are made at the first call or in a rehearsal, never inside a capture.
#pragma once

#include <string>
#include <vector>

#include "core/device/cpu_gemm.h"

namespace sinter {

// C[m, n] = A B (+ bias over columns) (+ C), row-major, as core/device/cpu_gemm.h has it: f32, f64, or bf16 with f32 accumulation and a
// bf16 or f32 result. On the thread's stream. False if the library has nothing for it: nothing was done. REQUIRES: m, n, k >= 1.
bool cublaslt_gemm(const Gemm& gemm, const void* a, const void* b, const void* bias, void* c);

// Choose plans by time. Off by default: runs then repeat to the bit.
void set_gemm_timing(bool timing);

// One line per plan: product, proposals, choice, times. For reports.
std::vector<std::string> gemm_plan_lines();

}  // namespace sinter
