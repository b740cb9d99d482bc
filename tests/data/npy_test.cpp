#include "data/npy.h"

#include <cstring>
#include <limits>

#include "tests/data/data_test_util.h"

namespace sinter {
namespace {

using test::Bytes;
using test::expect_error;
using test::npy;
using test::npy_dict;
using test::operator+;
template <class T> Bytes little(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

class NpyTest : public testing::Test {
 protected:
  std::string file(const Bytes& content) { return dir_.write("x.npy", content); }
  void expect_bad(const Bytes& content, std::vector<std::string> facts) {
    facts.push_back(dir_.file("x.npy"));
    expect_error(kData, facts, [&] { read_npy(file(content)); });
  }
  test::TempDir dir_;
};

TEST_F(NpyTest, TypesVersionsAndSpellings) {
  const FileArray bytes = read_npy(file(npy("|u1", "(2, 3)", {1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(bytes.dtype, DType::u8);
  EXPECT_EQ(bytes.dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(bytes.bytes, (Bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(bytes.name, dir_.file("x.npy"));
  EXPECT_EQ(
      read_npy(file(npy("{\"shape\":(),\"fortran_order\":True,'descr':'<f4'}", Bytes(4)))).dims,
      std::vector<int64_t>{});
  EXPECT_EQ(read_npy(file(npy("<i8", "(1,)", Bytes(8)))).dtype, DType::i64);
  EXPECT_EQ(read_npy(file(npy("<i4", "(0, 7)", {}))).dtype, DType::i32);
  for (const uint8_t version : {2, 3}) {
    const std::string dict = npy_dict("|u1", "(1,)");
    const Bytes content = test::bytes_of("\x93NUMPY") + Bytes{version, 0} +
                          test::little32(uint32_t(dict.size())) + test::bytes_of(dict) + Bytes{9};
    EXPECT_EQ(read_npy(file(content)).bytes, Bytes{9});
  }
  const Bytes zipped = test::gzip(npy("|u1", "(1,)", {7}));
  SKIP_IF_NOT_BUILT(read_npy(file(zipped)));
  EXPECT_EQ(read_npy(file(zipped)).bytes, Bytes{7});
}

TEST_F(NpyTest, WhatIsNotReadSaysWhy) {
  expect_bad({}, {"npy: not a NumPy file", "is empty"});
  expect_bad(test::bytes_of("\x89PNG..."), {"not a NumPy file", "a PNG image"});
  expect_bad(test::bytes_of("\x93NUMPY\x01"), {"cut short", "ends in its header"});
  expect_bad(test::bytes_of("\x93NUMPY\x04") + Bytes(9), {"unknown version", "4.0", "1.0 to 3.0"});
  expect_bad(test::bytes_of("\x93NUMPY\x02") + Bytes{0, 0, 0, 0, 1},
      {"header too long", "16777216 bytes", "at most 1024"});
  expect_bad(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2), }", Bytes(4)),
      {"column order", "np.ascontiguousarray(x)"});
  expect_bad(npy(">f4", "(1,)", Bytes(4)), {"unsupported type", "descr is >f4", "astype"});
  expect_bad(npy("<f8", "(1,)", Bytes(8)),
      {"unsupported type", "<f8", "|u1, <i4, <i8, <f4", "x.astype(np.float32)"});
  expect_bad(npy("", "(1,)", Bytes(8)), {"unsupported type"});
  expect_bad(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", Bytes(4)),
      {"npy: bad header", "a plain array"});
  expect_bad(npy("|u1", "(3000000, 3000)", {}), {"too large", "u8[3000000, 3000]", "4294967296"});
  expect_bad(npy("|u1", "(4294967296, 4294967296, 4)", {}), {"too large"});
}

TEST_F(NpyTest, LengthIsExact) {
  const std::string dict = npy_dict("<i4", "(3,)");
  expect_bad(
      npy(dict, Bytes(11)), {"cut short", "i32[3] = 12 bytes, file has 11", "copy it again"});
  expect_bad(npy(dict, Bytes(13)), {"bytes after the end", "= 12 bytes, file has 13"});
  const Bytes whole = npy(dict, Bytes(12));
  for (size_t n = 0; n < whole.size(); ++n) {
    const Bytes cut(whole.begin(), whole.begin() + ptrdiff_t(n));
    expect_error(kData, {"x.npy"}, [&] { read_npy(file(cut)); });
  }
  SKIP_IF_NOT_BUILT(read_npy(file(test::gzip(whole))));
  expect_bad(test::gzip(npy(dict, Bytes(11))), {"cut short", "file has 11"});
  expect_bad(test::gzip(npy(dict, Bytes(400))), {"bytes after the end", "file has 13 or more"});
}

TEST_F(NpyTest, TheHeaderIsADictOfThreeKeys) {
  const char* bad[] = {"", "{", "[]", "{}", "{'descr': '|u1'}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'more': 1}",
      "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '|u1' 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '|u1, 'fortran_order': False, 'shape': (1,)}",
      "{'descr': |u1, 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '|u1', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (1 2)}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': 1}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)} import os",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)"};
  for (const char* dict : bad) {
    SCOPED_TRACE(dict);
    expect_bad(npy(dict, {0}), {"npy: bad header", "a dict of descr"});
  }
  expect_bad(npy(npy_dict("|u1", "(1,)") + std::string("\0 x", 3), {0}), {"bad header", "\\x00"});
}

TEST_F(NpyTest, ImagesBecomeBytes) {
  const Bytes pixels = test::pattern(2 * 784);
  std::vector<float> shares(pixels.size());
  for (size_t i = 0; i < pixels.size(); ++i) shares[i] = float(pixels[i]) / 255;
  for (const Bytes& content : {npy("|u1", "(2, 28, 28)", pixels), npy("|u1", "(2, 784)", pixels),
           npy("<f4", "(2, 28, 28)", little(shares))}) {
    const Tensor images = read_npy(file(content)).images();
    EXPECT_EQ(images.describe(), "u8[2, 1, 28, 28] cpu");
    EXPECT_EQ(images.to_vector<uint8_t>(), pixels);
  }
  EXPECT_EQ(read_npy(file(npy("|u1", "(28, 28)", Bytes(784)))).images().describe(),
      "u8[1, 1, 28, 28] cpu");
  const auto refused = [&](const Bytes& content, const std::vector<std::string>& facts) {
    expect_error(kData, facts, [&] { read_npy(file(content)).images(); });
  };
  shares[784 + 5] = -0.5f;
  refused(npy("<f4", "(2, 784)", little(shares)),
      {"pixel out of range: -0.5 in image 1 of ", "0..1", "x / 255"});
  shares[3] = std::numeric_limits<float>::quiet_NaN();
  refused(npy("<f4", "(2, 784)", little(shares)), {"pixel out of range: nan in image 0"});
  refused(npy("|u1", "(2, 3, 28, 5)", Bytes(840)),
      {"not images", "u8[2, 3, 28, 5]", "[N, H, W, C] with at most 4 channels, or [N, 784]",
          "x.transpose(0, 2, 3, 1)"});
  refused(npy("|u1", "(2, 100)", Bytes(200)), {"not images", "x.reshape(-1, H, W)"});
  refused(npy("<i4", "(1, 784)", Bytes(4 * 784)), {"not images", "i32[1, 784]"});
  refused(npy("|u1", "(7,)", Bytes(7)), {"not images", "the images come first"});
  refused(npy("|u1", "(0, 784)", {}), {"not images", "u8[0, 784]"});
}

TEST_F(NpyTest, ImagesOfAnySizeAndColour) {
  const Bytes pixels = test::pattern(2 * 3 * 5 * 4);
  EXPECT_EQ(
      read_npy(file(npy("|u1", "(6, 5, 4)", pixels))).images().describe(), "u8[6, 1, 5, 4] cpu");
  std::vector<float> shares(pixels.size());
  for (size_t i = 0; i < pixels.size(); ++i) shares[i] = float(pixels[i]) / 255;
  for (const Bytes& content :
      {npy("|u1", "(2, 5, 4, 3)", pixels), npy("<f4", "(2, 5, 4, 3)", little(shares))}) {
    const Tensor images = read_npy(file(content)).images();
    EXPECT_EQ(images.describe(), "u8[2, 3, 5, 4] cpu");
    const Bytes planes = images.to_vector<uint8_t>();
    for (size_t i = 0; i < pixels.size(); ++i) {
      const size_t image = i / 60, pixel = i % 60 / 3, channel = i % 3;
      EXPECT_EQ(planes[image * 60 + channel * 20 + pixel], pixels[i]);
    }
  }
}

TEST_F(NpyTest, LabelsBecomeI32) {
  for (const Bytes& content :
      {npy("|u1", "(3,)", {7, 0, 9}), npy("<i4", "(3,)", little<int32_t>({7, 0, 9})),
          npy("<i8", "(3,)", little<int64_t>({7, 0, 9}))})
    EXPECT_EQ(read_npy(file(content)).labels().to_vector<int>(), (std::vector<int>{7, 0, 9}));
  const auto refused = [&](const Bytes& content, const std::vector<std::string>& facts) {
    expect_error(kData, facts, [&] { read_npy(file(content)).labels(); });
  };
  refused(npy("<i8", "(2,)", little<int64_t>({1, -1})),
      {"label out of range: -1 at item 1 of ", "0..2147483647"});
  refused(npy("<i8", "(1,)", little<int64_t>({int64_t{1} << 40})),
      {"label out of range: 1099511627776"});
  refused(npy("<f4", "(1,)", Bytes(4)), {"not labels", "f32[1]", "y.astype(np.int64)"});
  refused(npy("|u1", "(1, 2)", Bytes(2)), {"not labels", "u8[1, 2]"});
}

}  // namespace
}  // namespace sinter
