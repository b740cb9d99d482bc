#include "data/png.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <span>

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

// libpng with what its callbacks need. Not png_image_finish_read(), which is shorter: it mixes up
// the pixels of interlaced files of 16 bits.
struct PngReader {
  PngReader(std::span<const uint8_t> file, int channels) : left(file), channels(channels) {}
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  std::span<const uint8_t> left;  // of the file
  int channels;                   // wanted, beside alpha
  std::vector<uint8_t> pixels;
  char message[128] = "no memory";
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, ignore);
  png_infop info = png ? png_create_info_struct(png) : nullptr;

  [[noreturn]] static void fail(png_structp png, const char* message) {
    auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(reader.message, sizeof reader.message, "%s", message);
    png_longjmp(png, 1);
  }
  static void ignore(png_structp, const char*) {}
};

// False if libpng found a mistake: it jumps back here, past the destructors of all frames between,
// so `work` may leave none to be run while it is inside libpng.
bool run(PngReader& reader, void (*work)(PngReader&)) {
  if (!reader.info || setjmp(png_jmpbuf(reader.png))) return false;
  work(reader);
  return true;
}

void read_header(PngReader& reader) {
  png_set_read_fn(reader.png, &reader, [](png_structp png, png_bytep to, size_t n) {
    std::span<const uint8_t>& left = static_cast<PngReader*>(png_get_io_ptr(png))->left;
    if (n > left.size()) png_error(png, "it ends early");
    std::copy_n(left.begin(), n, to);
    left = left.subspan(n);
  });
  png_set_benign_errors(reader.png, 1);  // what does not touch the pixels is no error
  png_read_info(reader.png, reader.info);
}

// 8 bits a channel in sRGB, grey or red, green, blue as wanted, then alpha.
void read_pixels(PngReader& reader) {
  const png_structp png = reader.png;
  const png_infop info = reader.info;
  const int type = png_get_color_type(png, info);
  const bool in_colour = type & PNG_COLOR_MASK_COLOR,
             has_alpha = type & PNG_COLOR_MASK_ALPHA || png_get_valid(png, info, PNG_INFO_tRNS);
  png_set_expand(png);
  if (reader.channels == 3 && !in_colour) png_set_gray_to_rgb(png);
  if (reader.channels == 1 && in_colour) {
    png_set_rgb_to_gray_fixed(
        png, PNG_ERROR_ACTION_NONE, PNG_RGB_TO_GRAY_DEFAULT, PNG_RGB_TO_GRAY_DEFAULT);
  }
  png_set_alpha_mode_fixed(png, PNG_ALPHA_PNG, PNG_DEFAULT_sRGB);
  png_set_scale_16(png);
  if (!has_alpha) png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const size_t row = png_get_rowbytes(png, info), height = png_get_image_height(png, info);
  if (row != size_t(reader.channels + 1) * png_get_image_width(png, info))
    png_error(png, "its rows have another size than its header says");
  reader.pixels.resize(row * height);
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < height; ++y) png_read_row(png, &reader.pixels[y * row], nullptr);
  }
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

}  // namespace

PngImage read_png(const std::string& path, int channels) {
  ByteSource source(path);
  const std::vector<uint8_t> file = source.read_up_to(kMaxFileBytes);
  const std::string& name = source.name();
  constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  SINTER_CHECK(file.size() >= 8 && std::equal(kSignature, kSignature + 8, file.begin()), data,
      cat("png: not a PNG image: ", name, "; ", describe_start(file)), "convert it to PNG first");
  constexpr uint32_t kMaxSide = 4096;
  PngReader reader(file, channels);
  const auto check = [&](bool good) {
    SINTER_CHECK(
        good, data, cat("png: damaged: ", name, "; ", escaped(reader.message)), "save it again");
  };
  check(run(reader, read_header));
  const uint32_t width = png_get_image_width(reader.png, reader.info),
                 height = png_get_image_height(reader.png, reader.info);
  SINTER_CHECK(width <= kMaxSide && height <= kMaxSide, data,
      cat("png: too large: ", name, "; ", width, " x ", height, ", at most ", kMaxSide, " x ",
          kMaxSide));
  check(run(reader, read_pixels));
  return {int(width), int(height), flatten(reader.pixels, size_t(channels)), name, channels};
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
      cat("png: no ink: ", image.name, "; ", v.width, " x ", v.height, ", the brightest pixel is ",
          int(peak), " of 255 above its border"));

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
      cat("png: not ", size.str(), ": ", image.name, "; it is ", is.str()),
      size.channels == 1 ? "prepare_digit scales and centres it" : "scaled_image scales it");
  return scaled_image(image, size);
}

}  // namespace sinter
