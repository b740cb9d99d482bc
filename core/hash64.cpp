#include "core/hash64.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sinter {
namespace {

// As a function of either it is one to one; and no bit of a word stays where it is.
constexpr uint64_t mixed(uint64_t hash, uint64_t word) {
  return std::rotl(hash ^ word, 29) * 0x9E3779B97F4A7C15;
}

}  // namespace

// Words go round the lanes, so that vectors take many at a time.
uint64_t hash64(const void* bytes, size_t n) {
  uint64_t lanes[32] = {}, words[32], hash = n;
  const char* at = static_cast<const char*>(bytes);
  for (; n >= sizeof words; at += sizeof words, n -= sizeof words) {
    std::memcpy(words, at, sizeof words);
    for (int i = 0; i < 32; ++i) lanes[i] = mixed(lanes[i], words[i]);
  }
  for (const uint64_t lane : lanes) hash = mixed(hash, lane);
  for (; n > 0; at += std::min<size_t>(8, n), n -= std::min<size_t>(8, n)) {
    uint64_t word = 0;
    std::memcpy(&word, at, std::min<size_t>(8, n));
    hash = mixed(hash, word);
  }
  return hash;
}

}  // namespace sinter
