#include "data/idx.h"

#include <cstdio>
#include <limits>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/file_start.h"
#include "data/bytes.h"

namespace sinter {
namespace {

std::string hex(uint32_t magic) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08x", magic);
  return text;
}

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

const char* plural_of(IdxKind kind) { return kind == IdxKind::images ? "images" : "labels"; }

void check_magic(std::span<const uint8_t> start, const std::string& name, IdxKind wanted) {
  SINTER_CHECK(start.size() == 4 && start[0] == 0 && start[1] == 0, data,
      cat("idx: not an IDX file: ", name, "; ", describe_start(start)),
      "an IDX file starts with \"\\x00\\x00\\x08\"; scripts/download_mnist fetches good ones");
  const uint32_t magic = big_endian(start.data()), good = 0x800 + static_cast<uint32_t>(wanted);
  SINTER_CHECK(start[2] == 8, data,
      cat("idx: elements are not bytes: ", name, "; magic ", hex(magic), ", ", plural_of(wanted),
          " have ", hex(good)));
  const IdxKind other = wanted == IdxKind::images ? IdxKind::labels : IdxKind::images;
  const std::string facts =
      cat(name, "; magic ", hex(magic), ", ", plural_of(wanted), " have ", hex(good));
  SINTER_CHECK(magic != 0x800 + static_cast<uint32_t>(other), data,
      cat("idx: ", plural_of(other), " where ", plural_of(wanted), " are wanted: ", facts),
      "were two files swapped?");
  SINTER_CHECK(magic == good, data,
      cat("idx: ", int{start[3]}, " dims where ", static_cast<int>(wanted),
          " are wanted: ", facts));
}

std::string times(const std::vector<int64_t>& dims) {
  std::string out;
  for (const int64_t dim : dims) out += (out.empty() ? "" : " x ") + std::to_string(dim);
  return out;
}

}  // namespace

IdxArray read_idx(const std::string& path, IdxKind wanted) {
  ByteSource source(path);
  const std::string& name = source.name();
  const int ndim = static_cast<int>(wanted);
  uint8_t header[4 + 4 * 3];
  size_t got = source.read(std::span(header, 4));
  check_magic(std::span(header, got), name, wanted);
  got += source.read(std::span(header + 4, 4 * ndim));
  SINTER_CHECK(got == 4u + 4 * ndim, data,
      cat("idx: cut short: ", name, "; the header is ", 4 + 4 * ndim, " bytes, the file has ", got),
      "copy it again");

  IdxArray out{{}, {}, name};
  uint64_t promised = 1;
  bool fits = true;
  for (int i = 0; i < ndim; ++i) {
    const uint32_t dim = big_endian(header + 4 + 4 * i);
    SINTER_CHECK(dim >= 1 && dim <= std::numeric_limits<int32_t>::max(), data,
        cat("idx: bad size: ", name, "; dim ", i, " is ", dim, ", allowed 1..2147483647"));
    out.dims.push_back(dim);
    fits = fits && !__builtin_mul_overflow(promised, uint64_t{dim}, &promised);
  }
  const std::string promise =
      times(out.dims) + (ndim > 1 && fits ? cat(" = ", promised) : "") + " bytes";
  SINTER_CHECK(fits && promised <= kMaxBytes, data,
      cat("idx: too large: ", name, "; header promises ", promise, ", at most ", kMaxBytes));

  const auto check_length = [&](uint64_t has) {
    const std::string facts = cat(name, "; header promises ", promise, ", file has ", has);
    const std::string whole =
        ndim > 1 ? cat(" (", has / (promised / out.dims[0]), " whole images)") : "";
    SINTER_CHECK(has >= promised, data, cat("idx: cut short: ", facts, whole), "copy it again");
    SINTER_CHECK(has == promised, data,
        cat("idx: bytes after the end: ", facts, source.is_gzip() ? " or more" : ""),
        "copy it again");
  };
  if (source.raw_size()) check_length(*source.raw_size() - got);
  out.bytes = source.read_up_to(promised);
  uint8_t extra;
  check_length(
      out.bytes.size() + (out.bytes.size() == promised ? source.read(std::span(&extra, 1)) : 0));
  return out;
}

void write_idx(
    const std::string& path, const std::vector<int64_t>& dims, std::span<const uint8_t> bytes) {
  std::vector<uint8_t> header{0, 0, 8, static_cast<uint8_t>(dims.size())};
  for (const int64_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) header.push_back(static_cast<uint8_t>(dim >> shift));
  }
  AtomicFile file(path, "data");
  file.write(header.data(), header.size());
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace sinter
