// What the two halves of a table share: its rows (table.cpp) and the lines round them
// (table_lines.cpp). Nobody else includes this.
#pragma once

#include "profiler/profile.h"

namespace sinter::profiler::detail {

// Columns where there is no terminal to ask.
inline constexpr size_t kNoTerminal = 80;

std::string us(double ns);  // "15.3us"

std::string header_line(const Profile& profile);
// `ops`: the sum of all op rows.
std::string closing_lines(const Profile& profile, const Row& ops);

}  // namespace sinter::profiler::detail
