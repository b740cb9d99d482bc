#include "data/bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/atomic_file.h"
#include "core/error.h"

#ifdef SINTER_HAS_ZLIB
#include <zlib.h>
#endif

namespace sinter {
namespace {

constexpr size_t kFirstBlock = size_t{1} << 20;

}  // namespace

struct ByteSource::Stream {
  int fd = -1;
  bool gzip = false;
  std::optional<uint64_t> size;
  uint64_t total = 0;  // handed out so far
  std::vector<uint8_t> peeked;
#ifdef SINTER_HAS_ZLIB
  gzFile gz = nullptr;
#endif

  ~Stream() {
#ifdef SINTER_HAS_ZLIB
    if (gz) {
      gzclose(gz);
      fd = -1;
    }
#endif
    if (fd >= 0) close(fd);
  }

  size_t read_raw(std::span<uint8_t> to, const std::string& name) {
    size_t done = 0;
    while (done < to.size()) {
      const ssize_t n = ::read(fd, to.data() + done, to.size() - done);
      if (n < 0 && errno == EINTR) continue;
      SINTER_CHECK(n >= 0, data, cat("data: cannot read: ", name, "; ", std::strerror(errno)));
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

#ifdef SINTER_HAS_ZLIB
  size_t read_gzip(std::span<uint8_t> to, const std::string& name) {
    size_t done = 0;
    while (done < to.size()) {
      const auto want = static_cast<unsigned>(std::min(to.size() - done, kFirstBlock));
      const int n = gzread(gz, to.data() + done, want);
      if (n > 0) done += static_cast<size_t>(n);
      if (n == static_cast<int>(want)) continue;
      // A cut file reads like a clean end: only the error state tells, and gzclose would forget it.
      int code = Z_OK;
      const char* message = gzerror(gz, &code);
      if (code == Z_OK || code == Z_STREAM_END) break;
      const uint64_t unpacked = total + done;
      SINTER_CHECK(code != Z_BUF_ERROR, data,
          cat("gzip: ends early: ", name, "; ", unpacked, " bytes unpacked, no end mark"),
          "copy or download it again");
      throw Error(Error::Kind::data,
          cat("gzip: damaged: ", name, "; ", unpacked, " bytes unpacked, then ",
              code == Z_ERRNO ? std::strerror(errno) : message),
          "copy or download it again");
    }
    return done;
  }
#endif
};

ByteSource::ByteSource(const std::string& path)
    : stream_(std::make_unique<Stream>()), name_(shown(path)) {
  Stream& s = *stream_;
  s.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  SINTER_CHECK(s.fd >= 0, data, cat("data: cannot read: ", name_, "; ", std::strerror(errno)));
  struct stat info {};
  const bool known = fstat(s.fd, &info) == 0 && S_ISREG(info.st_mode);
  s.peeked.resize(2);
  s.peeked.resize(s.read_raw(s.peeked, name_));
  s.gzip = s.peeked.size() == 2 && s.peeked[0] == 0x1f && s.peeked[1] == 0x8b;
  if (!s.gzip) {
    if (known) s.size = static_cast<uint64_t>(info.st_size);
    return;
  }
#ifdef SINTER_HAS_ZLIB
  // zlib wants to see the two bytes itself.
  SINTER_CHECK(lseek(s.fd, 0, SEEK_SET) == 0, data,
      cat("data: cannot read: ", name_, "; gzip in a pipe; unpack it first"));
  s.peeked.clear();
  s.gz = gzdopen(s.fd, "rb");
  SINTER_CHECK(s.gz, data, cat("data: cannot read: ", name_, "; zlib has no memory"));
  gzbuffer(s.gz, 128 * 1024);
#else
  throw Error(Error::Kind::not_built, cat("gzip: not in this build (zlib1g-dev): ", name_),
      "unpack it with gzip -d");
#endif
}

ByteSource::~ByteSource() = default;

size_t ByteSource::read(std::span<uint8_t> to) {
  Stream& s = *stream_;
  const size_t early = std::min(to.size(), s.peeked.size());
  std::copy_n(s.peeked.begin(), early, to.begin());
  s.peeked.erase(s.peeked.begin(), s.peeked.begin() + static_cast<ptrdiff_t>(early));
  const auto rest = to.subspan(early);
#ifdef SINTER_HAS_ZLIB
  const size_t n = early + (s.gzip ? s.read_gzip(rest, name_) : s.read_raw(rest, name_));
#else
  const size_t n = early + s.read_raw(rest, name_);
#endif
  s.total += n;
  return n;
}

std::vector<uint8_t> ByteSource::read_up_to(uint64_t n) {
  std::vector<uint8_t> out;
  const uint64_t first =
      raw_size() ? *raw_size() + 1
                 : kFirstBlock;  // + 1: see the end without growing, and grow from empty
  for (uint64_t have = 0; have < n;) {
    out.resize(std::min(n, std::max(first, 2 * have)));
    have += read(std::span(out).subspan(have));
    if (have == out.size()) continue;
    out.resize(have);
    break;
  }
  return out;
}

bool ByteSource::is_gzip() const { return stream_->gzip; }
std::optional<uint64_t> ByteSource::raw_size() const { return stream_->size; }

}  // namespace sinter
