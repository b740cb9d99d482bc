#include "data/bytes.h"

#include "core/file_start.h"

#include "tests/data/data_test_util.h"

namespace sinter {
namespace {

using test::Bytes;
using test::expect_error;
using test::operator+;
TEST(Bytes, ReadsRawInPieces) {
  const test::TempDir dir;
  const Bytes content = test::pattern(1000);
  ByteSource source(dir.write("a", content));
  Bytes first(1), rest(2000);
  EXPECT_EQ(source.read(first), 1u);
  rest.resize(source.read(rest));
  EXPECT_EQ(first + rest, content);
}

TEST(Bytes, TinyFilesAreRaw) {
  const test::TempDir dir;
  EXPECT_EQ(ByteSource(dir.write("empty", {})).read_up_to(10), Bytes{});
  EXPECT_EQ(ByteSource(dir.write("one", {0x1f})).read_up_to(10), Bytes{0x1f});
}

TEST(Bytes, GzipByContentNotName) {
  const test::TempDir dir;
  const Bytes content = test::pattern(3'000'000);  // several read blocks
  const std::string path = dir.write("no_suffix", test::gzip(content));
  SKIP_IF_NOT_BUILT(ByteSource(path).read_up_to(1));
  ByteSource source(path);
  EXPECT_EQ(source.read_up_to(1u << 30), content);
  EXPECT_EQ(ByteSource(path).read_up_to(7), Bytes(content.begin(), content.begin() + 7));
  EXPECT_EQ(ByteSource(dir.write("raw.gz", content)).read_up_to(1u << 30), content);
}

TEST(Bytes, GzipEndsMembersAndDamage) {
  const test::TempDir dir;
  const Bytes a = test::pattern(5000, 1), b = test::pattern(70000, 2);
  const auto read = [&](const Bytes& file) {
    return ByteSource(dir.write("f.gz", file)).read_up_to(1u << 30);
  };
  SKIP_IF_NOT_BUILT(read(test::gzip(a)));
  EXPECT_EQ(read(test::gzip(a) + test::bytes_of("trailing words")), a);
  EXPECT_EQ(read(test::gzip(a) + test::gzip(b)), a + b);

  const Bytes whole = test::gzip(b);
  const auto cut = [&](size_t n) {
    return [&, n] { read(Bytes(whole.begin(), whole.begin() + ptrdiff_t(n))); };
  };
  expect_error(kData, {"gzip", "ends early", "f.gz", "bytes unpacked"}, cut(whole.size() / 2));
  expect_error(kData, {"ends early", "70000 bytes unpacked"}, cut(whole.size() - 8));
  expect_error(kData, {"ends early", "0 bytes unpacked"}, cut(2));
  Bytes flipped = whole;
  flipped[500] ^= 1;
  expect_error(kData, {"gzip", "damaged", "f.gz"}, [&] { read(flipped); });
}

TEST(Bytes, Unreadable) {
  const test::TempDir dir;
  expect_error(kData, {"cannot read", dir.file("nothing\\x1b"), "No such file"},
      [&] { ByteSource source(dir.file("nothing\x1b")); });
  expect_error(
      kData, {"cannot read", dir.path(), "directory"}, [&] { ByteSource source(dir.path()); });
}

TEST(Bytes, SaysWhatAFileIs) {
  const auto say = [](std::string_view text) { return describe_start(test::bytes_of(text)); };
  EXPECT_EQ(say("<!DOCTYPE html>"), "starts with \"<!DO\", a web page");
  EXPECT_EQ(say("PK\x03\x04"), "starts with \"PK\\x03\\x04\", a zip archive");
  EXPECT_EQ(say("\x89PNG\r\n"), "starts with \"\\x89PNG\", a PNG image");
  EXPECT_EQ(say("hello"), "starts with \"hell\"");
  EXPECT_EQ(say(""), "is empty");
}

}  // namespace
}  // namespace sinter
