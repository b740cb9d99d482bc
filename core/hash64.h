// A number of 64 bits that tells bytes apart: two that differ in one word never have the same one,
// others hardly ever. Nothing for passwords. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinter {

uint64_t hash64(const void* bytes, size_t n);

}  // namespace sinter
