// Element types, and the two ways to go from a run-time DType to a compile-time type: visit_float
// and visit_all.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/math.h"

namespace sinter {

enum class DType : uint8_t { f32, f64, bf16, i32, i64, u8 };
inline constexpr int kDTypes = 6;

// The upper half of an f32, rounded to nearest even; NaN stays NaN. Storage only: arithmetic
// happens in f32.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  SINTER_FN bf16(float value)
      : bits(round_to_bf16(value)) {}  // NOLINT: an implicit rounding is what a store to bf16 means
  SINTER_FN operator float() const { return math::from_bits(uint32_t{bits} << 16); }
};

constexpr size_t size_of(DType dtype) {
  constexpr size_t kSize[kDTypes] = {4, 8, 2, 4, 8, 1};
  return kSize[int(dtype)];
}
inline constexpr std::string_view kDTypeNames[kDTypes] = {"f32", "f64", "bf16", "i32", "i64", "u8"};
constexpr const auto& names_of(DType) { return kDTypeNames; }
constexpr std::string_view name_of(DType dtype) { return kDTypeNames[int(dtype)]; }
constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16;
}

template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this type");
  return DType::f32;
}();
template <> inline constexpr DType dtype_of<float> = DType::f32;
template <> inline constexpr DType dtype_of<double> = DType::f64;
template <> inline constexpr DType dtype_of<bf16> = DType::bf16;
template <> inline constexpr DType dtype_of<int32_t> = DType::i32;
template <> inline constexpr DType dtype_of<int64_t> = DType::i64;
template <> inline constexpr DType dtype_of<uint8_t> = DType::u8;

// The type in which arithmetic on T happens: f32 for bf16, else T itself.
template <class T> struct compute {
  using type = T;
};
template <> struct compute<bf16> {
  using type = float;
};
template <class T> using compute_t = typename compute<T>::type;

// f(T{}) with T = float, double or bf16.
template <class F> decltype(auto) visit_float(DType dtype, F&& f) {
  if (dtype == DType::f32) return f(float{});
  if (dtype == DType::f64) return f(double{});
  if (dtype == DType::bf16) return f(bf16{});
  throw Error(Error::Kind::dtype,
      str("dtype: a floating type is wanted: found ", name_of(dtype), "; allowed f32, f64, bf16"));
}

// f(T{}) with T any of the six element types.
template <class F> decltype(auto) visit_all(DType dtype, F&& f) {
  if (dtype == DType::i32) return f(int32_t{});
  if (dtype == DType::i64) return f(int64_t{});
  if (dtype == DType::u8) return f(uint8_t{});
  return visit_float(dtype, std::forward<F>(f));
}

}  // namespace sinter
