#include "data/idx.h"

#include "tests/data/data_test_util.h"

namespace sinter {
namespace {

using test::Bytes;
using test::expect_error;
using test::operator+;
class IdxTest : public testing::Test {
 protected:
  FileArray images(const Bytes& file) {
    return read_idx(dir_.write("images", file), IdxKind::images);
  }
  FileArray labels(const Bytes& file) {
    return read_idx(dir_.write("labels", file), IdxKind::labels);
  }
  void expect_bad_images(const Bytes& file, std::vector<std::string> facts) {
    facts.push_back(dir_.file("images"));
    expect_error(kData, facts, [&] { images(file); });
  }
  test::TempDir dir_;
};

TEST_F(IdxTest, RawAndGzipGiveTheSame) {
  const Bytes body = test::pattern(3 * 5 * 4);
  const FileArray raw = images(test::idx({3, 5, 4}, body));
  EXPECT_EQ(raw.dims, (std::vector<int64_t>{3, 5, 4}));
  EXPECT_EQ(raw.bytes, body);
  EXPECT_EQ(raw.name, dir_.file("images"));
  EXPECT_EQ(labels(test::idx({6}, Bytes{0, 1, 2, 3, 4, 255})).bytes, (Bytes{0, 1, 2, 3, 4, 255}));
  SKIP_IF_NOT_BUILT(images(test::gzip(test::idx({3, 5, 4}, body))));
  const FileArray zipped = images(test::gzip(test::idx({3, 5, 4}, body)));
  EXPECT_EQ(zipped.dims, raw.dims);
  EXPECT_EQ(zipped.bytes, raw.bytes);
}

TEST_F(IdxTest, AnotherFormat) {
  expect_bad_images(test::bytes_of("<!DOCTYPE html>"), {"not an IDX file", "a web page"});
  expect_bad_images(test::bytes_of("PK\3\4..."), {"not an IDX file", "zip"});
  expect_bad_images({}, {"not an IDX file", "empty"});
  expect_bad_images({0, 0}, {"not an IDX file"});
}

TEST_F(IdxTest, AnotherKind) {
  expect_bad_images(test::idx({4}, Bytes(4)),
      {"labels where images are wanted", "0x00000801", "0x00000803", "swapped"});
  expect_bad_images(test::idx({4, 4}, Bytes(16)), {"2 dims", "0x00000802", "0x00000803"});
  expect_bad_images({0, 0, 0x0d, 3, 0, 0, 0, 1}, {"not bytes", "0x00000d03", "0x00000803"});
  dir_.write("labels", test::idx({1, 2, 2}, Bytes(4)));
  expect_error(kData, {"images where labels are wanted", "0x00000803", "0x00000801"},
      [&] { read_idx(dir_.file("labels"), IdxKind::labels); });
}

TEST_F(IdxTest, HeaderNumbers) {
  expect_bad_images({0, 0, 8, 3, 0, 0, 0}, {"cut short", "16 bytes", "has 7"});
  expect_bad_images(test::idx({5, 0, 28}, {}), {"dim 1 is 0", "1..2147483647"});
  expect_bad_images(test::idx({0x80000000u, 1, 1}, {}), {"dim 0 is 2147483648", "2147483647"});
  expect_bad_images(test::idx({0x7fffffff, 0x7fffffff, 0x7fffffff}, {}),
      {"too large", "u8[2147483647, 2147483647, 2147483647]", "4294967296"});
  expect_bad_images(
      test::idx({65536, 65536, 2}, {}), {"too large", "8589934592", "at most 4294967296"});
}

TEST_F(IdxTest, Length) {
  const Bytes body = test::pattern(50);
  expect_bad_images(
      test::idx({4, 5, 4}, body), {"cut short", "u8[4, 5, 4] = 80 bytes", "file has 50"});
  expect_bad_images(
      test::idx({2, 5, 4}, body), {"bytes after the end", "u8[2, 5, 4] = 40 bytes", "file has 50"});
  // A false promise of 4 GiB is refused by the size of the file.
  expect_bad_images(
      test::idx({65536, 65536, 1}, body), {"cut short", "4294967296 bytes", "file has 50"});
  dir_.write("labels", test::idx({60}, body));
  expect_error(kData, {"cut short", "60 bytes", "file has 50"},
      [&] { read_idx(dir_.file("labels"), IdxKind::labels); });
}

TEST_F(IdxTest, LengthThroughGzip) {
  const Bytes body = test::pattern(60);
  SKIP_IF_NOT_BUILT(images(test::gzip(test::idx({3, 5, 4}, body))));
  expect_bad_images(
      test::gzip(test::idx({4, 5, 4}, body)), {"cut short", "80 bytes", "file has 60"});
  expect_bad_images(test::gzip(test::idx({65536, 65536, 1}, body)),
      {"cut short", "4294967296 bytes", "file has 60"});
  expect_bad_images(
      test::gzip(test::idx({2, 5, 4}, body)), {"bytes after the end", "40 bytes", "41 or more"});
  const Bytes whole = test::gzip(test::idx({3, 5, 4}, body));
  expect_bad_images(whole + whole, {"bytes after the end", "60 bytes", "61 or more"});
  expect_bad_images(Bytes(whole.begin(), whole.end() - 20), {"gzip", "ends early", "no end mark"});
}

TEST_F(IdxTest, WhatIsWrittenReadsBack) {
  const Bytes pixels = test::pattern(300 * 2 * 3);
  write_idx(dir_.file("out"), {300, 2, 3}, pixels);
  const FileArray read = read_idx(dir_.file("out"), IdxKind::images);
  EXPECT_EQ(read.dims, (std::vector<int64_t>{300, 2, 3}));
  EXPECT_EQ(read.bytes, pixels);
  expect_error(Error::Kind::checkpoint, {"data: cannot write", "No such file"}, [&] {
    write_idx(dir_.file("none/out"), {1}, {&pixels[0], 1});
  });
}

}  // namespace
}  // namespace sinter
