// The calls that led to an internal error, for `-v`: errors of ours ask for a look into the code,
// those of the caller do not. Thread-safe.
#pragma once

#include <string>

namespace sinter {

// A line per frame, innermost first, of the newest Error of kind internal; "" if there was none.
// Names are those the linker exports.
std::string internal_error_stack();

}  // namespace sinter
