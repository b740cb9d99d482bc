#include "nn/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>

#include "autograd/autograd.h"
#include "core/classic.h"
#include "core/crc32.h"
#include "core/file_start.h"
#include "core/json.h"
#include "ops/ops.h"

namespace sinter::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");
constexpr const char *kCrcKey = "sinter.crc32", *kMetadataKey = "__metadata__";
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxTensors = 65'536, kMaxTexts = 4096, kMaxName = 512;

struct FileType {
  std::string_view name;
  int64_t bytes;
  DType loaded;  // as what it is read
  bool same;     // bytes are taken as they are
  bool left_out = false;
};
constexpr FileType kTypes[] = {{"F64", 8, DType::f64, true}, {"F32", 4, DType::f32, true},
    {"F16", 2, DType::f32, false}, {"BF16", 2, DType::bf16, true}, {"I64", 8, DType::i64, true},
    {"I32", 4, DType::i32, true}, {"U8", 1, DType::u8, true},
    // Of tensors beside the weights, masks say; nothing is computed in these types.
    {"BOOL", 1, {}, false, true}, {"I8", 1, {}, false, true}, {"I16", 2, {}, false, true},
    {"U16", 2, {}, false, true}, {"U32", 4, {}, false, true}, {"U64", 8, {}, false, true}};

// How a tensor of ours is written.
std::string_view type_name(DType dtype) {
  return std::ranges::find_if(kTypes, [&](const FileType& type) {
    return type.same && type.loaded == dtype;
  })->name;
}

[[noreturn]] void refuse(
    const std::string& what, const std::string& file, const std::string& facts) {
  throw Error(Error::Kind::checkpoint, sinter::str("safetensors: ", what, ": ", file, "; ", facts));
}

// A tensor as the header has it.
struct HeaderEntry {
  std::string name, dtype;
  std::vector<int64_t> dims;
  std::array<uint64_t, 2> range{};  // in the data part
  const FileType* type = nullptr;
  SINTER_FIELD_LIST(dtype, named("shape", dims), named("data_offsets", range))

  Shape shape() const { return Shape(std::span(dims)); }
  std::string text() const {
    return sinter::str(escaped(name), " [", range[0], ", ", range[1], ")");
  }
};

// The JSON of a header, each tensor and the metadata checked as soon as they are read: a tree of
// all would keep the last of two equal keys silently, and could become as large as a file likes.
// Depth 1 is the list of tensors, 2 a tensor or the metadata, 3 its shape or range.
struct HeaderReader {
  const std::string& file;
  std::vector<HeaderEntry> entries;
  Metadata metadata;
  std::string name;                   // of the tensor that is read
  std::set<std::string> names, keys;  // of all tensors so far; of this one
  int64_t items = 0;                  // of its list

  HeaderReader(std::string_view json, const std::string& path) : file(path) {
    const auto take = [this](int depth, Json::parse_event_t event, Json& found) {
      using enum Json::parse_event_t;
      if (event == object_start || event == array_start) {
        if (depth > 2) {
          refuse("header has the wrong form", file,
              sinter::str("an array or an object in ", escaped(name), ", at depth ", depth + 1));
        }
        if (event == object_start) keys.clear();
        items = 0;
      } else if (event == key) {
        take_key(depth, found.get<std::string>());
      } else if (depth == 3 && ++items > kMaxRank) {
        refuse("too many dims", file, sinter::str(escaped(name), " has more than ", kMaxRank));
      } else if (depth == 1) {
        take_entry(found);
        return false;  // the tree does without it
      }
      return true;
    };
    try {
      const Json none = Json::parse(json, take);
    } catch (const Json::parse_error& error) {
      const std::string_view text = error.what();
      refuse("header is not JSON", file,
          sinter::str("at byte ", error.byte, ": ", escaped(text.substr(text.find(']') + 1, 200))));
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::data) throw;
      refuse("header has the wrong form", file, error.message());
    }
  }

  void take_key(int depth, const std::string& key) {
    if (depth == 1) name = key;
    const bool in_metadata = depth == 2 && name == kMetadataKey;
    if (depth == 1 && key.size() > kMaxName)
      refuse("name too long", file, sinter::str(key.size(), " bytes, at most ", kMaxName));
    if (!(depth == 1 ? names : keys).insert(key).second) {
      refuse("key given twice", file,
          sinter::str(escaped(key.substr(0, kMaxName)), depth == 1 ? "" : " in " + escaped(name)));
    }
    if (names.size() > kMaxTensors)
      refuse("too many tensors", file, sinter::str("more than ", kMaxTensors));
    if (in_metadata && keys.size() > kMaxTexts)
      refuse("too much metadata", file, sinter::str("more than ", kMaxTexts, " texts"));
    if (depth == 2 && !in_metadata &&
        std::ranges::find(kKeysOf<HeaderEntry>, key) == kKeysOf<HeaderEntry>.end()) {
      refuse("unknown key", file,
          sinter::str(escaped(key.substr(0, 40)), " in ", escaped(name), "; known are ",
              join(kKeysOf<HeaderEntry>)));
    }
  }

  void take_entry(const Json& value) {
    if (name == kMetadataKey) {
      if (!value.is_object())
        sinter::detail::refuse_json(value, kMetadataKey, "an object of texts");
      for (const auto& [key, text] : value.items())
        read_json(text, metadata[key], sinter::str(kMetadataKey, ".", escaped(key)));
      return;
    }
    HeaderEntry& e = entries.emplace_back(HeaderEntry{.name = name});
    read_json(value, e, escaped(name));
    e.type = std::ranges::find(kTypes, e.dtype, &FileType::name);
    if (e.type == std::end(kTypes)) {
      refuse("unknown element type", file,
          sinter::str(escaped(name), " is ", escaped(e.dtype.substr(0, 40)),
              "; known are F64 F32 F16 BF16 I64 I32 U8"));
    }
    // A size of 0 does not excuse the others: strides are products of them.
    int64_t bytes = 8;
    for (const int64_t dim : e.dims) {
      if (dim < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes)) {
        refuse("bad shape", file,
            sinter::str(escaped(name), " is [", join(e.dims),
                "]; sizes are 0 or more, together less than 2^63 bytes"));
      }
    }
  }
};

// The tensors in the order of their data, whose ranges cover it exactly.
void check_ranges(std::vector<HeaderEntry>& entries, uint64_t data_bytes, const std::string& file) {
  std::ranges::sort(entries, {}, [](const HeaderEntry& e) { return std::tie(e.range, e.name); });
  uint64_t covered = 0;
  std::string before;
  for (const HeaderEntry& e : entries) {
    const auto [begin, end] = e.range;
    const uint64_t bytes = uint64_t(e.shape().numel() * e.type->bytes);
    if (begin > end || end > data_bytes)
      refuse("bad range", file, sinter::str(e.text(), " of ", data_bytes, " bytes of data"));
    if (end - begin != bytes) {
      refuse("range does not fit the shape", file,
          sinter::str(e.text(), " is ", end - begin, " bytes, ", e.dtype, e.shape().str(),
              " takes ", bytes));
    }
    if (begin < covered) refuse("ranges overlap", file, sinter::str(before, " and ", e.text()));
    if (begin > covered) {
      refuse("gap in the data", file,
          sinter::str("[", covered, ", ", begin, ") before ", e.text(), " belongs to no tensor"));
    }
    covered = end;
    before = e.text();
  }
  if (covered != data_bytes)
    refuse("bytes behind the last tensor", file,
        sinter::str("tensors end at ", covered, ", data at ", data_bytes));
}

// An open file of known size.
struct InputFile {
  explicit InputFile(const std::string& path) : name(shown(path)) {
    std::error_code error;
    size = std::filesystem::file_size(path, error);  // an error for all but plain files
    if (!error) file.open(path, std::ios::binary);
    if (!error && !file) error = {errno, std::generic_category()};
    SINTER_CHECK(!error, checkpoint,
        sinter::str("checkpoint: cannot read: ", name, "; ", error_text(error.value())));
  }
  // What follows.
  void read(void* to, uint64_t n) {
    file.read(static_cast<char*>(to), std::streamsize(n));
    SINTER_CHECK(file, checkpoint,
        sinter::str("checkpoint: cannot read: ", name, "; it ends early, though it had ", size,
            " bytes when it was opened"));
  }

  const std::string name;
  uint64_t size = 0;
  ClassicStream<std::ifstream> file;
};

// A file that does not begin as safetensors do.
[[noreturn]] void refuse_start(InputFile& file, const std::string& facts) {
  uint8_t bytes[24] = {};
  const size_t n = std::min<uint64_t>(sizeof bytes, file.size);
  file.file.seekg(0);
  file.read(bytes, n);
  const std::string start = describe_start({bytes, n});
  // torch.save() writes a zip archive of pickles, and once wrote a bare one.
  const bool pickle = start.ends_with("a zip archive") || start.ends_with("a pickle");
  throw Error(Error::Kind::checkpoint,
      sinter::str("safetensors: not a safetensors file: ", file.name, "; ", facts, "; it ", start,
          pickle ? ", as torch.save() writes" : ""),
      pickle ? "in Python: safetensors.torch.save_file(net.state_dict(), \"net.safetensors\")"
             : "");
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) {
  InputFile file(path);
  if (file.size < 8)
    refuse_start(
        file, sinter::str("it has ", file.size, " bytes, the header length alone takes 8"));
  uint64_t length = 0;
  file.read(&length, 8);
  const uint64_t longest = std::min(kMaxHeader, file.size - 8);
  if (length > longest)
    refuse_start(file, sinter::str("header length is ", length, ", at most ", longest,
                           " in a file of ", file.size, " bytes"));
  std::string json(length, '\0');
  file.read(json.data(), length);
  if (!json.starts_with('{'))
    refuse_start(file, sinter::str("the header of ", length, " bytes does not begin with {"));
  HeaderReader header(json, file.name);
  check_ranges(header.entries, file.size - 8 - length, file.name);

  SafetensorsFile out;
  uint32_t crc = 0;
  std::vector<std::string> halves, left_out;
  for (HeaderEntry& e : header.entries) {
    const uint64_t bytes = e.range[1] - e.range[0];
    if (e.type->left_out) {
      std::vector<char> unread(bytes);
      file.read(unread.data(), bytes);
      crc = crc32(unread.data(), bytes, crc);
      left_out.push_back(sinter::str(escaped(e.name), " is ", e.dtype));
      continue;
    }
    const Tensor t = Tensor::empty(e.shape(), e.type->loaded);
    std::vector<uint16_t> raw(e.type->same ? 0 : size_t(t.numel()));
    void* const to = e.type->same ? t.raw() : raw.data();
    file.read(to, bytes);
    crc = crc32(to, bytes, crc);
    if (!e.type->same) {
      const auto from_half = [](uint16_t bits) { return float(std::bit_cast<_Float16>(bits)); };
      std::ranges::transform(raw, t.data<float>(), from_half);
      halves.push_back(escaped(e.name));
    }
    out.tensors.push_back({std::move(e.name), t});
  }
  const auto note = [&out](const std::string& what, const std::vector<std::string>& of) {
    const size_t more = of.size() - 1;
    if (!of.empty())
      out.notes.push_back(
          sinter::str(what, of[0], more ? sinter::str(" and ", more, " more") : ""));
  };
  note("converted F16 to f32: ", halves);
  note("left out, as no weight has such a type: ", left_out);
  if (const auto found = header.metadata.find(kCrcKey); found != header.metadata.end()) {
    const std::string actual = fmt::format("{:08x}", crc);
    SINTER_CHECK(found->second == actual, checkpoint,
        sinter::str("checkpoint: damaged: ", file.name, "; crc32 of the data is ", actual,
            ", header says ", escaped(found->second.substr(0, 40))));
    out.crc_checked = true;
  }
  out.metadata = std::move(header.metadata);
  return out;
}

void write_safetensors(const std::string& path, const NamedTensors& tensors, Metadata metadata,
    const FileCalls& calls) {
  const NoGrad no_grad;
  NamedTensors sorted;
  for (const auto& [name, tensor] : tensors) {
    SINTER_CHECK(!name.empty() && name.size() <= kMaxName && name != kMetadataKey, usage,
        sinter::str("checkpoint: a name that the format refuses: ", escaped(name), "; 1..",
            kMaxName, " bytes"));
    sorted.push_back({name, tensor.device() == kCpu ? contiguous(tensor) : tensor.to(kCpu)});
  }
  std::ranges::sort(sorted, [](const NamedTensor& a, const NamedTensor& b) {
    const size_t size_a = size_of(a.tensor.dtype()), size_b = size_of(b.tensor.dtype());
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  uint32_t crc = 0;
  for (const auto& [_, t] : sorted) crc = crc32(t.raw(), size_t(bytes_of(t)), crc);
  metadata[kCrcKey] = fmt::format("{:08x}", crc);

  Json header;
  header[kMetadataKey] = metadata;
  int64_t offset = 0;
  for (const auto& [name, t] : sorted) {
    SINTER_CHECK(!header.contains(name), usage,
        sinter::str("checkpoint: two tensors are called ", escaped(name)));
    const auto begin = uint64_t(offset);
    header[name] = HeaderEntry{.dtype = std::string(type_name(t.dtype())),
        .dims = {t.shape().begin(), t.shape().end()},
        .range = {begin, begin + uint64_t(bytes_of(t))}};
    offset += bytes_of(t);
  }
  std::string text = json_text(header);
  text.resize((8 + text.size() + 63) / 64 * 64 - 8, ' ');
  const uint64_t length = text.size();

  AtomicFile file(path, "checkpoint", calls);
  file.write(&length, 8);
  file.write(text);
  for (const auto& [_, t] : sorted) file.write(t.raw(), size_t(bytes_of(t)));
  file.commit();
}

}  // namespace sinter::nn
