// The folder of what is kept between runs: data sets, roofs, choices that were measured. Pure
// functions of the environment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sinter {

// ${XDG_CACHE_HOME:-~/.cache}/sinter; "" without a home.
std::string cache_folder();
// cache_folder()/STEM-<hash of key>.txt; "" without a home.
std::string cache_file(std::string_view stem, std::string_view key);
// FNV-1a, the same in every run.
uint64_t stable_hash(std::string_view text);

}  // namespace sinter
