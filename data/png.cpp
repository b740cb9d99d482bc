#include "data/png.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "core/file_start.h"
#include "data/bytes.h"

#ifdef SINTER_HAS_PNG
#include <png.h>
#endif

namespace sinter {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{128} << 20;

#ifdef SINTER_HAS_PNG
// Colours, whose last is alpha, onto the background that the ink stands out from.
std::vector<uint8_t> flatten(const std::vector<uint8_t>& pixels, size_t channels) {
  uint64_t weight = 0, sum = 0;
  const size_t n = pixels.size() / (channels + 1);
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* const p = &pixels[i * (channels + 1)];
    weight += channels * p[channels];
    for (size_t c = 0; c < channels; ++c) sum += uint64_t{p[c]} * p[channels];
  }
  const unsigned background = sum > weight * 127 ? 0 : 255;
  std::vector<uint8_t> out(n * channels);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint8_t* const p = &pixels[i / channels * (channels + 1)];
    const unsigned colour = p[i % channels], alpha = p[channels];
    out[i] = uint8_t((colour * alpha + background * (255 - alpha) + 127) / 255);
  }
  return out;
}
#endif

// Mean of the outermost rows and columns.
float border_mean(const std::vector<float>& v, int width, int height) {
  double sum = 0;
  for (int x = 0; x < width; ++x) sum += v[x] + v[size_t(height - 1) * width + x];
  for (int y = 0; y < height; ++y) sum += v[size_t(y) * width] + v[size_t(y) * width + width - 1];
  return float(sum / (2.0 * (width + height)));
}

struct Box {
  int x0, y0, x1, y1;
};

// out[i] = mean over the i-th of `n` equal parts of `length` samples that lie `stride` apart.
void average(const float* in, int length, int stride, float* out, int n, int out_stride) {
  const double step = double(length) / n;
  for (int i = 0; i < n; ++i) {
    const double begin = i * step, end = std::min<double>(begin + step, length);
    double sum = 0;
    for (int k = int(begin); k < end; ++k)
      sum += in[size_t(k) * stride] * (std::min(end, k + 1.0) - std::max(begin, 1.0 * k));
    out[i * out_stride] = float(sum / (end - begin));
  }
}

}  // namespace

PngImage read_png(const std::string& path, int channels) {
  ByteSource source(path);
  const std::vector<uint8_t> file = source.read_up_to(kMaxFileBytes);
  const std::string& name = source.name();
  constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  SINTER_CHECK(file.size() >= 8 && std::equal(kSignature, kSignature + 8, file.begin()), data,
      cat("png: not a PNG image: ", name, "; ", describe_start(file)), "convert it to PNG first");
#ifdef SINTER_HAS_PNG
  constexpr uint32_t kMaxSide = 4096;
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, decltype(&png_image_free)> owner(&png, png_image_free);
  const auto check = [&](int good) {
    SINTER_CHECK(
        good, data, cat("png: damaged: ", name, "; ", escaped(png.message)), "save it again");
  };
  check(png_image_begin_read_from_memory(&png, file.data(), file.size()));
  SINTER_CHECK(png.width <= kMaxSide && png.height <= kMaxSide, data,
      cat("png: too large: ", name, "; ", png.width, " x ", png.height, ", at most ", kMaxSide,
          " x ", kMaxSide));
  png.format = channels == 1 ? PNG_FORMAT_GA : PNG_FORMAT_RGBA;
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(png));
  check(png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr));
  return {int(png.width), int(png.height), flatten(pixels, size_t(channels)), name, channels};
#else
  throw Error(Error::Kind::not_built, cat("png: not in this build (libpng-dev): ", name),
      "an image of the test set needs no reader");
#endif
}

ImagePixels prepare_digit(const PngImage& image, const ImageShape& size) {
  const int out_width = int(size.width), out_height = int(size.height),
            ink_side = std::max(1, std::min(out_width, out_height) * 20 / 28);
  const int width = image.width, height = image.height;
  std::vector<float> v(image.pixels.begin(), image.pixels.end());
  float ground = border_mean(v, width, height);
  if (ground > 127.5f) {
    for (float& x : v) x = 255.0f - x;
    ground = 255.0f - ground;
  }
  float peak = 0;
  for (float& x : v) peak = std::max(peak, x = std::max(x - ground, 0.0f));
  SINTER_CHECK(peak >= 24, data,
      cat("png: no ink: ", image.name, "; ", width, " x ", height, ", the brightest pixel is ",
          int(peak), " of 255 above its border"));

  Box box{width, height, 0, 0};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      if (v[size_t(y) * width + x] < peak / 4) continue;
      box = {std::min(box.x0, x), std::min(box.y0, y), std::max(box.x1, x + 1),
          std::max(box.y1, y + 1)};
    }
  }
  const int w = box.x1 - box.x0, h = box.y1 - box.y0, longer = std::max(w, h);
  const auto scaled = [&](int side) {
    return std::max(1, (side * ink_side + longer / 2) / longer);
  };
  const int sw = scaled(w), sh = scaled(h);
  std::vector<float> narrow(size_t(h) * sw), small(size_t(sh) * sw);
  for (int y = 0; y < h; ++y)
    average(&v[size_t(box.y0 + y) * width + box.x0], w, 1, &narrow[size_t(y) * sw], sw, 1);
  for (int x = 0; x < sw; ++x) average(&narrow[x], h, sw, &small[x], sh, sw);

  double mass = 0, mass_x = 0, mass_y = 0;
  peak = 0;
  for (int y = 0; y < sh; ++y) {
    for (int x = 0; x < sw; ++x) {
      const float m = small[size_t(y) * sw + x];
      mass += m;
      mass_x += m * (x + 0.5);
      mass_y += m * (y + 0.5);
      peak = std::max(peak, m);
    }
  }
  const auto offset = [mass](double moment, int side, int whole) {
    return std::clamp(int(std::lround(whole / 2.0 - moment / mass)), 0, whole - side);
  };
  const int left = offset(mass_x, sw, out_width), top = offset(mass_y, sh, out_height);
  ImagePixels out(size_t(out_width) * out_height);
  for (int y = 0; y < sh; ++y)
    for (int x = 0; x < sw; ++x)
      out[(top + y) * out_width + left + x] =
          uint8_t(std::lround(small[size_t(y) * sw + x] * (255.0f / peak)));
  return out;
}

ImagePixels scaled_image(const PngImage& image, const ImageShape& size) {
  const int width = int(size.width), height = int(size.height);
  const std::vector<float> in(image.pixels.begin(), image.pixels.end());
  std::vector<float> narrow(size_t(image.height) * width), plane(size_t(height) * width);
  ImagePixels out;
  for (int c = 0; c < image.channels; ++c) {
    for (int y = 0; y < image.height; ++y)
      average(&in[size_t(y) * image.width * image.channels + c], image.width, image.channels,
          &narrow[size_t(y) * width], width, 1);
    for (int x = 0; x < width; ++x)
      average(&narrow[x], image.height, width, &plane[x], height, width);
    for (const float v : plane) out.push_back(uint8_t(std::lround(v)));
  }
  return out;
}

ImagePixels raw_image(const PngImage& image, const ImageShape& size) {
  const ImageShape is{image.channels, image.height, image.width};
  SINTER_CHECK(is == size, data,
      cat("png: not ", size.str(), ": ", image.name, "; it is ", is.str()),
      size.channels == 1 ? "prepare_digit scales and centres it" : "scaled_image scales it");
  return scaled_image(image, size);
}

}  // namespace sinter
