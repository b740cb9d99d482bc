// The one conversion between element types, for the CPU's loops and for kernels.
#pragma once

#include <limits>
#include <type_traits>

#include "core/dtype.h"

namespace sinter {

// A number beyond an integer type's range gives its nearest end (a float's plain conversion is
// undefined, an integer's would be another number that is in range), NaN gives 0.
template <class To, class From> SINTER_FN To convert(From value) {
  if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    using V = compute_t<From>;
    constexpr To kLow = std::numeric_limits<To>::lowest(), kHigh = std::numeric_limits<To>::max();
    const V v =
        V(value);  // a kHigh that V cannot hold is rounded up: then no v lies between the two
    return v != v ? To(0) : v <= V(kLow) ? kLow : v >= V(kHigh) ? kHigh : To(v);
  } else if constexpr (std::is_integral_v<To> && sizeof(To) < sizeof(From)) {
    constexpr From kLow = std::numeric_limits<To>::lowest(), kHigh = std::numeric_limits<To>::max();
    return To(value < kLow ? kLow : value > kHigh ? kHigh : value);
  } else if constexpr (std::is_same_v<To, bf16>) {
    return To(float(value));
  } else {
    return To(value);
  }
}

}  // namespace sinter
