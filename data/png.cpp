#include "data/png.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "core/file_start.h"
#include "data/bytes.h"

namespace sinter {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{128} << 20;

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

// One channel.
struct Raster {
  int width, height;
  std::vector<float> values = std::vector<float>(size_t(width) * height);
  float& at(int x, int y) { return values[size_t(y) * width + x]; }
};

// Mean of the outermost rows and columns.
float border_mean(Raster& v) {
  double sum = 0;
  for (int x = 0; x < v.width; ++x) sum += v.at(x, 0) + v.at(x, v.height - 1);
  for (int y = 0; y < v.height; ++y) sum += v.at(0, y) + v.at(v.width - 1, y);
  return float(sum / (2.0 * (v.width + v.height)));
}

// Each row as the means over `parts` equal parts of it, and turned: done twice, it scales both.
Raster squeezed(Raster in, int parts) {
  Raster out{in.height, parts};
  const double step = double(in.width) / parts;
  for (int i = 0; i < parts; ++i) {
    const double begin = i * step, end = std::min<double>(begin + step, in.width);
    for (int y = 0; y < in.height; ++y) {
      double sum = 0;
      for (int k = int(begin); k < end; ++k)
        sum += in.at(k, y) * (std::min(end, k + 1.0) - std::max(begin, 1.0 * k));
      out.at(y, i) = float(sum / (end - begin));
    }
  }
  return out;
}

// Takes out the chunks that say which light a pixel's number stands for.
void drop_colour_chunks(std::vector<uint8_t>& file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length =
        size_t{file[at]} << 24 | file[at + 1] << 16 | file[at + 2] << 8 | file[at + 3];
    const std::string type(&file[at + 4], &file[at + 8]);
    const size_t end = at + 12 + length;
    if (end > file.size()) return;
    if (type == "gAMA" || type == "cHRM" || type == "sRGB" || type == "iCCP") {
      file.erase(file.begin() + ptrdiff_t(at), file.begin() + ptrdiff_t(end));
    } else {
      at = end;
    }
  }
}

}  // namespace

PngImage read_png(const std::string& path, int channels, bool raw) {
  ByteSource source(path);
  std::vector<uint8_t> file = source.read_up_to(kMaxFileBytes);
  const std::string& name = source.name();
  constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  SINTER_CHECK(file.size() >= 8 && std::equal(kSignature, kSignature + 8, file.begin()), data,
      str("png: not a PNG image: ", name, "; ", describe_start(file)), "convert it to PNG first");
  if (raw) drop_colour_chunks(file);
  constexpr uint32_t kMaxSide = 4096;
  png_image png{.version = PNG_IMAGE_VERSION};
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&png, png_image_free);
  const auto check = [&](int good) {
    SINTER_CHECK(
        good, data, str("png: damaged: ", name, "; ", escaped(png.message)), "save it again");
  };
  check(png_image_begin_read_from_memory(&png, file.data(), file.size()));
  SINTER_CHECK(png.width <= kMaxSide && png.height <= kMaxSide, data,
      str("png: too large: ", name, "; ", png.width, " x ", png.height, ", at most ", kMaxSide,
          " x ", kMaxSide));
  constexpr size_t kDepth = 24, kInterlaced = 28;  // bytes of the file
  SINTER_CHECK(file[kDepth] < 16 || !file[kInterlaced], data,
      str("png: interlaced and of 16 bits a channel, which libpng mixes up: ", name),
      "save it without interlacing, or with 8 bits a channel");
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  png.format = channels == 3 ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(png));
  check(png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr));
  return {int(png.width), int(png.height), flatten(pixels, size_t(channels)), name, channels};
}

ImagePixels prepare_digit(const PngImage& image, const ImageShape& size) {
  const int out_width = int(size.width), out_height = int(size.height),
            ink_side = std::max(1, std::min(out_width, out_height) * 20 / 28);
  Raster v{image.width, image.height, {image.pixels.begin(), image.pixels.end()}};
  float ground = border_mean(v), peak = 0;
  if (ground > 127.5f) {
    for (float& x : v.values) x = 255.0f - x;
    ground = 255.0f - ground;
  }
  for (float& x : v.values) peak = std::max(peak, x = std::max(x - ground, 0.0f));
  SINTER_CHECK(peak >= 24, data,
      str("png: no ink: ", image.name, "; of ", v.width, " x ", v.height,
          " pixels none is more than ", int(peak), " of 255 from the border's mean; wanted 24"),
      "a digit is dark on light, or light on dark");

  int left = v.width, top = v.height, right = 0, bottom = 0;
  for (int y = 0; y < v.height; ++y) {
    for (int x = 0; x < v.width; ++x) {
      if (v.at(x, y) < peak / 4) continue;
      left = std::min(left, x);
      top = std::min(top, y);
      right = std::max(right, x + 1);
      bottom = y + 1;
    }
  }
  Raster ink{right - left, bottom - top};
  for (int y = 0; y < ink.height; ++y) std::copy_n(&v.at(left, top + y), ink.width, &ink.at(0, y));
  const int longer = std::max(ink.width, ink.height);
  const auto scaled = [&](int side) {
    return std::max(1, (side * ink_side + longer / 2) / longer);
  };
  Raster small = squeezed(squeezed(ink, scaled(ink.width)), scaled(ink.height));

  double mass = 0, mass_x = 0, mass_y = 0;
  for (int y = 0; y < small.height; ++y) {
    for (int x = 0; x < small.width; ++x) {
      mass += small.at(x, y);
      mass_x += small.at(x, y) * (x + 0.5);
      mass_y += small.at(x, y) * (y + 0.5);
    }
  }
  const auto offset = [mass](double moment, int side, int whole) {
    return std::clamp(int(std::lround(whole / 2.0 - moment / mass)), 0, whole - side);
  };
  const int x0 = offset(mass_x, small.width, out_width),
            y0 = offset(mass_y, small.height, out_height);
  const float white = 255.0f / *std::ranges::max_element(small.values);
  ImagePixels out(size_t(out_width) * out_height);
  for (int y = 0; y < small.height; ++y) {
    for (int x = 0; x < small.width; ++x)
      out[(y0 + y) * out_width + x0 + x] = uint8_t(std::lround(small.at(x, y) * white));
  }
  return out;
}

ImagePixels scaled_image(const PngImage& image, const ImageShape& size) {
  ImagePixels out;
  for (int c = 0; c < image.channels; ++c) {
    Raster plane{image.width, image.height};
    for (size_t i = 0; i < plane.values.size(); ++i)
      plane.values[i] = image.pixels[i * image.channels + c];
    for (const float v : squeezed(squeezed(plane, int(size.width)), int(size.height)).values)
      out.push_back(uint8_t(std::lround(v)));
  }
  return out;
}

ImagePixels raw_image(const PngImage& image, const ImageShape& size) {
  const ImageShape is{image.channels, image.height, image.width};
  SINTER_CHECK(is == size, data,
      str("png: not ", size.str(), ": ", image.name, "; it is ", is.str()),
      size.channels == 1 ? "prepare_digit scales and centres it" : "scaled_image scales it");
  return scaled_image(image, size);
}

}  // namespace sinter
