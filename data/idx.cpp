#include "data/idx.h"

#include <fmt/format.h>

#include <limits>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/file_start.h"

namespace sinter {
namespace {

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

constexpr uint32_t magic_of(IdxKind kind) { return 0x800 + uint32_t(kind); }
const char* plural_of(IdxKind kind) { return kind == IdxKind::images ? "images" : "labels"; }

void check_magic(std::span<const uint8_t> start, const std::string& name, IdxKind wanted) {
  SINTER_CHECK(start.size() >= 4 && start[0] == 0 && start[1] == 0, data,
      str("idx: not an IDX file: ", name, "; ", describe_start(start)),
      "an IDX file starts with \"\\x00\\x00\\x08\"; scripts/download_mnist fetches good ones");
  const uint32_t magic = big_endian(start.data());
  if (magic == magic_of(wanted)) return;
  const IdxKind other = wanted == IdxKind::images ? IdxKind::labels : IdxKind::images;
  std::string wrong = str(int{start[3]}, " dims");
  if (start[2] != 8) wrong = "elements that are not bytes";
  if (magic == magic_of(other)) wrong = plural_of(other);
  throw Error(Error::Kind::data,
      fmt::format("idx: {} where {} are wanted: {}; magic {:#010x}, {} have {:#010x}", wrong,
          plural_of(wanted), name, magic, plural_of(wanted), magic_of(wanted)),
      magic == magic_of(other) ? "were two files swapped?" : "");
}

}  // namespace

FileArray read_idx(const std::string& path, IdxKind wanted) {
  ByteSource source(path);
  const std::string& name = source.name();
  const auto ndim = size_t(wanted);
  const std::vector<uint8_t> header = source.read_up_to(4 + 4 * ndim);
  check_magic(header, name, wanted);
  SINTER_CHECK(header.size() == 4 + 4 * ndim, data,
      str("idx: cut short: ", name, "; the header is ", 4 + 4 * ndim, " bytes, the file has ",
          header.size()),
      "copy it again");
  std::vector<int64_t> dims;
  for (size_t i = 0; i < ndim; ++i) {
    const uint32_t dim = big_endian(&header[4 + 4 * i]);
    SINTER_CHECK(dim >= 1 && dim <= std::numeric_limits<int32_t>::max(), data,
        str("idx: bad size: ", name, "; dim ", i, " is ", dim, ", allowed 1..2147483647"));
    dims.push_back(dim);
  }
  return source.read_array("idx", DType::u8, std::move(dims));
}

void write_idx(
    const std::string& path, const std::vector<int64_t>& dims, std::span<const uint8_t> bytes) {
  std::vector<uint8_t> header{0, 0, 8, uint8_t(dims.size())};
  for (const int64_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) header.push_back(uint8_t(dim >> shift));
  }
  AtomicFile file(path, "data");
  file.write(header.data(), header.size());
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace sinter
