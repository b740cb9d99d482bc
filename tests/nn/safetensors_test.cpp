// safetensors: what is written reads back, byte for byte the same each time; every hostile header
// gets an Error of kind checkpoint.
#include "nn/safetensors.h"

#include <cmath>
#include <cstring>

#include "nn/mlp.h"
#include "nn/state_dict.h"
#include "ops/ops.h"
#include "tests/data/data_test_util.h"

namespace sinter::nn {
namespace {

using test::Bytes;
using test::expect_error;
using test::TempDir;
using enum Error::Kind;

Bytes with_header(const std::string& json, const Bytes& data) {
  Bytes out(8);
  const uint64_t length = json.size();
  std::memcpy(out.data(), &length, 8);
  out.insert(out.end(), json.begin(), json.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}
Bytes bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  const TempDir dir;
  NamedTensors all;
  for (const DType dtype : {DType::u8, DType::f32, DType::i64, DType::bf16, DType::f64, DType::i32})
    all.push_back({str("t.", name_of(dtype)), cast(sample_tensor({3, 5}, 1, 0, 90), dtype)});
  all.push_back({"strided", transpose(sample_tensor({4, 2}, 2))});
  all.push_back({"empty", Tensor::zeros({0, 4})});
  all.push_back({"scalar \"\xc3\xa9\"", Tensor::full({}, 2.5)});
  const Metadata metadata{{"sinter.config", "epochs=5\n\"x\""}};
  write_safetensors(dir.file("a"), all, metadata);
  const SafetensorsFile file = read_safetensors(dir.file("a"));
  ASSERT_EQ(file.tensors.size(), all.size());
  for (const auto& [name, t] : all) {
    const Tensor* found = find(file.tensors, name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->describe(), t.describe());
    EXPECT_EQ(found->to_vector<double>(), t.to_vector<double>()) << name;
  }
  EXPECT_EQ(file.metadata.at("sinter.config"), metadata.at("sinter.config"));
  EXPECT_TRUE(file.crc_checked);
  EXPECT_TRUE(file.notes.empty());
  std::vector<std::string> order;
  for (const auto& [name, _] : file.tensors) order.push_back(name);
  EXPECT_EQ(order, (std::vector<std::string>{"strided", "t.f64", "t.i64", "empty",
                       "scalar \"\xc3\xa9\"", "t.f32", "t.i32", "t.bf16", "t.u8"}));
  uint64_t length = 0;
  const Bytes bytes = bytes_of_file(dir.file("a"));
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0u);
  std::swap(all[0], all[4]);
  write_safetensors(dir.file("b"), all, metadata);
  EXPECT_EQ(bytes_of_file(dir.file("b")), bytes);  // the order given does not matter
}

TEST(Safetensors, AModelGoesThroughAFile) {
  const TempDir dir;
  Mlp a({7, 5, 3}), b({7, 5, 3}, {.seed = 2});
  write_safetensors(dir.file("model.safetensors"), a.state_dict());
  EXPECT_EQ(
      load_state_dict(b, read_safetensors(dir.file("model.safetensors")).tensors), "same keys");
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(a.parameters()[i].to_vector<float>(), b.parameters()[i].to_vector<float>());
}

TEST(Safetensors, HalfPrecisionBecomesF32) {
  const TempDir dir;
  const std::string json =
      R"({"h":{"dtype":"F16","shape":[7],"data_offsets":[0,14]},"i":{"dtype":"F16","shape":[1],"data_offsets":[14,16]}}  )";
  // 1, -2, the largest 65504, the smallest subnormal 2^-24, the smallest normal 2^-14, -inf, nan; 1
  const Bytes data{0, 0x3c, 0, 0xc0, 0xff, 0x7b, 1, 0, 0, 4, 0, 0xfc, 0, 0x7e, 0, 0x3c};
  const SafetensorsFile file = read_safetensors(dir.write("a", with_header(json, data)));
  const auto half = find(file.tensors, "h")->to_vector<float>();
  EXPECT_EQ((std::vector<float>(half.begin(), half.begin() + 6)),
      (std::vector<float>{1, -2, 65504, 0x1p-24f, 0x1p-14f, -INFINITY}));
  EXPECT_TRUE(std::isnan(half[6]));
  EXPECT_EQ(file.notes, std::vector<std::string>{"converted F16 to f32: h and 1 more"});
  EXPECT_FALSE(file.crc_checked);
}

// Masks and the like beside the weights; a file with other types is refused.
TEST(Safetensors, LeavesOutTypesThatNoTensorHasAndSaysSo) {
  const TempDir dir;
  for (const auto& [type, bytes] :
      {std::pair{"BOOL", 1}, {"I8", 1}, {"I16", 2}, {"U16", 2}, {"U32", 4}, {"U64", 8}}) {
    const std::string json = str(R"({"m":{"dtype":")", type, R"(","shape":[2],"data_offsets":[0,)",
        2 * bytes, R"(]},"n":{"dtype":")", type, R"(","shape":[0],"data_offsets":[)", 2 * bytes,
        ",", 2 * bytes, R"(]},"w":{"dtype":"F32","shape":[1],"data_offsets":[)", 2 * bytes, ",",
        2 * bytes + 4, "]}}");
    Bytes data(size_t(2 * bytes), 3);
    data.insert(data.end(), {0, 0, 0x80, 0x3f});
    const SafetensorsFile file = read_safetensors(dir.write("a", with_header(json, data)));
    ASSERT_EQ(file.tensors.size(), 1u);
    EXPECT_EQ(file.tensors[0].tensor.to_vector<float>(), std::vector<float>{1});
    EXPECT_EQ(
        file.notes, std::vector<std::string>{
                        str("left out, as no weight has such a type: m is ", type, " and 1 more")});
    Linear needs(1, 1);
    EXPECT_THROW(load_state_dict(needs, file.tensors), Error) << "m is none of its weights";
    expect_error(checkpoint, {"range does not fit the shape"}, [&] {
      const std::string wrong =
          str(R"({"m":{"dtype":")", type, R"(","shape":[3],"data_offsets":[0,)", bytes, "]}}");
      read_safetensors(dir.write("a", with_header(wrong, Bytes(size_t(bytes)))));
    });
  }
  for (const char* type : {"F8_E4M3", "C64", "bool"}) {
    const std::string json =
        str(R"({"w":{"dtype":")", type, R"(","shape":[2],"data_offsets":[0,4]}})");
    expect_error(checkpoint,
        {"safetensors: unknown element type: ", str("w is ", type),
            "known are F64 F32 F16 BF16 I64 I32 U8"},
        [&] { read_safetensors(dir.write("a", with_header(json, Bytes(4)))); });
  }
}

TEST(Safetensors, RefusesFilesOfAnotherKind) {
  const TempDir dir;
  const auto refuse = [&](const std::string& start, const std::vector<std::string>& facts) {
    std::vector<std::string> all = facts;
    all.push_back(dir.file("f"));
    expect_error(checkpoint, all, [&] { read_safetensors(dir.write("f", test::bytes_of(start))); });
  };
  refuse("PK\x03\x04 and so on ...",
      {"not a safetensors file", "it starts with \"PK", "a zip archive, as torch.save() writes",
          "hint: in Python: safetensors.torch.save_file"});
  refuse(std::string("\x80\x02\x8a\x0a", 4) + "1234567890",
      {"a pickle", "safetensors.torch.save_file"});
  refuse("<!DOCTYPE html>", {"a web page"});
  refuse("\x89HDF\r\n\x1a\n1234", {"HDF5"});
  refuse("version https://git-lfs.github.com/spec/v1", {"Git LFS pointer"});
  refuse("", {"it has 0 bytes", "takes 8"});
  refuse("1234567", {"it has 7 bytes"});
  refuse(std::string("\x09\0\0\0\0\0\0\0{}", 10),
      {"header length is 9, at most 2 in a file of 10 bytes"});
  refuse(std::string("\x02\0\0\0\0\0\0\0[]", 10), {"does not begin with {"});
  refuse(std::string(8, '\0'), {"does not begin with {"});
  refuse(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
      {"header length is 18446744073709551615"});
  expect_error(checkpoint, {"cannot read", dir.file("none"), "No such file"},
      [&] { read_safetensors(dir.file("none")); });
  expect_error(
      checkpoint, {"cannot read", "Is a directory"}, [&] { read_safetensors(dir.path()); });
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
    const std::string& range) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + range + "}";
}

TEST(Safetensors, RefusesHostileHeaders) {
  const std::string good = entry("w", "F32", "[2]", "[0,8]"), deep(200000, '[');
  const auto w = [](const char* shape, const char* range) {
    return "{" + entry("w", "F32", shape, range) + "}";
  };
  std::string crowd = "{";
  for (int i = 0; i <= 65536; ++i)
    crowd += str(i ? "," : "", entry(std::to_string(i), "U8", "[0]", "[0,0]"));
  struct Case {
    std::string json;
    size_t data;
    std::vector<std::string> facts;
  };
  const std::vector<Case> cases{
      {"{" + good, 8, {"not JSON", "at byte"}},
      {"{" + good + "}x", 8, {"not JSON"}},
      {"{\"\xff\":1}", 0, {"not JSON"}},
      {"{" + good + "," + entry("w", "F32", "[2]", "[0,8]") + "}", 8, {"key given twice", "w"}},
      {R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
          {"key given twice", "dtype in w"}},
      {R"({"w":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", 8,
          {"key given twice", "shape in w"}},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, {"key given twice", "a in __metadata__"}},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, {"key given twice", "__metadata__"}},
      {R"({"__metadata__":{"a":1}})", 0, {"__metadata__.a is 1, wanted text"}},
      {R"({"__metadata__":{"a":{}}})", 0, {"__metadata__.a is an object, wanted text"}},
      {R"({"__metadata__":["a"]})", 0, {"__metadata__ is an array, wanted an object of texts"}},
      {R"({"w":{"dtype":"F32","shape":[2]}})", 8, {"w.data_offsets is missing"}},
      {R"({"w":{}})", 0, {"w.dtype is missing"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8,
          {"unknown key", "x in w"}},
      {R"({"w":5})", 0, {"w is 5, wanted an object"}},
      {R"({"w":null})", 0, {"w is null, wanted an object"}},
      {R"({"w":{"dtype":true}})", 0, {"w.dtype is true, wanted text"}},
      {R"({"w":{"dtype":["F32"]}})", 0, {"w.dtype is an array, wanted text"}},
      {R"({"w":{"dtype":"F32","shape":["2"]}})", 0, {"w.shape[0] is \"2\", wanted an integer"}},
      {R"({"w":{"shape":)" + deep, 0, {"an array", "w", "depth 4"}},
      {"{" + entry("w", "F8", "[2]", "[0,8]") + "}", 8,
          {"unknown element type", "w is F8", "BF16"}},
      {w("[-2]", "[0,8]"), 8, {"bad shape", "w is [-2]"}},
      {w("[2.0]", "[0,8]"), 8, {"w.shape[0] is 2.0, wanted an integer"}},
      {w("[18446744073709551616]", "[0,8]"), 8,
          {"w.shape[0] is 1.8446744073709552e+19, wanted an integer"}},
      {w("[18446744073709551615]", "[0,8]"), 8,
          {"w.shape[0] is 18446744073709551615, wanted an integer of 64 bits"}},
      {w("[4294967296,4294967296]", "[0,8]"), 8, {"bad shape", "w is [", "less than 2^63 bytes"}},
      {w("[0,4294967296,4294967296]", "[0,0]"), 0, {"bad shape", "w is [", "less than 2^63 bytes"}},
      {w("[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, {"too many dims", "8"}},
      {w("[2]", "[0,8,9]"), 8, {"w.data_offsets is an array, wanted an array of 2"}},
      {w("[2]", "[0]"), 8, {"w.data_offsets is an array, wanted an array of 2"}},
      {w("[2]", "[8,0]"), 8, {"bad range", "[8, 0)"}},
      {w("[2]", "[0,16]"), 8, {"bad range", "[0, 16) of 8"}},
      {w("[3]", "[0,8]"), 8, {"does not fit", "is 8 bytes", "F32[3] takes 12"}},
      {"{" + good + "," + entry("v", "F32", "[2]", "[4,12]") + "}", 12,
          {"ranges overlap", "w [0, 8) and v [4, 12)"}},
      {"{" + good + "," + entry("v", "F32", "[2]", "[12,20]") + "}", 20,
          {"gap", "[8, 12) before v"}},
      {"{" + good + "}", 9, {"behind the last tensor", "end at 8, data at 9"}},
      {"{}", 1, {"behind the last tensor"}},
      {"{" + entry(std::string(513, 'n'), "F32", "[2]", "[0,8]") + "}", 8,
          {"name too long", "513", "512"}},
      {crowd + "}", 0, {"too many tensors", "65536"}},
  };
  const TempDir dir;
  for (const Case& c : cases) {
    std::vector<std::string> facts{"safetensors: ", dir.file("f")};
    facts.insert(facts.end(), c.facts.begin(), c.facts.end());
    SCOPED_TRACE(c.json.substr(0, 100));
    expect_error(checkpoint, facts,
        [&] { read_safetensors(dir.write("f", with_header(c.json, Bytes(c.data)))); });
  }
  EXPECT_EQ(
      read_safetensors(dir.write("f", with_header("{" + good + "}  ", Bytes(8)))).tensors.size(),
      1u);
  EXPECT_EQ(read_safetensors(dir.write("f", with_header("{}", {}))).tensors.size(), 0u);
  EXPECT_EQ(read_safetensors(
                dir.write("f", with_header("{" + entry("a\\u0000\\n", "F32", "[0]", "[0,0]") + "," +
                                               good + "}",
                                   Bytes(8))))
                .tensors.size(),
      2u);
}

TEST(Safetensors, DamagedDataIsFound) {
  const TempDir dir;
  write_safetensors(dir.file("f"), {{"w", Tensor::from({1, 2, 3}, {3})}});
  Bytes bytes = bytes_of_file(dir.file("f"));
  bytes.back() ^= 1;
  dir.write("f", bytes);
  expect_error(checkpoint,
      {"checkpoint: damaged: " + dir.file("f"), "crc32 of the data is ", "header says "},
      [&] { read_safetensors(dir.file("f")); });
  // Cut after any byte: refused.
  bytes.back() ^= 1;
  for (size_t n = 0; n < bytes.size(); ++n) {
    dir.write("f", Bytes(bytes.begin(), bytes.begin() + ptrdiff_t(n)));
    EXPECT_THROW(read_safetensors(dir.file("f")), Error) << n;
  }
}

TEST(Safetensors, RefusesToWriteWhatItCouldNotRead) {
  const TempDir dir;
  const Tensor t = Tensor::zeros({1});
  expect_error(usage, {"two tensors", "w"}, [&] {
    write_safetensors(dir.file("f"), {{"w", t}, {"w", t}});
  });
  expect_error(usage, {"__metadata__"}, [&] {
    write_safetensors(dir.file("f"), {{"__metadata__", t}});
  });
  expect_error(usage, {"512"}, [&] {
    write_safetensors(dir.file("f"), {{std::string(513, 'x'), t}});
  });
  expect_error(checkpoint, {"checkpoint: cannot write", "No such file"}, [&] {
    write_safetensors(dir.file("none/f"), {{"w", t}});
  });
  EXPECT_FALSE(std::filesystem::exists(dir.file("f")));
}

}  // namespace
}  // namespace sinter::nn
