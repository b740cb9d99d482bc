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
