#include "data/dataset.h"

#include <set>

#include "core/numbers.h"
#include "data/batches.h"
#include "data/digits.h"
#include "data/verify.h"
#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::Bytes;
using test::expect_error;
using Words = std::vector<std::string>;
Bytes images_file(uint32_t n, unsigned salt = 0) {
  return test::idx({n, 28, 28}, test::pattern(n * 784, salt));
}
Bytes labels_file(uint32_t n) {
  Bytes labels(n);
  for (uint32_t i = 0; i < n; ++i) labels[i] = uint8_t(i % 10);
  return test::idx({n}, labels);
}

class DatasetTest : public testing::Test {
 protected:
  void write_four() {
    dir_.write("train-images-idx3-ubyte", images_file(60));
    dir_.write("train-labels.idx1-ubyte", labels_file(60));
    dir_.write("t10k-images.idx3-ubyte", images_file(20, 1));
    dir_.write("t10k-labels-idx1-ubyte", labels_file(20));
  }
  Dataset load(DataOptions options = {}) {
    options.what = dir_.path();
    return load_dataset(options);
  }
  void expect_bad(const std::vector<std::string>& facts) {
    expect_error(kData, facts, [&] { load(); });
  }
  test::TempDir dir_;
  const test::ScopedEnv no_variable_{"SINTER_DATA", nullptr};
};

TEST_F(DatasetTest, ReadsBothSpellingsAndSplits) {
  write_four();
  const Dataset data = load();
  EXPECT_EQ(data.name, dir_.path());
  EXPECT_EQ(data.sizes(), "train 55  val 5  test 20  28x28");  // val: at most 1/12 of train
  EXPECT_EQ(data.train.images.describe(), "u8[55, 1, 28, 28] cpu");
  EXPECT_EQ(data.val.labels.to_vector<int>(), (std::vector<int>{5, 6, 7, 8, 9}));
  const Bytes body = test::pattern(60 * 784);
  EXPECT_EQ(data.val.images.to_vector<uint8_t>(), Bytes(body.begin() + 55 * 784, body.end()));
  EXPECT_EQ(data.train.images.storage(), data.val.images.storage());
}

TEST_F(DatasetTest, ValAndLimit) {
  write_four();
  EXPECT_EQ(load({.val = 0}).sizes(), "train 60  val 0  test 20  28x28");
  EXPECT_EQ(load({.val = 3}).sizes(), "train 57  val 3  test 20  28x28");
  const Dataset limited = load({.val = 3, .limit = 2});
  EXPECT_EQ(limited.sizes(), "train 2  val 2  test 2  28x28");
  EXPECT_EQ(limited.val.labels.to_vector<int>(),
      (std::vector<int>{7, 8}));  // still the last of all of train
  expect_error(Error::Kind::usage, {"val out of range", "-1"}, [&] { load({.val = -1}); });
  expect_error(Error::Kind::usage, {"limit out of range", "-5"}, [&] { load({.limit = -5}); });
  expect_error(Error::Kind::usage, {"classes", "0"}, [&] { load({.classes = 0}); });
}

TEST_F(DatasetTest, GzipGivesTheSameTensors) {
  write_four();
  const Dataset raw = load();
  const test::TempDir zipped;
  const std::string images =
      zipped.write("train-images-idx3-ubyte.gz", test::gzip(images_file(60)));
  const std::string labels =
      zipped.write("train-labels.idx1-ubyte.gz", test::gzip(labels_file(60)));
  zipped.write("t10k-images-idx3-ubyte.gz", test::gzip(images_file(20, 1)));
  zipped.write("t10k-labels-idx1-ubyte.gz", test::gzip(labels_file(20)));
  SKIP_IF_NOT_BUILT(read_split(images, labels, 10));
  const Dataset other = load_dataset({.what = zipped.path()});
  for (const auto& [a, b] :
      {std::pair{raw.train, other.train}, {raw.val, other.val}, {raw.test, other.test}}) {
    EXPECT_EQ(a.images.to_vector<uint8_t>(), b.images.to_vector<uint8_t>());
    EXPECT_EQ(a.labels.to_vector<int>(), b.labels.to_vector<int>());
  }
}

TEST_F(DatasetTest, NumPyGivesTheSameTensors) {
  const Bytes pixels = test::pattern(60 * 784), labels = labels_file(60);
  const std::string idx_images = dir_.write("i", images_file(60)),
                    idx_labels = dir_.write("l", labels);
  const std::string images = dir_.write("x.npy", test::npy("|u1", "(60, 784)", pixels));
  const std::string classes =
      dir_.write("y.npy", test::npy("|u1", "(60,)", Bytes(labels.begin() + 8, labels.end())));
  const Split a = read_split(idx_images, idx_labels, 10), b = read_split(images, classes, 10);
  EXPECT_EQ(a.images.to_vector<uint8_t>(), b.images.to_vector<uint8_t>());
  EXPECT_EQ(a.labels.to_vector<int>(), b.labels.to_vector<int>());

  const Dataset data = load_dataset({.what = images + "," + classes});
  EXPECT_EQ(data.sizes(), "train 48  val 4  test 8  28x28");
  test::expect_facts(data.description, {"y.npy (1/7 of it, drawn, for the test)"});
  EXPECT_EQ(data.files, (std::vector<std::string>{images, classes}));
  const Dataset whole =
      load_dataset({.what = images + "," + classes, .limit = 50, .pair_is_test = true});
  EXPECT_EQ(whole.sizes(), "train 0  val 0  test 50  28x28");

  for (const std::string& bad : {images, images + ",", images + "," + classes + "," + images})
    expect_error(kData,
        {bad, "two files with a comma between", "DataOptions.what = images.npy,labels.npy"},
        [&] { load_dataset({.what = bad}); });
  dir_.write("y.npy", test::npy("|u1", "(59,)", Bytes(59)));
  expect_error(kData, {"counts differ", "60 images in " + images, "59 labels in " + classes},
      [&] { load_dataset({.what = images + "," + classes}); });
}

// A seventh of six is none.
TEST_F(DatasetTest, APairOfTooFewImagesIsRefused) {
  const auto pair = [&](size_t n) {
    return dir_.write("x.npy", test::npy("|u1", str("(", n, ", 784)"), Bytes(n * 784, 9))) + "," +
           dir_.write("y.npy", test::npy("|u1", str("(", n, ",)"), Bytes(n)));
  };
  for (const size_t n : {1, 2, 6}) {
    const std::string files = pair(n);
    expect_error(kData, {"too few images", str(" has ", n), "1/7 of them", "at least 7"},
        [&] { load_dataset({.what = files}); });
    EXPECT_EQ(load_dataset({.what = files, .pair_is_test = true}).test.size(), int64_t(n));
    EXPECT_EQ(load_dataset({.what = files + "," + files}).test.size(), int64_t(n));
  }
  EXPECT_EQ(load_dataset({.what = pair(7)}).sizes(), "train 6  val 0  test 1  28x28");
}

// 0 and 1 in bytes, not in f32, where 1 is white.
TEST_F(DatasetTest, PixelsThatAreNearlyBlackAreTold) {
  const std::string labels = dir_.write("y.npy", test::npy("|u1", "(14,)", Bytes(14)));
  Bytes ones(14 * 784), f32(14 * 784 * 4);
  ones[5] = 1;
  const auto description = [&](const char* type, const Bytes& pixels) {
    const std::string images = dir_.write("x.npy", test::npy(type, "(14, 784)", pixels));
    return load_dataset({.what = images + "," + labels}).description;
  };
  test::expect_facts(description("|u1", ones), {"nearly black", "brightest pixel is 1 of 255"});
  f32[2] = 0x80;
  f32[3] = 0x3f;
  EXPECT_EQ(description("<f4", f32).find("nearly"), std::string::npos);
  ones[6] = 2;
  EXPECT_EQ(description("|u1", ones).find("nearly"), std::string::npos);
}

// As np.save of a folder per class gives it.
TEST_F(DatasetTest, ANumPyPairSortedByLabelIsSplitByADraw) {
  Bytes sorted(70), pixels(70 * 784);
  for (size_t i = 0; i < sorted.size(); ++i) {
    sorted[i] = uint8_t(i / 7);
    pixels[i * 784 + 3] = uint8_t(i);
  }
  const std::string images = dir_.write("x.npy", test::npy("|u1", "(70, 784)", pixels));
  const std::string labels = dir_.write("y.npy", test::npy("|u1", "(70,)", sorted));
  const Dataset data = load_dataset({.what = images + "," + labels});
  EXPECT_TRUE(data.sorted);
  for (const Split* split : {&data.train, &data.test}) {
    const auto here = split->labels.to_vector<int>();
    EXPECT_GT(std::set<int>(here.begin(), here.end()).size(), split == &data.test ? 4u : 9u);
    const Bytes images_here = split->images.to_vector<uint8_t>();
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_EQ(here[i], images_here[i * 784 + 3] / 7) << "its label goes with it";
  }
  EXPECT_EQ(load_dataset({.what = images + "," + labels}).test.labels.to_vector<int>(),
      data.test.labels.to_vector<int>());
  EXPECT_FALSE(load_dataset({.what = "synthetic", .limit = 1}).sorted);

  // Four files are taken as they are.
  const std::string four = images + "," + labels + "," + images + "," + labels;
  const Dataset pairs = load_dataset({.what = four});
  EXPECT_EQ(pairs.sizes(), "train 65  val 5  test 70  28x28");
  test::expect_facts(pairs.description, {"sorted by label"});
  EXPECT_EQ(pairs.val.labels.to_vector<int>(), std::vector<int>(5, 9));
  EXPECT_EQ(pairs.test.labels.to_vector<int>()[69], 9);
}

TEST_F(DatasetTest, KnowsItsPlaceAndItsFingerprint) {
  write_four();
  const Dataset data = load();
  EXPECT_EQ(data.place, dir_.path());
  EXPECT_EQ(data.crc32, load({.val = 0, .limit = 2}).crc32) << "whatever is cut from it";
  EXPECT_EQ(Batches(data.train).crc32(), data.crc32);
  EXPECT_NE(crc_of(slice(data.train, 0, 9)), crc_of(slice(data.train, 9, 18)));
  dir_.write("train-labels.idx1-ubyte", test::idx({60}, Bytes(60)));
  EXPECT_NE(data.crc32, load().crc32);
  const auto back = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(dir_.path()).parent_path());
  const std::string name = std::filesystem::path(dir_.path()).filename();
  EXPECT_EQ(load_dataset({.what = "./" + name}).place, dir_.path()) << "from any working folder";
  std::filesystem::current_path(back);
  const Dataset synthetic = load_dataset({.what = "synthetic", .limit = 1});
  EXPECT_EQ(synthetic.place, "synthetic");
  EXPECT_NE(synthetic.crc32, load_dataset({.what = "synthetic", .limit = 1, .data_seed = 2}).crc32);
}

TEST_F(DatasetTest, NothingFound) {
  expect_bad({"no MNIST files", dir_.path(), "train-images-idx3-ubyte", "train-images.idx3-ubyte",
      ".gz", "DataOptions.what = synthetic", "download_mnist"});
  dir_.write("notes.txt", {});
  dir_.write("p\x1b", {});
  dir_.write("q", {});
  dir_.write("train-images-idx3-ubyte", images_file(1));
  expect_bad({"no MNIST files", "train-labels-idx1-ubyte", "train-labels.idx1-ubyte"});
  expect_error(kData, {"no such folder", dir_.file("nowhere")},
      [&] { load_dataset({.what = dir_.file("nowhere")}); });
  expect_error(
      kData, {"not a folder", dir_.file("q")}, [&] { load_dataset({.what = dir_.file("q")}); });
}

TEST_F(DatasetTest, FilesThatDoNotFit) {
  write_four();
  dir_.write("train-labels.idx1-ubyte", labels_file(20));
  expect_bad({"counts differ", "60 images in " + dir_.file("train-images-idx3-ubyte"),
      "20 labels in " + dir_.file("train-labels.idx1-ubyte"), "t10k"});
  Bytes labels = labels_file(60);
  labels[8 + 33] = 47;
  dir_.write("train-labels.idx1-ubyte", labels);
  expect_bad({"label out of range", "47 at item 33", dir_.file("train-labels.idx1-ubyte"), "0..9",
      "DataOptions.classes = 48"});
  EXPECT_EQ(load({.classes = 48}).train.size(), 55);
  dir_.write("train-images-idx3-ubyte", test::idx({60, 28, 14}, Bytes(60 * 28 * 14)));
  dir_.write("train-labels.idx1-ubyte", labels_file(60));
  expect_bad({"sizes differ: 28x14 images in " + dir_.file("train-images-idx3-ubyte"),
      "28x28 in " + dir_.file("t10k-images.idx3-ubyte")});
}

TEST_F(DatasetTest, FilesOfAnyNameAndSizeGivenOneByOne) {
  const Bytes pixels = test::pattern(70 * 5 * 4 * 3);
  const std::string grey = dir_.write("fashion.idx", test::idx({70, 6, 10}, Bytes(70 * 60, 9))),
                    labels = dir_.write("kinds.idx", labels_file(70)),
                    colour = dir_.write("x.npy", test::npy("|u1", "(70, 5, 4, 3)", pixels));
  const Dataset pair = load_dataset({.what = grey + "," + labels});
  EXPECT_EQ(pair.sizes(), "train 55  val 5  test 10  6x10");
  EXPECT_EQ(pair.train.images.describe(), "u8[55, 1, 6, 10] cpu");
  const Dataset four = load_dataset({.what = join(Words{grey, labels, grey, labels}, ",")});
  EXPECT_EQ(four.sizes(), "train 65  val 5  test 70  6x10");
  EXPECT_EQ(four.files[3], labels);
  const Dataset mixed = load_dataset({.what = colour + "," + labels});
  EXPECT_EQ(mixed.sizes(), "train 55  val 5  test 10  5x4x3");
  EXPECT_EQ(Batches(mixed.train, {.size = 8}).next().images.shape(), (Shape{8, 60}));
  const DataReport report = verify_dataset({.what = join(Words{grey, labels, grey, labels}, ",")});
  EXPECT_EQ(report.files[0].kind, "images 70 x 6 x 10");
  EXPECT_EQ(report.files[0].crc, "differs");
  EXPECT_EQ(report.sets[0].blank, 70);
}

TEST(ImageShape, IsReadAsItIsWritten) {
  for (const char* text : {"28x28", "1x7", "32x32x3", "65536x2x4"})
    EXPECT_EQ(ImageShape::parse(text).str(), text);
  for (const char* bad : {"", "28", "28x", "28x28x1", "0x5", "28x28x", " 1x1", "1x1 ", "65537x1"})
    expect_error(Error::Kind::usage, {"not the size of an image", bad, "as 28x28 or 32x32x3"},
        [&] { ImageShape::parse(bad); });
}

TEST_F(DatasetTest, Synthetic) {
  const Dataset data = load_dataset({.what = "synthetic", .limit = 30});
  EXPECT_EQ(data.name, "synthetic");
  EXPECT_EQ(data.sizes(), "train 30  val 30  test 30  28x28");
  std::vector<uint8_t> image(kImagePixels);
  EXPECT_EQ(draw_digit(1, 55029, image),
      data.val.labels.to_vector<int>()[29]);  // held out: the last of 60,000
  EXPECT_EQ(slice(data.val, 29, 30).images.to_vector<uint8_t>(), image);
  draw_digit(1, kFirstTestDigit, image);
  EXPECT_EQ(slice(data.test, 0, 1).images.to_vector<uint8_t>(), image);
  EXPECT_EQ(load_dataset({.what = "synthetic", .val = 0, .limit = 1}).val.size(), 0);
  expect_error(kData, {"label out of range", "classes are 0..4", "DataOptions.classes = "},
      [] { load_dataset({.what = "synthetic", .limit = 100, .classes = 5}); });
}

TEST_F(DatasetTest, WhereItLooks) {
  const test::TempDir home;
  const auto back = std::filesystem::current_path();
  std::filesystem::current_path(home.path());
  {
    const test::ScopedEnv no_cache("XDG_CACHE_HOME", nullptr),
        set_home("HOME", home.path().c_str());
    EXPECT_EQ(mnist_cache_folder(), home.file(".cache/sinter/mnist"));
    const Dataset none = load_dataset({.limit = 1});
    EXPECT_EQ(none.name, "synthetic");
    test::expect_facts(none.description, {"none found"});

    write_four();
    std::filesystem::create_directories(home.file(".cache/sinter"));
    std::filesystem::create_directory_symlink(dir_.path(), home.file(".cache/sinter/mnist"));
    EXPECT_EQ(load_dataset().name, home.file(".cache/sinter/mnist"));
    // ./data/mnist comes first; a folder that holds only some of the files is an error, not a
    // reason to go on silently.
    std::filesystem::create_directories(home.file("data/mnist"));
    EXPECT_EQ(load_dataset().name, home.file(".cache/sinter/mnist"));
    home.write("data/mnist/t10k-images-idx3-ubyte", images_file(1));
    expect_error(kData, {"no MNIST files", home.file("data/mnist")}, [] { load_dataset(); });

    const test::ScopedEnv variable("SINTER_DATA", home.file("missing").c_str());
    expect_error(kData, {"no such folder", home.file("missing"), "SINTER_DATA names it"},
        [] { load_dataset(); });
    EXPECT_EQ(load_dataset({.what = "synthetic", .limit = 1}).name, "synthetic");
  }
  std::filesystem::current_path(back);
}

TEST(Mnist, TheRealFiles) {
  SKIP_WITHOUT_MNIST();
  Dataset data;
  SKIP_IF_NOT_BUILT(data = load_dataset({.what = test::mnist_folder()}));
  EXPECT_EQ(data.sizes(), "train 55,000  val 5,000  test 10,000  28x28");
  EXPECT_EQ(
      slice(data.train, 0, 8).labels.to_vector<int>(), (std::vector<int>{5, 0, 4, 1, 9, 2, 1, 3}));
  EXPECT_EQ(
      slice(data.test, 0, 8).labels.to_vector<int>(), (std::vector<int>{7, 2, 1, 0, 4, 1, 4, 9}));
}

}  // namespace
}  // namespace sinter
