#include "data/bytes.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/atomic_file.h"
#include "core/classic.h"
#include "core/error.h"
#include "core/numbers.h"
#include "data/digits.h"
#include "ops/ops.h"

namespace sinter {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

// What the dims of a file are as [N, C, H, W]; nothing if they are not of images.
std::optional<Shape> shape_of_images(const std::vector<int64_t>& dims) {
  constexpr int64_t kMaxChannels = 4;
  if (std::ranges::find(dims, 0) != dims.end()) return {};
  if (dims == std::vector<int64_t>{kImageSide, kImageSide})
    return Shape{1, 1, kImageSide, kImageSide};
  if (dims.size() == 2 && dims[1] == kImagePixels) return Shape{dims[0], 1, kImageSide, kImageSide};
  if (dims.size() == 3) return Shape{dims[0], 1, dims[1], dims[2]};
  if (dims.size() == 4 && dims[3] <= kMaxChannels) return Shape{dims[0], dims[3], dims[1], dims[2]};
  return {};
}

}  // namespace

std::string FileArray::describe() const { return str(name_of(dtype), "[", join(dims), "]"); }

Tensor FileArray::images() const {
  const std::optional<Shape> shape = shape_of_images(dims);
  SINTER_CHECK(shape && (dtype == DType::u8 || dtype == DType::f32), data,
      str("data: not images: ", name, "; it is ", describe(),
          ", wanted u8 or f32 [N, H, W], [N, H, W, C] with at most 4 channels, or [N, 784]"),
      dims.size() == 1 ? "labels? the images come first"
                       : "x.reshape(-1, H, W), x.transpose(0, 2, 3, 1)");
  const int64_t channels = (*shape)[1], pixels = (*shape)[2] * (*shape)[3];
  std::vector<uint8_t> scaled;
  if (dtype == DType::f32) {
    for (const float value : items<float>()) {
      SINTER_CHECK(value >= 0 && value <= 1, data,  // no NaN is
          str("data: pixel out of range: ", value, " in image ",
              int64_t(scaled.size()) / (channels * pixels), " of ", name, "; f32 pixels are 0..1"),
          "x / 255, before any normalization");
      scaled.push_back(uint8_t(std::lround(value * 255)));
    }
  }
  const std::vector<uint8_t>& levels = dtype == DType::f32 ? scaled : bytes;
  if (channels == 1) return Tensor::from(levels, *shape);
  const Tensor channels_last = Tensor::from(levels, {(*shape)[0], pixels, channels});
  return reshape(copy(transpose(channels_last)), *shape);
}

Tensor FileArray::labels() const {
  SINTER_CHECK(dims.size() == 1 && dims[0] > 0 && dtype != DType::f32, data,
      str("data: not labels: ", name, "; it is ", describe(), ", wanted u8, i32 or i64 [N]"),
      "y.astype(np.int64).reshape(-1)");
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> out;
  const auto add = [&](const auto& values) {
    for (const int64_t value : values) {
      SINTER_CHECK(value >= 0 && value <= kMax, data,
          str("data: label out of range: ", value, " at item ", out.size(), " of ", name,
              "; allowed 0..", kMax));
      out.push_back(int32_t(value));
    }
  };
  if (dtype == DType::u8) add(bytes);
  if (dtype == DType::i32) add(items<int32_t>());
  if (dtype == DType::i64) add(items<int64_t>());
  return Tensor::from(out, {dims[0]});
}

// zlib passes on what is no gzip as it is.
ByteSource::ByteSource(const std::string& path)
    : file_(gzopen(path.c_str(), "rbe"), gzclose), name_(shown(path)) {
  SINTER_CHECK(file_, data, str("data: cannot read: ", name_, "; ", error_text(errno)));
  gzbuffer(file_.get(), 128 * 1024);
  const bool raw = gzdirect(file_.get());
  check_stream();
  std::error_code ignored;
  if (raw && std::filesystem::is_regular_file(path, ignored))
    raw_size_ = std::filesystem::file_size(path, ignored);
}

// A cut file reads like a clean end: only this state tells, and gzclose would forget it.
void ByteSource::check_stream() const {
  int code = Z_OK;
  const std::string message = gzerror(file_.get(), &code);
  if (code == Z_OK || code == Z_STREAM_END) return;
  SINTER_CHECK(code != Z_ERRNO, data, str("data: cannot read: ", name_, "; ", error_text(errno)));
  const bool cut = code == Z_BUF_ERROR;
  throw Error(Error::Kind::data,
      str("gzip: ", cut ? "ends early: " : "damaged: ", name_, "; ", read_, " bytes unpacked, ",
          cut ? "no end mark" : "then " + message),
      "copy or download it again");
}

size_t ByteSource::read(std::span<uint8_t> to) {
  const size_t got = gzfread(to.data(), 1, to.size(), file_.get());
  read_ += got;
  if (got < to.size()) check_stream();
  return got;
}

std::vector<uint8_t> ByteSource::read_up_to(uint64_t n) {
  std::vector<uint8_t> out;
  // + 1: the end is seen without growing, and an empty file grows, too.
  const uint64_t first = raw_size_ ? *raw_size_ + 1 : kBlock;
  for (uint64_t have = 0; have < n;) {
    out.resize(std::min(n, std::max(first, 2 * have)));
    have += read(std::span(out).subspan(have));
    if (have == out.size()) continue;
    out.resize(have);
    break;
  }
  return out;
}

FileArray ByteSource::read_array(
    const std::string& format, DType dtype, std::vector<int64_t> dims) {
  FileArray out{dtype, std::move(dims), {}, name_};
  uint64_t promised = size_of(dtype);
  bool fits = true;
  for (const int64_t dim : out.dims)
    fits = fits && !__builtin_mul_overflow(promised, uint64_t(dim), &promised);
  std::string promise = str(name_, "; header promises ", out.describe());
  if (fits) promise += str(" = ", promised, " bytes");
  SINTER_CHECK(fits && promised <= kMaxBytes, data,
      str(format, ": too large: ", promise, ", at most ", kMaxBytes));
  const auto check = [&](uint64_t has, const char* at_least) {
    const std::string facts = str(promise, ", file has ", has);
    SINTER_CHECK(has >= promised, data, str(format, ": cut short: ", facts), "copy it again");
    SINTER_CHECK(has == promised, data, str(format, ": bytes after the end: ", facts, at_least),
        "copy it again");
  };
  if (raw_size_) check(*raw_size_ - std::min(read_, *raw_size_), "");
  out.bytes = read_up_to(promised + 1);
  check(out.bytes.size(), " or more");
  return out;
}

}  // namespace sinter
