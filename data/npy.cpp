#include "data/npy.h"

#include <regex.h>

#include <algorithm>

#include "core/error.h"
#include "core/file_start.h"

namespace sinter {
namespace {

// Of a plain array np.save writes 118 bytes.
constexpr uint32_t kMaxHeader = 1024;

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order;
  std::vector<int64_t> dims;
};

// POSIX: a std::regex takes the compiler seconds.
regex_t dict_pattern() {
  const std::string item =
      R"((['"]descr['"]\s*:\s*['"]([^'"]*)['"])"
      R"(|['"]fortran_order['"]\s*:\s*(True|False))"
      R"(|['"]shape['"]\s*:\s*\(([0-9]{1,18}(\s*,\s*[0-9]{1,18}){0,7},?|)\))\s*)";
  const std::string dict =
      R"(^\s*\{\s*)" + item + R"(,\s*)" + item + R"(,\s*)" + item + R"(,?\s*\}\s*$)";
  regex_t pattern;
  regcomp(&pattern, dict.c_str(), REG_EXTENDED);
  return pattern;
}

// A Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }, with its keys
// in any order.
NpyHeader parse_header(const std::string& text, const std::string& file) {
  static const regex_t pattern = dict_pattern();
  constexpr int kItems = 3, kGroups = 5;  // of an item, the keys' values behind the first
  regmatch_t match[1 + kItems * kGroups];
  // Letters beyond ASCII are none to a pattern in one locale, and some in another.
  const bool is_dict = std::ranges::all_of(text, [](char c) { return c > 0 && c < 127; }) &&
                       regexec(&pattern, text.c_str(), std::size(match), match, 0) == 0;
  // Of three items each key must be one: then none is unknown or stands there twice.
  const auto value = [&](int key) {
    for (int i = 1 + key; is_dict && i <= kItems * kGroups; i += kGroups) {
      if (match[i].rm_so >= 0) return text.substr(match[i].rm_so, match[i].rm_eo - match[i].rm_so);
    }
    throw Error(Error::Kind::data,
        str("npy: bad header: ", file, "; \"", escaped(std::string_view(text).substr(0, 80)),
            "\"; a dict of descr, fortran_order and shape is wanted, as of a plain array"),
        "np.save(\"f.npy\", x)");
  };
  NpyHeader out{.descr = value(1), .fortran_order = value(2) == "True", .dims = {}};
  const std::string shape = value(3), digits = "0123456789";
  for (size_t at = 0; (at = shape.find_first_of(digits, at)) != std::string::npos;
       at = shape.find_first_not_of(digits, at))
    out.dims.push_back(std::stoll(shape.substr(at)));
  return out;
}

DType parse_descr(const std::string& descr, const std::string& file) {
  if (descr == "|u1" || descr == "<u1") return DType::u8;
  if (descr == "<i4") return DType::i32;
  if (descr == "<i8") return DType::i64;
  if (descr == "<f4") return DType::f32;
  throw Error(Error::Kind::data,
      str("npy: unsupported type: ", file, "; descr is ", escaped(descr),
          ", allowed |u1, <i4, <i8, <f4"),
      "x.astype(np.float32) for images, x.astype(np.int64) for labels");
}

}  // namespace

FileArray read_npy(const std::string& path) {
  ByteSource source(path);
  const std::string& name = source.name();
  const std::vector<uint8_t> start = source.read_up_to(8);
  SINTER_CHECK(start.size() >= 6 && std::memcmp(start.data(), "\x93NUMPY", 6) == 0, data,
      str("npy: not a NumPy file: ", name, "; ",
          describe_start(std::span(start).first(std::min<size_t>(start.size(), 6)))),
      "np.save makes one");
  const int version = start.size() == 8 ? start[6] : 1;
  SINTER_CHECK(version >= 1 && version <= 3, data,
      str("npy: unknown version: ", name, "; ", version, ".", int{start[7]},
          ", allowed 1.0 to 3.0"));
  const size_t length_bytes = version == 1 ? 2 : 4;
  const std::vector<uint8_t> length_field = source.read_up_to(length_bytes);
  uint32_t length = 0;
  for (size_t i = length_field.size(); i-- > 0;) length = length << 8 | length_field[i];
  SINTER_CHECK(length <= kMaxHeader, data,
      str("npy: header too long: ", name, "; ", length, " bytes, at most ", kMaxHeader));
  const std::vector<uint8_t> text = source.read_up_to(length);
  SINTER_CHECK(length_field.size() == length_bytes && text.size() == length, data,
      str("npy: cut short: ", name, "; the file ends in its header"), "copy it again");
  NpyHeader header = parse_header({text.begin(), text.end()}, name);
  // With one dim or none both orders are the same.
  SINTER_CHECK(!header.fortran_order || header.dims.size() < 2, data,
      str("npy: column order: ", name, "; fortran_order is True"), "np.ascontiguousarray(x)");
  return source.read_array("npy", parse_descr(header.descr, name), std::move(header.dims));
}

}  // namespace sinter
