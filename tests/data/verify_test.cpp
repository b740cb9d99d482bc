#include "data/verify.h"

#include <algorithm>
#include <numeric>

#include "data/bytes.h"
#include "data/digits.h"
#include "data/idx.h"
#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::Bytes;
using test::expect_facts;

// A folder of synthetic digits that a test may spoil.
class VerifyTest : public testing::Test {
 protected:
  struct Digits {
    Bytes images, labels;
  };
  static Digits draw(uint64_t first, size_t n) {
    Digits out{Bytes(n * kImagePixels), Bytes(n)};
    std::vector<int32_t> labels(n);
    draw_digits(kDataSeed, first, out.images, labels);
    std::copy(labels.begin(), labels.end(), out.labels.begin());
    return out;
  }
  DataReport verify(int64_t classes = 10) {
    for (const auto& [name, digits] : {std::pair("train", &train_), {"t10k", &test_}}) {
      const auto n = int64_t(digits->labels.size());
      write_idx(dir_.file(str(name, "-images-idx3-ubyte")), {n, 28, 28}, digits->images);
      write_idx(dir_.file(str(name, "-labels-idx1-ubyte")), {n}, digits->labels);
    }
    return verify_dataset({.what = dir_.path(), .classes = classes});
  }
  Digits train_ = draw(0, 600), test_ = draw(kFirstTestDigit, 200);
  test::TempDir dir_;
};

TEST_F(VerifyTest, GoodDigitsPass) {
  const DataReport report = verify();
  EXPECT_FALSE(report.sorted);
  EXPECT_EQ(report.failed, "");
  EXPECT_EQ(report.shared, 0);
  ASSERT_EQ(report.files.size(), 4u);
  EXPECT_EQ(report.files[2].path, dir_.file("t10k-images-idx3-ubyte"));
  EXPECT_EQ(report.files[2].kind, "images 200 x 28 x 28");
  EXPECT_EQ(report.files[1].kind, "labels 600");
  EXPECT_EQ(report.files[0].crc, "differs");
  ASSERT_EQ(report.sets.size(), 2u);
  const DataReport::Set& train = report.sets[0];
  EXPECT_EQ(train.name, "train");
  EXPECT_EQ(train.size(), 600);
  EXPECT_EQ(train.darkest, 0);
  EXPECT_EQ(train.brightest, 255);
  double sum = 0;
  for (const uint8_t pixel : train_.images) sum += pixel;
  EXPECT_DOUBLE_EQ(train.mean, sum / double(train_.images.size()));
  EXPECT_EQ(train.blank + train.repeated, 0);
  EXPECT_GT(train.class_means, 0.6);
  const int64_t most = *std::max_element(train.counts.begin(), train.counts.end());
  EXPECT_DOUBLE_EQ(train.wanted, double(2 * most) / 600);
}

TEST_F(VerifyTest, ShuffledLabelsAreSeenInEitherSet) {
  const Digits good = train_;
  std::rotate(train_.labels.begin(), train_.labels.begin() + 100, train_.labels.end());
  expect_facts(verify().failed,
      {"data: labels do not belong to images: ", "train-images-idx3-ubyte, ",
          "train-labels-idx1-ubyte; ", "class means are right for ", " % of train, more than "});
  train_ = good;
  std::rotate(test_.labels.begin(), test_.labels.begin() + 50, test_.labels.end());
  expect_facts(verify().failed, {"t10k-images-idx3-ubyte", " % of test, more than "});
}

TEST_F(VerifyTest, BlankRepeatedAndSharedImagesAreCounted) {
  std::fill_n(train_.images.begin(), kImagePixels, uint8_t{40});
  for (const size_t i : {3, 5, 9})
    std::copy_n(train_.images.begin() + 2 * kImagePixels, kImagePixels,
        train_.images.begin() + i * kImagePixels);
  std::copy_n(train_.images.begin() + 7 * kImagePixels, kImagePixels, test_.images.begin());
  DataReport report = verify();
  EXPECT_EQ(report.sets[0].blank, 1);
  EXPECT_EQ(report.sets[0].repeated, 3);
  EXPECT_EQ(report.sets[1].repeated, 0);
  EXPECT_EQ(report.shared, 1);
  EXPECT_EQ(report.failed, "");
  std::copy_n(train_.images.begin(), 3 * kImagePixels, test_.images.begin());
  report = verify();
  EXPECT_EQ(report.shared, 3);
  expect_facts(
      report.failed, {"data: test images are in train as well", "3 of 200, allowed 1.0 %"});
}

TEST_F(VerifyTest, OneLabelAloneIsNoProof) {
  for (Bytes* labels : {&train_.labels, &test_.labels})
    std::fill(labels->begin(), labels->end(), uint8_t{4});
  const DataReport report = verify();
  EXPECT_DOUBLE_EQ(report.sets[0].wanted, 1);
  expect_facts(
      report.failed, {"class means are right for 100.0 % of train, more than 100.0 expected"});
}

TEST_F(VerifyTest, ASetSortedByLabelIsSaidToBe) {
  std::vector<size_t> order(train_.labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const Digits drawn = train_;
  std::stable_sort(order.begin(), order.end(),
      [&](size_t a, size_t b) { return drawn.labels[a] < drawn.labels[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    train_.labels[i] = drawn.labels[order[i]];
    std::copy_n(drawn.images.begin() + ptrdiff_t(order[i] * kImagePixels), kImagePixels,
        train_.images.begin() + ptrdiff_t(i * kImagePixels));
  }
  const DataReport four = verify();
  EXPECT_TRUE(four.sorted);
  expect_facts(four.failed, {"data: sorted by label: ", "train-labels-idx1-ubyte", "val"});
  // A pair is split by a draw: labels belong to images, and nothing is wrong.
  const std::string images = dir_.write("x.npy", test::npy("|u1", "(600, 784)", train_.images));
  const std::string labels = dir_.write("y.npy", test::npy("|u1", "(600,)", train_.labels));
  const DataReport pair = verify_dataset({.what = images + "," + labels});
  EXPECT_TRUE(pair.sorted);
  EXPECT_EQ(pair.failed, "");
}

TEST_F(VerifyTest, UnreadableFilesAreErrors) {
  verify();
  std::filesystem::resize_file(dir_.file("t10k-labels-idx1-ubyte"), 20);
  test::expect_error(Error::Kind::data, {"idx: cut short", "t10k-labels"},
      [&] { verify_dataset({.what = dir_.path()}); });
}

TEST(Verify, TheSumIsOfTheContentWithoutGzip) {
  const test::TempDir dir;
  // "SINTER" and four bytes chosen so that the CRC-32 is that of MNIST's training images.
  const Bytes forged{'S', 'I', 'N', 'T', 'E', 'R', 0x12, 'O', 0x96, 0x8b};
  const std::string raw = dir.write("raw", forged);
  EXPECT_EQ(check_published(raw, 0), "published");
  EXPECT_EQ(check_published(raw, 1), "differs");
  const std::string zipped = dir.write("zipped.gz", test::gzip(forged));
  SKIP_IF_NOT_BUILT(ByteSource(zipped).read_up_to(1));
  EXPECT_EQ(check_published(zipped, 0), "published");
}

TEST(Verify, TheRealMnist) {
  SKIP_WITHOUT_MNIST();
  DataReport report;
  SKIP_IF_NOT_BUILT(report = verify_dataset({.what = test::mnist_folder()}));
  EXPECT_EQ(report.failed, "");
  for (const DataReport::File& file : report.files) EXPECT_EQ(file.crc, "published") << file.path;
  EXPECT_EQ(report.sets[0].counts,
      (std::vector<int64_t>{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}));
  EXPECT_NEAR(report.sets[0].class_means, 0.81, 0.01);
}

}  // namespace
}  // namespace sinter
