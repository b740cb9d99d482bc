#include "data/libraries.h"

#ifdef SINTER_HAS_ZLIB
#include <zlib.h>
#endif
#ifdef SINTER_HAS_PNG
#include <png.h>
#endif
#ifdef SINTER_HAS_OPENSSL
#include <openssl/crypto.h>
#endif

namespace sinter {

std::vector<OptionalLibrary> optional_libraries() {
  std::string zlib, png, openssl;
#ifdef SINTER_HAS_ZLIB
  zlib = zlibVersion();
#endif
#ifdef SINTER_HAS_PNG
  png = png_get_libpng_ver(nullptr);
#endif
#ifdef SINTER_HAS_OPENSSL
  openssl = OpenSSL_version(OPENSSL_VERSION_STRING);
#endif
  return {{"zlib", zlib, "gzip files", "zlib1g-dev"},
      {"libpng", png, "PNG images in predict", "libpng-dev"},
      {"OpenSSL", openssl, "SHA-256 of data files", "libssl-dev"}};
}

}  // namespace sinter
