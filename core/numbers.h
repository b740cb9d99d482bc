// Numbers as people read them: "55,000", "1 step". ASCII. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace sinter {

std::string grouped(int64_t n);  // 55,000
// "1 step", "2,150 steps".
std::string count_of(int64_t n, const std::string& thing, const char* plural = "s");

}  // namespace sinter
