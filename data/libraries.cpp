#include "data/libraries.h"

#ifdef SINTER_HAS_ZLIB
#include <zlib.h>
#endif
#ifdef SINTER_HAS_PNG
#include <png.h>
#endif

namespace sinter {

std::vector<OptionalLibrary> optional_libraries() {
  std::string zlib, png;
#ifdef SINTER_HAS_ZLIB
  zlib = zlibVersion();
#endif
#ifdef SINTER_HAS_PNG
  png = png_get_libpng_ver(nullptr);
#endif
  return {{"zlib", zlib, "gzip files", "zlib1g-dev"},
      {"libpng", png, "PNG images in predict", "libpng-dev"}};
}

}  // namespace sinter
