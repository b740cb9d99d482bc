#include "nn/safetensors_header.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace sinter::nn::detail {
namespace {

constexpr FileType kTypes[] = {{"F64", 8, DType::f64, true}, {"F32", 4, DType::f32, true},
    {"F16", 2, DType::f32, false}, {"BF16", 2, DType::bf16, true}, {"I64", 8, DType::i64, true},
    {"I32", 4, DType::i32, true}, {"U8", 1, DType::u8, true}};

[[noreturn]] void refuse(
    const std::string& what, const std::string& file, const std::string& facts) {
  throw Error(Error::Kind::checkpoint, cat("safetensors: ", what, ": ", file, "; ", facts));
}

// Takes the JSON event by event, so that nothing is stored which the format does not have: a tree
// would keep the last of two equal keys silently. Depth 1 is the list of tensors, 2 a tensor or the
// metadata, 3 its shape or range.
class Reader : public nlohmann::json_sax<nlohmann::ordered_json> {
 public:
  explicit Reader(const std::string& file) : file_(file) {}
  Header header;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(number_integer_t value) override {
    return unexpected(cat("the negative number ", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(
        cat("the number ", escaped(text.substr(0, 40)), " that is no unsigned 64-bit integer"));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return unexpected(cat("the number ", value));
    if (field_ == "shape") {
      if (dims_.size() == kMaxRank)
        refuse("too many dims", file_, cat(here(), " has more than ", kMaxRank));
    } else if (dims_.size() == 2) {
      refuse("bad range", file_, cat("data_offsets of ", here(), " has more than 2 numbers"));
    }
    dims_.push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2 || (!in_metadata_ && field_ != "dtype")) return unexpected("a text");
    if (in_metadata_) {
      if (header.metadata.size() == kMaxTensors)
        refuse("too much metadata", file_, cat("more than ", kMaxTensors, " texts"));
      header.metadata[field_] = std::move(value);
    } else {
      entry().type = file_type(value);
      if (!entry().type) {
        refuse("unknown element type", file_,
            cat(here(), " is ", escaped(value.substr(0, 40)),
                "; known are F64 F32 F16 BF16 I64 I32 U8"));
      }
    }
    return true;
  }
  bool start_object(size_t) override {
    if (++depth_ > 2) return unexpected("an object");
    fields_.clear();
    field_.clear();
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      if (name.size() > kMaxName)
        refuse("name too long", file_, cat(name.size(), " bytes, at most ", kMaxName));
      if (!names_.insert(name).second) refuse("key given twice", file_, escaped(name));
      in_metadata_ = name == "__metadata__";
      if (in_metadata_) return true;
      if (header.entries.size() == kMaxTensors)
        refuse("too many tensors", file_, cat("more than ", kMaxTensors));
      header.entries.emplace_back().name = name;
      return true;
    }
    if (!fields_.insert(name).second)
      refuse("key given twice", file_, cat(escaped(name.substr(0, kMaxName)), " in ", here()));
    if (!in_metadata_ && name != "dtype" && name != "shape" && name != "data_offsets") {
      refuse("unknown key", file_,
          cat(escaped(name.substr(0, 40)), " in ", here(),
              "; known are dtype, shape, data_offsets"));
    }
    field_ = name;
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_ && fields_.size() != 3)
      refuse("incomplete", file_, cat(here(), " has not all of dtype, shape, data_offsets"));
    return true;
  }
  bool start_array(size_t) override {
    if (++depth_ != 3 || in_metadata_ || field_ == "dtype") return unexpected("a list");
    dims_.clear();
    return true;
  }
  bool end_array() override {
    --depth_;
    if (field_ == "shape") {
      set_shape();
    } else {
      if (dims_.size() != 2)
        refuse("bad range", file_,
            cat("data_offsets of ", here(), " has ", dims_.size(), " numbers, not 2"));
      entry().begin = dims_[0];
      entry().end = dims_[1];
    }
    return true;
  }
  bool parse_error(
      size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view text = error.what();
    refuse("header is not JSON", file_,
        cat("at byte ", position, ": ", escaped(text.substr(text.find(']') + 1, 200))));
  }

 private:
  HeaderEntry& entry() { return header.entries.back(); }
  std::string here() const {
    return in_metadata_             ? "__metadata__"
           : header.entries.empty() ? "the header"
                                    : escaped(header.entries.back().name);
  }
  bool unexpected(const std::string& what) {
    const std::string field =
        depth_ > 1 && !field_.empty() ? ", key " + escaped(field_.substr(0, 40)) : "";
    refuse("header has the wrong form", file_,
        cat(what, " in ", here(), field, ", at depth ", depth_));
  }
  void set_shape() {
    // A size of 0 does not excuse the others: strides are products of them.
    int64_t numel = 1, bytes = 0;
    bool empty = false;
    for (const uint64_t dim : dims_) {
      empty |= dim == 0;
      if (dim > INT64_MAX ||
          __builtin_mul_overflow(numel, int64_t(std::max<uint64_t>(dim, 1)), &numel) ||
          __builtin_mul_overflow(numel, 8, &bytes)) {
        refuse("shape overflows", file_,
            cat(here(), ", size ", entry().shape.rank(), " is ", dim,
                "; all together are more than 2^63 bytes"));
      }
      entry().shape.push_back(int64_t(dim));
    }
    entry().numel = empty ? 0 : numel;
  }

  const std::string& file_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string field_;
  std::vector<uint64_t> dims_;
  std::unordered_set<std::string> names_;
  std::set<std::string> fields_;
};

std::string range(const HeaderEntry& e) {
  return cat(escaped(e.name), " [", e.begin, ", ", e.end, ")");
}

}  // namespace

const FileType* file_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &FileType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string_view file_type_name(DType dtype) {
  return std::ranges::find_if(kTypes, [&](const FileType& type) {
    return type.same && type.loaded == dtype;
  })->name;
}

Header parse_header(std::string_view json, uint64_t data_bytes, const std::string& file) {
  Reader reader(file);
  nlohmann::ordered_json::sax_parse(json, &reader);
  std::vector<HeaderEntry>& entries = reader.header.entries;
  for (const HeaderEntry& e : entries) {
    const int64_t bytes = e.numel * e.type->bytes;
    if (e.begin > e.end || e.end > data_bytes)
      refuse("bad range", file, cat(range(e), " of ", data_bytes, " bytes of data"));
    if (e.end - e.begin != uint64_t(bytes)) {
      refuse("range does not fit the shape", file,
          cat(range(e), " is ", e.end - e.begin, " bytes, ", e.type->name, e.shape.str(), " takes ",
              bytes));
    }
  }
  std::ranges::sort(entries, [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const HeaderEntry* before = nullptr;
  for (const HeaderEntry& e : entries) {
    const uint64_t covered = before ? before->end : 0;
    if (e.begin < covered) refuse("ranges overlap", file, cat(range(*before), " and ", range(e)));
    if (e.begin > covered)
      refuse("gap in the data", file,
          cat("[", covered, ", ", e.begin, ") before ", range(e), " belongs to no tensor"));
    before = &e;
  }
  const uint64_t covered = before ? before->end : 0;
  if (covered != data_bytes)
    refuse("bytes behind the last tensor", file,
        cat("tensors end at ", covered, ", data at ", data_bytes));
  return std::move(reader.header);
}

}  // namespace sinter::nn::detail
