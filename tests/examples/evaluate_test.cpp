// The figures of mnist eval, by a confusion that is counted by hand.
#include <gtest/gtest.h>

#include "nn/safetensors.h"
#include "tests/closeness.h"
#include "tests/data/data_test_util.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

// Ten images of which one pixel is lit, the first or the second; the model reads 0 or 1 by it. Of 4
// zeros one is read as 1, of 6 ones two are read as 0.
struct TwoClasses {
  Program program;
  const Words eval{
      "eval", "--from", "two.safetensors", "--data", ".", "--device", "cpu", "--threads", "1"};

  TwoClasses() {
    Bytes images, labels;
    for (const auto& [label, read_as, count] :
        {std::tuple{0, 0, 3}, {0, 1, 1}, {1, 0, 2}, {1, 1, 4}}) {
      for (int i = 0; i < count; ++i) {
        Bytes image(28 * 28);
        image[size_t(read_as)] = 255;
        images = images + image;
        labels.push_back(uint8_t(label));
      }
    }
    for (const std::string set : {"train", "t10k"}) {
      write(set + "-images-idx3-ubyte", idx({10, 28, 28}, images));
      write(set + "-labels-idx1-ubyte", idx({10}, labels));
    }
    Tensor weight = Tensor::zeros({2, 784});
    weight.data<float>()[0] = weight.data<float>()[784 + 1] = 1;
    nn::write_safetensors((program.folder() / "two.safetensors").string(),
        {{"0.weight", weight}, {"0.bias", Tensor::zeros({2})}});
  }
  void write(const std::string& name, const Bytes& bytes) {
    program.write(name, std::string(bytes.begin(), bytes.end()));
  }
};

TEST(MnistEval, PrecisionAndRecallAreThoseOfTheConfusion) {
  const TwoClasses two;
  const nlohmann::json found = json_of(two.program, two.eval);
  EXPECT_EQ(found["confusion"], nlohmann::json::parse("[[3, 1], [2, 4]]"));
  EXPECT_EQ(found["images"], 10);
  EXPECT_EQ(found["accuracy"], 0.7);
  // Per class: images, precision, recall, F1 = 2 p r / (p + r).
  const double wanted[2][4] = {
      {4, 3.0 / 5, 3.0 / 4, 2.0 * 3 / (4 + 5)}, {6, 4.0 / 5, 4.0 / 6, 2.0 * 4 / (6 + 5)}};
  ASSERT_EQ(found["classes"].size(), 2u);
  for (size_t c = 0; c < 2; ++c) {
    const nlohmann::json& row = found["classes"][c];
    EXPECT_EQ(row["label"], c);
    const std::vector<double> got{row["images"], row["precision"], row["recall"], row["f1"]};
    EXPECT_TRUE(close(got, std::vector<double>(wanted[c], wanted[c] + 4), {.of_each = 1e-15}));
  }
  // ln(1 + e) where the wrong class has the 1, ln(1 + 1/e) where the right one has.
  const double loss = (3 * std::log1p(std::exp(1)) + 7 * std::log1p(std::exp(-1))) / 10;
  EXPECT_TRUE(close({double(found["loss"])}, {loss}, {.of_each = 1e-6}));
  // Wilson's 95 % interval of 7 of 10 is 0.397 to 0.892.
  EXPECT_NEAR(found["accuracy_half_width"].get<double>(), (0.8922 - 0.3968) / 2, 1e-4);
}

TEST(MnistEval, ItsTablesAreTheSameFigures) {
  const TwoClasses two;
  const Result r = two.program.run(0, two.eval + Words{"--confusion", "--worst", "3"});
  expect_facts(r.out,
      {"70.0 % +-24.8", "confused most: 1->0 (2)  0->1 (1)",
          "class  precision  recall     F1  images\n", "0         60.0 %  75.0 %  0.667       4\n",
          "1         80.0 %  66.7 %  0.727       6\n",
          "label  as 0  as 1\n0         3     1\n1         2     4\n",
          "item 3      0        1  1.31\nitem 4      1        0  1.31\n"
          "item 5      1        0  1.31\n"});
  EXPECT_FALSE(has(r.out, "item 0"));
}

}  // namespace
}  // namespace sinter::test
