#include "nn/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "autograd/autograd.h"
#include "core/file_start.h"
#include "core/json.h"
#include "nn/crc32.h"
#include "nn/safetensors_header.h"
#include "ops/ops.h"

namespace sinter::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");
constexpr const char* kCrcKey = "sinter.crc32";

// An open file of known size.
class InputFile {
 public:
  explicit InputFile(const std::string& path) : name_(shown(path)) {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);  // an error for all but plain files
    if (!error) file_.open(path, std::ios::binary);
    if (!error && !file_) error = {errno, std::generic_category()};
    SINTER_CHECK(
        !error, checkpoint, cat("checkpoint: cannot read: ", name_, "; ", error.message()));
  }

  uint64_t size() const { return size_; }
  const std::string& name() const { return name_; }
  void read(void* to, uint64_t n, uint64_t offset) {
    file_.seekg(std::streamoff(offset));
    file_.read(static_cast<char*>(to), std::streamsize(n));
    SINTER_CHECK(file_, checkpoint,
        cat("checkpoint: cannot read: ", name_, "; no ", n, " bytes at byte ", offset,
            ", though it had ", size_, " when it was opened"));
  }

 private:
  std::string name_;
  std::ifstream file_;
  uint64_t size_ = 0;
};

// A file that does not begin as safetensors do.
[[noreturn]] void refuse_start(InputFile& file, const std::string& facts) {
  uint8_t bytes[24] = {};
  const size_t n = std::min<uint64_t>(sizeof bytes, file.size());
  file.read(bytes, n, 0);
  const std::string start = describe_start({bytes, n});
  // torch.save() writes a zip archive of pickles, and once wrote a bare one.
  const bool pickle = start.ends_with("a zip archive") || start.ends_with("a pickle");
  throw Error(Error::Kind::checkpoint,
      cat("safetensors: not a safetensors file: ", file.name(), "; ", facts, "; it ", start,
          pickle ? ", as torch.save() writes" : ""),
      pickle ? "in Python: safetensors.torch.save_file(net.state_dict(), \"net.safetensors\")"
             : "");
}

float from_half(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 31u,
                 fraction = bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  const float magnitude = exponent == 0
                              ? float(fraction) * 0x1p-24f
                              : std::bit_cast<float>((exponent + 112) << 23 | fraction << 13);
  return sign ? -magnitude : magnitude;
}

// F16 values as f32: we compute in no half type but bf16.
void widen_halves(const Tensor& to, const std::vector<char>& raw) {
  for (int64_t i = 0; i < to.numel(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, raw.data() + size_t(i) * sizeof bits, sizeof bits);
    to.data<float>()[i] = from_half(bits);
  }
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) {
  InputFile file(path);
  if (file.size() < 8)
    refuse_start(file, cat("it has ", file.size(), " bytes, the header length alone takes 8"));
  uint64_t length = 0;
  file.read(&length, 8, 0);
  const uint64_t longest = std::min(detail::kMaxHeader, file.size() - 8);
  if (length > longest)
    refuse_start(file, cat("header length is ", length, ", at most ", longest, " in a file of ",
                           file.size(), " bytes"));
  char first = 0;
  if (length > 0) file.read(&first, 1, 8);
  if (first != '{')
    refuse_start(file, cat("the header of ", length, " bytes does not begin with {"));
  std::string json(length, '\0');
  file.read(json.data(), length, 8);
  detail::Header header = detail::parse_header(json, file.size() - 8 - length, file.name());

  SafetensorsFile out;
  uint32_t crc = 0;
  int64_t halves = 0;
  std::string first_half;
  for (detail::HeaderEntry& e : header.entries) {
    const Tensor t = Tensor::empty(e.shape, e.type->loaded);
    const uint64_t bytes = e.end - e.begin, offset = 8 + length + e.begin;
    if (e.type->same) {
      file.read(t.raw(), bytes, offset);
      crc = crc32(t.raw(), bytes, crc);
    } else {
      std::vector<char> raw(bytes);
      file.read(raw.data(), bytes, offset);
      crc = crc32(raw.data(), bytes, crc);
      widen_halves(t, raw);
      if (halves++ == 0) first_half = e.name;
    }
    out.tensors.push_back({std::move(e.name), t});
  }
  if (halves > 0) {
    out.notes.push_back(cat("converted F16 to f32: ", escaped(first_half),
        halves > 1 ? cat(" and ", halves - 1, " more") : ""));
  }
  if (const auto found = header.metadata.find(kCrcKey); found != header.metadata.end()) {
    const std::string actual = fmt::format("{:08x}", crc);
    SINTER_CHECK(found->second == actual, checkpoint,
        cat("checkpoint: damaged: ", file.name(), "; crc32 of the data is ", actual,
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
    SINTER_CHECK(!name.empty() && name.size() <= detail::kMaxName && name != "__metadata__", usage,
        cat("checkpoint: a name that the format refuses: ", escaped(name), "; 1..",
            detail::kMaxName, " bytes"));
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
  header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& [name, t] : sorted) {
    SINTER_CHECK(
        !header.contains(name), usage, cat("checkpoint: two tensors are called ", escaped(name)));
    header[name] = {{"dtype", detail::file_type_name(t.dtype())},
        {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
        {"data_offsets", {offset, offset + bytes_of(t)}}};
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
