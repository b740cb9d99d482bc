#include "core/cache.h"

#include <cstdlib>

#include "core/error.h"

namespace sinter {

std::string cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && *cache) return str(cache, "/sinter");
  return home && *home ? str(home, "/.cache/sinter") : "";
}

uint64_t stable_hash(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

std::string cache_file(std::string_view stem, std::string_view key) {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : str(folder, "/", stem, "-", stable_hash(key), ".txt");
}

}  // namespace sinter
