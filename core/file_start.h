// What a file is by its first bytes, for messages about one that is not of the wanted format. Used
// by the readers of nn/ and data/. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace sinter {

// `starts with "<!DO", a web page`, or `is empty`.
std::string describe_start(std::span<const uint8_t> start);

}  // namespace sinter
