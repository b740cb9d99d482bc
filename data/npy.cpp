#include "data/npy.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/file_start.h"
#include "data/bytes.h"
#include "data/digits.h"

namespace sinter {
namespace {

constexpr uint32_t kMaxHeader = 64 << 10;
constexpr size_t kMaxDims = 8;

// dict = '{' [ item { ',' item } [ ',' ] ] '}'   item = string ':' value   value = string | True |
// False | tuple of whole numbers
class Header {
 public:
  Header(std::string_view text, const std::string& file) : text_(text), file_(file) { parse(); }

  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;

 private:
  void parse() {
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !descr) {
        SINTER_CHECK(peek() != '[', data,
            cat("npy: fields of several types: ", file_, "; a plain array is wanted"),
            "save one field: np.save(\"f.npy\", x[\"image\"])");
        descr = string();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = take_word("True");
        if (!*fortran_order && !take_word("False")) bad("True or False is wanted");
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        bad(cat("the key ", escaped(key), " is unknown or stands there twice"));
      }
      if (!take(',') && peek() != '}') bad("a comma is wanted");
    }
    peek();
    if (at_ != text_.size()) bad("text behind the dict");
    if (!descr || !fortran_order || !shape) bad("descr, fortran_order and shape are wanted");
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') bad("a string is wanted");
    const size_t begin = ++at_, end = text_.find(quote, begin);
    if (end == std::string_view::npos) bad("a string does not end");
    at_ = end + 1;
    return std::string(text_.substr(begin, end - begin));
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!take(')')) {
      peek();
      int64_t value = -1;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0 || out.size() == kMaxDims)
        bad(cat("at most ", kMaxDims, " whole numbers are wanted"));
      at_ = static_cast<size_t>(end - text_.data());
      out.push_back(value);
      if (!take(',') && peek() != ')') bad("a comma is wanted");
    }
    return out;
  }

  // The next character that is no space; 0 at the end.
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    peek();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad(cat("'", c, "' is wanted"));
  }
  [[noreturn]] void bad(const std::string& what) const {
    throw Error(Error::Kind::data,
        cat("npy: bad header: ", file_, "; character ", at_, ", \"", escaped(text_.substr(at_, 12)),
            "\": ", what),
        "save it again");
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
};

DType parse_descr(const std::string& descr, const std::string& file) {
  SINTER_CHECK(!descr.starts_with('>'), data,
      cat("npy: big-endian: ", file, "; descr is ", escaped(descr), ", allowed <"),
      "x.astype(x.dtype.newbyteorder(\"<\"))");
  const std::string_view type = std::string_view(descr).substr(std::min<size_t>(descr.size(), 1));
  if ((descr[0] == '|' || descr[0] == '<') && type == "u1") return DType::u8;
  if (descr[0] == '<' && type == "i4") return DType::i32;
  if (descr[0] == '<' && type == "i8") return DType::i64;
  if (descr[0] == '<' && type == "f4") return DType::f32;
  throw Error(Error::Kind::data,
      cat("npy: unsupported type: ", file, "; descr is ", escaped(descr),
          ", allowed |u1, <i4, <i8, <f4"),
      "x.astype(np.float32) for images, x.astype(np.int64) for labels");
}

std::string shape_text(const std::vector<int64_t>& dims) {
  std::string out;
  for (const int64_t dim : dims) out += cat(out.empty() ? "" : ", ", dim);
  return "[" + out + "]";
}

}  // namespace

NpyArray read_npy(const std::string& path) {
  ByteSource source(path);
  const std::string& name = source.name();
  uint8_t start[12];
  const size_t got = source.read(std::span(start, 10));
  SINTER_CHECK(got >= 6 && std::memcmp(start, "\x93NUMPY", 6) == 0, data,
      cat("npy: not a NumPy file: ", name, "; ",
          describe_start(std::span(start, std::min<size_t>(got, 6)))),
      "np.save makes one");
  SINTER_CHECK(got == 10, data, cat("npy: cut short: ", name, "; the file has ", got, " bytes"),
      "copy it again");
  const int version = start[6];
  SINTER_CHECK(version >= 1 && version <= 3, data,
      cat("npy: unknown version: ", name, "; ", version, ".", int{start[7]},
          ", allowed 1.0 to 3.0"));
  uint32_t length = start[8] | uint32_t{start[9]} << 8;
  if (version > 1) {
    SINTER_CHECK(source.read(std::span(start + 10, 2)) == 2, data,
        cat("npy: cut short: ", name, "; the file has less than 12 bytes"), "copy it again");
    length |= uint32_t{start[10]} << 16 | uint32_t{start[11]} << 24;
  }
  SINTER_CHECK(length <= kMaxHeader, data,
      cat("npy: header too long: ", name, "; ", length, " bytes, at most ", kMaxHeader));
  const std::vector<uint8_t> text = source.read_up_to(length);
  SINTER_CHECK(text.size() == length, data,
      cat("npy: cut short: ", name, "; header promises ", length, " bytes, file has ", text.size()),
      "copy it again");

  const Header header({reinterpret_cast<const char*>(text.data()), text.size()}, name);
  NpyArray out{parse_descr(*header.descr, name), *header.shape, {}, name};
  // With one dim or none both orders are the same.
  SINTER_CHECK(!*header.fortran_order || out.dims.size() < 2, data,
      cat("npy: column order: ", name, "; fortran_order is True"), "np.ascontiguousarray(x)");
  uint64_t promised = size_of(out.dtype);
  bool fits = true;
  for (const int64_t dim : out.dims)
    fits = fits && !__builtin_mul_overflow(promised, static_cast<uint64_t>(dim), &promised);
  const std::string promise = cat(name_of(out.dtype), shape_text(out.dims));
  SINTER_CHECK(fits && promised <= kMaxBytes, data,
      cat("npy: too large: ", name, "; header promises ", promise, ", at most ", kMaxBytes,
          " bytes"));
  const uint64_t before = (version > 1 ? 12 : 10) + length;
  const auto check_length = [&](uint64_t has) {
    const std::string facts =
        cat(name, "; header promises ", promise, " = ", promised, " bytes, file has ", has);
    SINTER_CHECK(has >= promised, data, cat("npy: cut short: ", facts), "copy it again");
    SINTER_CHECK(has == promised, data,
        cat("npy: bytes after the end: ", facts, source.is_gzip() ? " or more" : ""),
        "copy it again");
  };
  if (source.raw_size()) check_length(*source.raw_size() - std::min(before, *source.raw_size()));
  out.bytes = source.read_up_to(promised);
  uint8_t extra;
  check_length(
      out.bytes.size() + (out.bytes.size() == promised ? source.read(std::span(&extra, 1)) : 0));
  return out;
}

Tensor read_npy_images(const std::string& path) {
  NpyArray array = read_npy(path);
  std::vector<int64_t> dims = array.dims;
  if (dims == std::vector<int64_t>{kImageSide, kImageSide}) dims.insert(dims.begin(), 1);
  const bool rows = dims.size() == 2 && dims[1] == kImagePixels;
  const bool squares = dims.size() == 3 && dims[1] == kImageSide && dims[2] == kImageSide;
  const bool pixels = array.dtype == DType::u8 || array.dtype == DType::f32;
  SINTER_CHECK((rows || squares) && dims[0] > 0 && pixels, data,
      cat("npy: not images: ", array.name, "; it is ", name_of(array.dtype), shape_text(array.dims),
          ", wanted u8 or f32 [N, 28, 28] or [N, 784]"),
      "x.reshape(-1, 28, 28)");
  Tensor images = Tensor::empty({dims[0], kImageSide, kImageSide}, DType::u8);
  uint8_t* to = images.data<uint8_t>();
  if (array.dtype == DType::u8) {
    std::memcpy(to, array.bytes.data(), array.bytes.size());
    return images;
  }
  for (int64_t i = 0; i < images.numel(); ++i) {
    float value;
    std::memcpy(&value, &array.bytes[static_cast<size_t>(i) * sizeof value], sizeof value);
    SINTER_CHECK(value >= 0 && value <= 1, data,  // no NaN is
        cat("npy: pixel out of range: ", value, " in image ", i / kImagePixels, " of ", array.name,
            "; f32 pixels are 0..1"),
        "x / 255, before any normalization");
    to[i] = static_cast<uint8_t>(std::lround(value * 255));
  }
  return images;
}

Tensor read_npy_labels(const std::string& path) {
  const NpyArray array = read_npy(path);
  SINTER_CHECK(array.dims.size() == 1 && array.dims[0] > 0 && array.dtype != DType::f32, data,
      cat("npy: not labels: ", array.name, "; it is ", name_of(array.dtype), shape_text(array.dims),
          ", wanted u8, i32 or i64 [N]"),
      "y.astype(np.int64).reshape(-1)");
  Tensor labels = Tensor::empty({array.dims[0]}, DType::i32);
  const size_t size = size_of(array.dtype);
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const uint8_t* from = &array.bytes[static_cast<size_t>(i) * size];
    int64_t value = *from;
    if (array.dtype == DType::i32) {
      int32_t narrow;
      std::memcpy(&narrow, from, size);
      value = narrow;
    }
    if (array.dtype == DType::i64) std::memcpy(&value, from, size);
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    SINTER_CHECK(value >= 0 && value <= kMax, data,
        cat("npy: label out of range: ", value, " at item ", i, " of ", array.name, "; allowed 0..",
            kMax));
    labels.data<int32_t>()[i] = static_cast<int32_t>(value);
  }
  return labels;
}

}  // namespace sinter
