#include "data/augment.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "data/batches.h"
#include "tests/closeness.h"
#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::Bytes;

constexpr ImageShape kSize{.channels = 1, .height = 30, .width = 20};

// A square of 4 x 4 bright pixels in the middle.
Bytes square() {
  Bytes image(size_t(kSize.pixels()));
  for (int64_t y = 13; y < 17; ++y)
    for (int64_t x = 8; x < 12; ++x) image[size_t(y * kSize.width + x)] = 200;
  return image;
}
Bytes augmented(const Augment& augment, const Bytes& image, int64_t index, int64_t epoch = 0,
    uint64_t seed = 1) {
  Bytes out(image.size());
  augment_image(augment, seed, epoch, index, kSize, image.data(), out.data());
  return out;
}

struct Mass {
  double sum = 0, x = 0, y = 0;  // of the ink, and its centre
};
Mass mass_of(const Bytes& image) {
  Mass mass;
  for (size_t i = 0; i < image.size(); ++i) {
    const double ink = image[i];
    mass.sum += ink;
    mass.x += ink * double(i % size_t(kSize.width));
    mass.y += ink * double(i / size_t(kSize.width));
  }
  mass.x /= mass.sum;
  mass.y /= mass.sum;
  return mass;
}

TEST(Augment, ByNothingIsTheImageItself) {
  const Bytes image = test::pattern(size_t(kSize.pixels()));
  EXPECT_EQ(augmented({}, image, 5), image);
}

TEST(Augment, IsAPureFunctionOfSeedEpochAndIndex) {
  const Bytes image = test::pattern(size_t(kSize.pixels()));
  for (const Augment& augment :
      {Augment{.shift = 2}, {.rotate = 10}, {.scale = 20}, {.shift = 1, .rotate = 5, .scale = 5}}) {
    const Bytes out = augmented(augment, image, 5);
    EXPECT_NE(out, image);
    EXPECT_EQ(out, augmented(augment, image, 5));
    EXPECT_NE(out, augmented(augment, image, 6));
    EXPECT_NE(out, augmented(augment, image, 5, 1));
    EXPECT_NE(out, augmented(augment, image, 5, 0, 2));
  }
}

// Each of them does what its name says, in both directions, and no more of it than asked for. The
// ink of the square is 3200; rounding takes or gives less than half a level for each of at most 49
// pixels.
TEST(Augment, MovesTurnsAndScalesWithinItsBounds) {
  const Mass before = mass_of(square());
  double left = 0, right = 0, smallest = 1, largest = 1;
  for (int64_t i = 0; i < 200; ++i) {
    const Mass moved = mass_of(augmented({.shift = 2}, square(), i));
    EXPECT_NEAR(moved.sum, before.sum, 25);
    EXPECT_LT(std::abs(moved.y - before.y), 2.05);
    left = std::min(left, moved.x - before.x);
    right = std::max(right, moved.x - before.x);
    const Mass turned = mass_of(augmented({.rotate = 180}, square(), i));
    EXPECT_NEAR(turned.x, before.x, 0.05);
    EXPECT_NEAR(turned.sum, before.sum, 0.1 * before.sum);  // bilinear reading of a hard edge
    const double area = mass_of(augmented({.scale = 30}, square(), i)).sum / before.sum;
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
  }
  EXPECT_NEAR(left, -2, 0.1);
  EXPECT_NEAR(right, 2, 0.1);
  EXPECT_NEAR(smallest, 0.7 * 0.7, 0.1);
  EXPECT_NEAR(largest, 1.3 * 1.3, 0.1);
}

// A smooth image, whose value at any place is known.
double hills(double x, double y) {
  return 120 + 60 * std::sin(x / 4 + 1) * std::cos(y / 5) + 40 * std::sin(y / 3);
}
Bytes hilly() {
  Bytes image(size_t(kSize.pixels()));
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = uint8_t(std::lround(hills(double(i % 20), double(i / 20))));
  return image;
}
// A square as above, 9 pixels above the middle: where it is says how it was turned, clockwise as
// rows count downwards.
Bytes square_above() {
  Bytes image(size_t(kSize.pixels()));
  for (int64_t y = 4; y < 8; ++y)
    for (int64_t x = 8; x < 12; ++x) image[size_t(y * kSize.width + x)] = 200;
  return image;
}

// Every turn is about the middle of the image and by an angle up to the one asked for; the whole
// image follows it: the angle is that of the square, the rest a plain loop.
TEST(Augment, TurnsTheWholeImageByAnAngleWithinItsBound) {
  constexpr double kX = 9.5, kY = 14.5, kRadius = 9, kDegree = std::numbers::pi / 180;
  double least = 0, most = 0, mean = 0;
  constexpr int kDraws = 300;
  for (int64_t index = 0; index < kDraws; ++index) {
    const Mass at = mass_of(augmented({.rotate = 40}, square_above(), index));
    const double angle = std::atan2(at.x - kX, kY - at.y);
    EXPECT_NEAR(std::hypot(at.x - kX, at.y - kY), kRadius, 0.1);
    least = std::min(least, angle / kDegree);
    most = std::max(most, angle / kDegree);
    mean += angle / kDegree / kDraws;
    const Bytes turned = augmented({.rotate = 40}, hilly(), index);
    const double c = std::cos(angle), s = std::sin(angle);
    std::vector<double> found, wanted;  // of pixels that the image before it has
    for (size_t i = 0; i < turned.size(); ++i) {
      const double rx = double(i % 20) - kX, ry = double(i / 20) - kY;
      const double x = kX + c * rx + s * ry, y = kY - s * rx + c * ry;
      if (x < 0 || y < 0 || x > 19 || y > 29) continue;
      found.push_back(turned[i]);
      wanted.push_back(hills(x, y));
    }
    // Rounding to bytes, twice; bilinear between pixels, up to 1/8 of the second derivatives of
    // 60/16 + 60/25 + 40/9; the angle, of a square on pixels: 0.01 of 14 pixels of 15 + 12 + 13.
    ASSERT_TRUE(test::close(found, wanted, {.absolute = 1 + 1.4 + 5.6})) << "index " << index;
    EXPECT_GT(found.size(), 300u);
  }
  EXPECT_NEAR(least, -40, 1);
  EXPECT_NEAR(most, 40, 1);
  // Of 300 uniform draws: 4 standard deviations of 80 / sqrt(12 * 300).
  EXPECT_NEAR(mean, 0, 5.4);
}

// Each way has its own draw, and both all of the range.
TEST(Augment, ShiftsEachWayByItself) {
  const Mass before = mass_of(square());
  double left = 0, right = 0, up = 0, down = 0, together = 0;
  constexpr int kDraws = 300;
  for (int64_t index = 0; index < kDraws; ++index) {
    const Mass at = mass_of(augmented({.shift = 3}, square(), index));
    const double dx = at.x - before.x, dy = at.y - before.y;
    left = std::min(left, dx);
    right = std::max(right, dx);
    up = std::min(up, dy);
    down = std::max(down, dy);
    together += dx * dy / kDraws;
  }
  for (const double end : {left, up}) EXPECT_NEAR(end, -3, 0.1);
  for (const double end : {right, down}) EXPECT_NEAR(end, 3, 0.1);
  // The covariance of draws apart is 0, of equal ones 9 / 3; a draw of 300 has 3 / sqrt(300).
  EXPECT_NEAR(together, 0, 4 * 3 / std::sqrt(double(kDraws)));
}

// Ink of a scaled square is in proportion to its area, and its shape stays: width and height grow
// alike, about the middle.
TEST(Augment, ScalesBothWaysAlike) {
  for (int64_t index = 0; index < 50; ++index) {
    const Mass at = mass_of(augmented({.scale = 30}, square_above(), index));
    const double area = at.sum / 3200, distance = (14.5 - at.y) / 9;
    EXPECT_NEAR(at.x, 9.5, 0.1);
    EXPECT_NEAR(std::sqrt(area), distance, 0.06);
  }
}

TEST(Augment, ColoursMoveTogether) {
  const ImageShape colour{.channels = 3, .height = 30, .width = 20};
  Bytes image = square();
  image = test::operator+(image, test::operator+(image, image));
  Bytes out(image.size());
  augment_image({.shift = 3, .rotate = 20}, 1, 0, 9, colour, image.data(), out.data());
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 600, out.begin() + 600));
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 600, out.begin() + 1200));
}

TEST(Augment, IsParsed) {
  const Augment all = parse_augment("shift=2,rotate=10.5,scale=10");
  EXPECT_EQ(all.shift, 2);
  EXPECT_EQ(all.rotate, 10.5);
  EXPECT_EQ(all.scale, 10);
  EXPECT_FALSE(parse_augment("").any());
  EXPECT_FALSE(parse_augment("shift=0").any());
  const std::pair<const char*, std::vector<std::string>> bad[] = {
      {"rotat=3", {"unknown word: rotat", "nearest is rotate", "shift, rotate, scale"}},
      {"shift", {"number wanted:  in shift", "allowed 0..1000"}}, {"shift=2,", {"unknown word"}},
      {"scale=91", {"91 in scale=91", "allowed 0..90"}}, {"rotate=nan", {"allowed 0..180"}},
      {"shift=1:2", {"1:2 in shift=1:2"}}, {"elastic=34", {"unknown word: elastic"}},
      {"rotate=1x", {"1x in rotate=1x"}}};
  for (const auto& [text, facts] : bad)
    test::expect_error(Error::Kind::usage, facts, [&, t = text] { parse_augment(t); });
}

// What an image becomes does not depend on the batch it stands in, on where the run began, or on
// the device that it goes to.
TEST(AugmentSimt, BatchesHaveItInAnyOrderAndOnAnyDevice) {
  Split split{Tensor::empty({23, 1, 30, 20}, DType::u8), Tensor::empty({23}, DType::i32)};
  const Bytes pixels = test::pattern(size_t(split.images.numel()));
  std::copy(pixels.begin(), pixels.end(), split.images.data<uint8_t>());
  std::iota(split.labels.data<int32_t>(), split.labels.data<int32_t>() + 23, 0);
  const BatchOptions plain{.size = 10};
  BatchOptions changed = plain, small = plain;
  changed.augment = small.augment = {.shift = 2, .rotate = 10};
  small.size = 4;
  const Device simt{Device::Type::simt, 0};
  small.device = simt;
  Batches a(split, plain), b(split, changed), c(split, small);
  EXPECT_TRUE(a.resident());
  EXPECT_FALSE(b.resident()) << "a step cannot draw them";
  std::vector<std::vector<float>> by_label(23);
  for (int i = 0; i < 3; ++i) {
    const Batch x = a.next(), y = b.next();
    EXPECT_EQ(x.labels.to_vector<int>(), y.labels.to_vector<int>()) << "the order stays";
    EXPECT_NE(x.images.to_vector<float>(), y.images.to_vector<float>());
    const auto values = y.images.to_vector<float>();
    const auto labels = y.labels.to_vector<int>();
    for (size_t k = 0; k < labels.size(); ++k)
      by_label[size_t(labels[k])].assign(
          values.begin() + ptrdiff_t(600 * k), values.begin() + ptrdiff_t(600 * (k + 1)));
  }
  c.next();
  c.seek({0, 0});
  for (int i = 0; i < 6; ++i) {
    const Batch batch = c.next();
    EXPECT_EQ(batch.images.device(), simt);
    const auto values = batch.images.to_vector<float>();
    const auto labels = batch.labels.to_vector<int>();
    for (size_t k = 0; k < labels.size(); ++k)
      EXPECT_TRUE(std::equal(by_label[size_t(labels[k])].begin(), by_label[size_t(labels[k])].end(),
          values.begin() + ptrdiff_t(600 * k)));
  }
}

}  // namespace
}  // namespace sinter
