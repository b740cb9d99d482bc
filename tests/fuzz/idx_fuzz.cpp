// IDX, raw and through gzip: the first byte says which of the two kinds is wanted. Bytes that begin
// as gzip go through it anyway.
#include "data/idx.h"

#include <zlib.h>

#include <vector>

#include "tests/fuzz/fuzz.h"

namespace sinter::fuzz {
namespace {

std::vector<uint8_t> gzipped(Bytes bytes) {
  std::vector<uint8_t> out(bytes.size() + 1024);
  z_stream stream = {};
  deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = const_cast<uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace

void one(Bytes bytes) {
  if (bytes.empty()) return;
  const IdxKind kind = bytes[0] & 1 ? IdxKind::labels : IdxKind::images;
  bytes = bytes.subspan(1);
  guarded([&] { read_idx(as_file(bytes), kind); });
  const std::vector<uint8_t> packed = gzipped(bytes);
  guarded([&] { read_idx(as_file(packed), kind); });
}

}  // namespace sinter::fuzz
