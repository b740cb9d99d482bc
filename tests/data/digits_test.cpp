#include "data/digits.h"

#include <algorithm>

#include "core/parallel.h"
#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

struct Digits {
  Digits(uint64_t seed, uint64_t first, size_t n) : images(n * kImagePixels), labels(n) {
    draw_digits(seed, first, images, labels);
  }
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
};

// The bytes are part of the interface: runs are compared across machines, compilers and thread
// counts.
TEST(Digits, GoldenBytesAtAnyThreadCount) {
  for (const int threads : {1, 8}) {
    const test::Scoped scoped(num_threads, set_num_threads, threads);
    const Digits digits(kDataSeed, 0, 1000);
    EXPECT_EQ(test::crc32(digits.images), 0xccdc221du) << threads << " threads";
    EXPECT_EQ(std::vector(digits.labels.begin(), digits.labels.begin() + 12),
        (std::vector<int32_t>{8, 0, 9, 5, 7, 9, 3, 0, 6, 0, 9, 5}));
  }
}

TEST(Digits, ItemsAreDrawnAlone) {
  const Digits digits(3, 100, 5);
  std::vector<uint8_t> image(kImagePixels);
  EXPECT_EQ(draw_digit(3, 103, image), digits.labels[3]);
  EXPECT_TRUE(std::equal(image.begin(), image.end(), &digits.images[3 * kImagePixels]));
}

TEST(Digits, SeedsAndTestItemsDiffer) {
  const Digits a(1, 0, 20), other_seed(2, 0, 20), other_high_seed(1 + (uint64_t{1} << 32), 0, 20),
      test(1, kFirstTestDigit, 20);
  EXPECT_NE(a.images, other_seed.images);
  EXPECT_NE(a.images, other_high_seed.images);
  EXPECT_NE(a.images, test.images);
}

TEST(Digits, LabelsAreUniformAndImagesHaveInk) {
  const Digits digits(kDataSeed, 0, 4000);
  int counts[10] = {};
  for (const int32_t label : digits.labels) ++counts[label];
  for (const int count : counts) EXPECT_NEAR(count, 400, 100);  // five sigma
  for (size_t i = 0; i < digits.labels.size(); ++i) {
    const auto image = std::span(digits.images).subspan(i * kImagePixels, kImagePixels);
    EXPECT_GE(std::count_if(image.begin(), image.end(), [](uint8_t v) { return v > 100; }), 4)
        << "item " << i;
  }
}

}  // namespace
}  // namespace sinter
