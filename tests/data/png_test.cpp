#include "data/png.h"

#include <algorithm>

#include "tests/data/data_test_util.h"

namespace sinter {
namespace {

using test::Bytes;
using test::expect_error;
class PngTest : public testing::Test {
 protected:
  PngImage read(const Bytes& file) { return read_png(dir_.write("x.png", file)); }
  void SetUp() override { SKIP_IF_NOT_BUILT(read(test::png(1, 1, 1, {7}))); }
  test::TempDir dir_;
};

// A canvas of `ground` with a rectangle of `ink`.
PngImage canvas(
    int width, int height, uint8_t ground, uint8_t ink, int x0, int y0, int x1, int y1) {
  PngImage image{width, height, Bytes(size_t(width * height), ground), "canvas"};
  for (int y = y0; y < y1; ++y)
    std::fill(&image.pixels[y * width + x0], &image.pixels[y * width + x1], ink);
  return image;
}

TEST_F(PngTest, GreyIsReadAsItIs) {
  const Bytes pixels = test::pattern(28 * 28);
  const PngImage image = read(test::png(28, 28, 1, pixels));
  EXPECT_EQ(image.pixels, pixels);
  const ImagePixels raw = raw_image(image);
  EXPECT_TRUE(std::equal(raw.begin(), raw.end(), pixels.begin()));
}

// What a file says of its light: a viewer heeds it, and who asks for the bytes gets them.
TEST_F(PngTest, RawBytesAreThoseOfTheFileWhateverItSaysOfGamma) {
  const Bytes pixels = test::pattern(28 * 28), plain = test::png(28, 28, 1, pixels);
  const auto with = [&](std::string_view type, const Bytes& body) {
    const Bytes named = test::bytes_of(type) + body;
    const Bytes chunk =
        test::big32(uint32_t(body.size())) + named + test::big32(test::crc32(named));
    Bytes file = plain;
    constexpr ptrdiff_t kBehindHeader = 33;
    file.insert(file.begin() + kBehindHeader, chunk.begin(), chunk.end());
    return file;
  };
  const auto raw = [&](const Bytes& file) {
    return read_png(dir_.write("x.png", file), 1, true).pixels;
  };
  const Bytes linear = with("gAMA", test::big32(100000));
  EXPECT_EQ(raw(plain), pixels);
  EXPECT_EQ(raw(linear), pixels);
  EXPECT_NE(read(linear).pixels, pixels);
  EXPECT_EQ(raw(with("gAMA", test::big32(45455))), pixels);
  EXPECT_EQ(raw(with("sRGB", {0})), pixels);
  Bytes primaries;
  for (const uint32_t x : {31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000})
    primaries = primaries + test::big32(x);
  EXPECT_EQ(raw(with("cHRM", primaries)), pixels);
  for (size_t cut = 0; cut + 40 < linear.size(); cut += 7) {
    const Bytes part(linear.begin(), linear.begin() + ptrdiff_t(cut));
    EXPECT_THROW(raw(part), Error) << cut;
  }
}

TEST_F(PngTest, ColourAndAlpha) {
  EXPECT_EQ(read(test::png(2, 1, 3, {80, 80, 80, 200, 200, 200})).pixels, (Bytes{80, 200}));
  const PngImage colours = read(test::png(3, 1, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255}));
  EXPECT_GT(colours.pixels[1], colours.pixels[0]);  // green is brighter than red, red than blue
  EXPECT_GT(colours.pixels[0], colours.pixels[2]);
  // Dark ink on transparent lies on white, bright ink on black; half transparent is half way.
  EXPECT_EQ(read(test::png(3, 1, 2, {0, 255, 0, 0, 0, 128})).pixels, (Bytes{0, 255, 127}));
  EXPECT_EQ(read(test::png(2, 1, 4, {255, 255, 255, 255, 0, 0, 0, 0})).pixels, (Bytes{255, 0}));
}

// 16 bits of v * 257 are the 8 bits of v.
TEST_F(PngTest, InterlacedAndOfSixteenBitsAreTheSamePixels) {
  for (const auto& [width, height] : {std::pair{28u, 28u}, {1u, 1u}, {5u, 3u}, {3u, 9u}}) {
    for (const int channels : {1, 2, 3, 4}) {
      const Bytes pixels = test::pattern(size_t{width} * height * size_t(channels));
      Bytes wide;
      for (const uint8_t v : pixels) wide.insert(wide.end(), 2, v);
      for (const int wanted : {1, 3}) {
        const auto read = [&](const Bytes& file) {
          return read_png(dir_.write("x.png", file), wanted).pixels;
        };
        const Bytes plain = read(test::png(width, height, channels, pixels));
        SCOPED_TRACE(str(width, " x ", height, ", ", channels, " channels read as ", wanted));
        EXPECT_EQ(read(test::png(width, height, channels, pixels, 8, true)), plain);
        const Bytes sixteen = read(test::png(width, height, channels, wide, 16, false));
        expect_error(kData, {"interlaced and of 16 bits", "x.png", "hint: save it without"},
            [&] { read(test::png(width, height, channels, wide, 16, true)); });
        // Colours become grey before they become 8 bits: that rounds elsewhere.
        if (wanted == 3 || channels < 3) {
          EXPECT_EQ(sixteen, plain);
        }
      }
    }
  }
}

TEST_F(PngTest, InColourForAModelThatReadsColour) {
  const ImageShape size{3, 1, 2};
  // Red and half-transparent blue: dark ink, so on white.
  const Bytes rgba{255, 0, 0, 255, 0, 0, 255, 128};
  const PngImage image = read_png(dir_.write("x.png", test::png(2, 1, 4, rgba)), 3);
  EXPECT_EQ(image.pixels, (Bytes{255, 0, 0, 127, 127, 255}));
  EXPECT_EQ(raw_image(image, size), (Bytes{255, 127, 0, 127, 0, 255})) << "plane by plane";
  const PngImage grey = read_png(dir_.write("g.png", test::png(2, 1, 1, {7, 9})), 3);
  EXPECT_EQ(raw_image(grey, size), (Bytes{7, 9, 7, 9, 7, 9}));
  EXPECT_EQ(scaled_image(image, {3, 1, 1}), (Bytes{191, 64, 128})) << "the mean of both";
  EXPECT_EQ(
      scaled_image(image, {3, 2, 2}), (Bytes{255, 127, 255, 127, 0, 127, 0, 127, 0, 255, 0, 255}));
  expect_error(kData, {"not 5x5x3", "it is 1x2x3"}, [&] { raw_image(image, {3, 5, 5}); });
}

TEST_F(PngTest, BadFiles) {
  const Bytes good = test::png(5, 5, 1, test::pattern(25));
  expect_error(kData, {"not a PNG", "x.png", "a JPEG image"}, [&] {
    read({0xff, 0xd8, 0xff, 0xe0});
  });
  expect_error(kData, {"not a PNG", "empty"}, [&] { read({}); });
  expect_error(kData, {"too large", "60000 x 60000", "4096 x 4096"},
      [&] { read(test::png(60000, 60000, 1, {})); });
  constexpr size_t kEnd = 12;  // the last chunk says only that the image ends
  for (size_t n = 8; n < good.size() - kEnd; ++n) {
    expect_error(kData, {"damaged", "x.png"},
        [&] { read(Bytes(good.begin(), good.begin() + ptrdiff_t(n))); });
  }
  Bytes flipped = good;
  flipped[50] ^= 0x10;
  expect_error(kData, {"damaged"}, [&] { read(flipped); });
  expect_error(kData, {"damaged"}, [&] { read(test::png(0, 5, 1, {})); });
  expect_error(kData, {"not 28x28", "it is 5x5"}, [&] { raw_image(read(good)); });
}

TEST(PrepareDigit, ScalesToTwentyAndCentres) {
  // A bar 10 wide and 50 high, far from the middle: 4 x 20, centred.
  const ImagePixels digit = prepare_digit(canvas(200, 100, 0, 255, 150, 40, 160, 90));
  for (int y = 0; y < 28; ++y)
    for (int x = 0; x < 28; ++x)
      EXPECT_EQ(digit[y * 28 + x], y >= 4 && y < 24 && x >= 12 && x < 16 ? 255 : 0)
          << x << "," << y;
}

TEST(PrepareDigit, PolarityAndContrastDoNotMatter) {
  const ImagePixels white = prepare_digit(canvas(60, 60, 0, 255, 5, 10, 25, 40));
  EXPECT_EQ(prepare_digit(canvas(60, 60, 255, 0, 5, 10, 25, 40)), white);
  EXPECT_EQ(prepare_digit(canvas(60, 60, 220, 100, 5, 10, 25, 40)), white);
}

TEST(PrepareDigit, CentresByMassNotByBox) {
  // A bright and a faint half: by box the middle of the mass would lie at 11.8.
  PngImage image = canvas(100, 100, 0, 255, 20, 20, 40, 60);
  for (int y = 20; y < 60; ++y) std::fill_n(&image.pixels[y * 100 + 40], 20, uint8_t{100});
  const ImagePixels digit = prepare_digit(image);
  double mass = 0, moment = 0;
  for (int i = 0; i < 784; ++i) {
    mass += digit[i];
    moment += digit[i] * (i % 28 + 0.5);
  }
  EXPECT_NEAR(moment / mass, 14, 0.5);
}

TEST(PrepareDigit, AnySize) {
  EXPECT_EQ(prepare_digit(canvas(3, 3, 0, 9 * 28, 1, 1, 2, 2))[14 * 28 + 14],
      255);  // one pixel becomes a 20 x 20 square
  expect_error(kData,
      {"no ink", "canvas", "of 40 x 30 pixels none is more than 0 of 255 from the border's"},
      [] { prepare_digit(canvas(40, 30, 90, 90, 0, 0, 1, 1)); });
  const ImagePixels whole = prepare_digit(canvas(1, 50, 0, 255, 0, 10, 1, 40));
  EXPECT_GT(std::count(whole.begin(), whole.end(), 255), 0);
}

}  // namespace
}  // namespace sinter
