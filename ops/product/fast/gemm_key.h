// What the plan of a product depends on (ops/product/fast/gemm_plans.cpp), and its words: in
// reports, and as the question under which a measured choice is kept.
#pragma once

#include <compare>
#include <string>

#include "ops/product/gemm_plans.h"

namespace sinter {

struct GemmKey {
  Gemm gemm;
  GemmEpilogue::Kind epilogue;
  int64_t aux_ld;
  bool has_bias, tf32;
  int align_a, align_b, align_bias, align_c, align_aux;
  auto operator<=>(const GemmKey&) const = default;
  // With an epilogue the own kernel is as good until it is measured: one launch, the same bytes.
  bool fused() const { return epilogue != GemmEpilogue::none; }
  // "f32 -> f32 m 4 n 8 k 16 A B + bias, relu"
  std::string product() const;
  // That and all the rest.
  std::string text() const;
};

}  // namespace sinter
