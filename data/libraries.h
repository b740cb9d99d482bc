// Which libraries this build has, and what is lost without them: for `mnist doctor`.
#pragma once

#include <string>
#include <vector>

namespace sinter {

struct OptionalLibrary {
  std::string name, version;  // version "": not in this build
  std::string lost;           // "gzip files"
  std::string package;        // of Debian
};
std::vector<OptionalLibrary> optional_libraries();

}  // namespace sinter
