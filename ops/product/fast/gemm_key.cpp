#include "ops/product/fast/gemm_key.h"

namespace sinter {
namespace {
// By GemmEpilogue::Kind.
constexpr const char* kEpilogueTexts[] = {"", ", relu", ", gelu_tanh",
    ", gelu_tanh and pre-activation", ", gelu_tanh backward", ", bias gradient"};
}  // namespace

std::string GemmKey::product() const {
  const Gemm& g = gemm;
  return cat(name_of(g.in), " -> ", name_of(g.out), " m ", g.m, " n ", g.n, " k ", g.k,
      g.trans_a ? " A^T" : " A", g.trans_b ? " B^T" : " B", has_bias ? " + bias" : "",
      kEpilogueTexts[epilogue], tf32 ? " tf32" : "");
}

std::string GemmKey::text() const {
  return cat("product ", product(), ", ld ", gemm.lda, " ", gemm.ldb, " ", gemm.ldc, " ", aux_ld,
      ", bias ", name_of(gemm.bias), ", aligned ", align_a, " ", align_b, " ", align_bias, " ",
      align_c, " ", align_aux);
}

}  // namespace sinter
