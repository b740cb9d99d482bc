// Numbers as people read them, for the programs' output: "55,000", "1.4 ms", "0.90 MiB", "98.2 %
// +-0.3". ASCII only. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/numbers.h"

namespace sinter::cli {

using sinter::grouped, sinter::count_of, sinter::join;
std::string lower_case(std::string_view text);
std::string seconds(double s);        // 12 us, 1.4 ms, 0.60 s, 12.3 s, 3 min 05 s
std::string rate(double per_second);  // 1.1 M, 420 k, 88
std::string bytes(int64_t n);         // 0.90 MiB
std::string loss(double x);           // 0.0621, 2.71e+26
// Half the width of the 95 % interval of a proportion k of n (Wilson's), in 0..1; 0 for n = 0.
double wilson_half_width(int64_t k, int64_t n);
std::string proportion(int64_t k, int64_t n);  // 98.2 % +-0.3

}  // namespace sinter::cli
