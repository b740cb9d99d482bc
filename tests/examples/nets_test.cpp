// `mnist` with convolutional nets, and with images of other sizes than MNIST's.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "nn/safetensors.h"
#include "tests/data/data_test_util.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

void save(const Program& program, const std::string& name, const Bytes& bytes) {
  program.write(name, std::string(bytes.begin(), bytes.end()));
}

const Words kLenet{"train", "--model", "lenet", "--limit", "500", "--threads", "1", "--batch", "32",
    "--lr", "0.005", "--epochs", "2"};

// All that follows a run knows its net without a flag.
TEST(MnistNets, LenetTrainsAndIsReadBack) {
  const Program program;
  const json trained = json_of(program, kLenet + Words{"--out", "a"});
  EXPECT_EQ(trained["model"]["name"], "lenet 28x28-10");
  EXPECT_GT(trained["test"]["accuracy"], 0.5);
  const json read = json_of(program, {"eval", "--limit", "500", "--threads", "1"});
  EXPECT_EQ(read["loss"], trained["test"]["loss"]);
  const std::string index = std::to_string(read["worst"][0]["item"].get<int>());
  EXPECT_EQ(json_of(program, {"predict", "--index", index})["predictions"][0]["digit"],
      read["worst"][0]["read_as"]);
  const Result dumped = program.run(0, {"predict", "--dump-graph", "g.txt"});
  EXPECT_EQ(
      json_of(program, {"predict", "--index", "3", "--graph", "g.txt"})["predictions"][0]["logits"],
      json_of(program, {"predict", "--index", "3"})["predictions"][0]["logits"]);
  program.run(0, {"train", "--resume", "--epochs", "3"});
  const Result init = program.run(0, {"train", "--init", "a", "--limit", "100", "--dry-run", "-v"});
  expect_facts(init.err, {"lenet 28x28-10, 61,706 parameters", "[128, 16, 10, 10]"});
  expect_facts(program.run({"eval", "--limit", "100", "--confusion"}).out, {"label  as 0  as 1"});
}

TEST(MnistNets, FusedTrainsTheSame) {
  const Program program;
  const json eager = json_of(program, kLenet + Words{"--val", "0"}),
             fused = json_of(program, kLenet + Words{"--val", "0", "--mode", "fused"});
  EXPECT_NEAR(
      fused["test"]["accuracy"].get<double>(), eager["test"]["accuracy"].get<double>(), 0.05);
  const Result compare =
      program.run(0, {"compare", "--model", "lenet", "--batch", "8", "--rounds", "1", "--steps",
                         "1", "--warmup", "0", "--threads", "1"});
  expect_facts(compare.out, {"compare lenet 28x28-10   batch 8",
                                "next     what was fused and why: --explain; the kernels' times"});
}

// The mean is taken away behind it, so its gradient is rounding, of which Adam makes whole steps.
TEST(MnistNets, CompareLeavesOutABiasBeforeBatchNorm) {
  const json compare = json_of(Program(),
      {"compare", "--model", "conv 4 3; batchnorm; relu; pool 2; flatten; linear 10", "--batch",
          "8", "--rounds", "1", "--steps", "1", "--warmup", "0", "--threads", "1"});
  EXPECT_EQ(compare["parity"]["not_compared"], json({"0.bias"}));
}

// The file holds PyTorch's keys for the same nn.Sequential, and one of them alone is taken, too.
TEST(MnistNets, WeightsHaveTheKeysOfASequential) {
  const Program program;
  program.run(2, kLenet + Words{"--steps", "2", "--out", "a"});
  program.run(0, {"train", "--model", "lenet", "--limit", "64", "--steps", "2", "--out", "a"});
  const auto path = (program.folder() / "a/model.safetensors").string();
  const nn::NamedTensors weights = nn::read_safetensors(path).tensors;
  const Tensor* kernel = nn::find(weights, "3.weight");
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->shape(), (Shape{16, 6, 5, 5}));
  nn::write_safetensors((program.folder() / "bare.safetensors").string(), weights);
  const Words dry{"train", "--limit", "64", "--dry-run", "--init", "bare.safetensors"};
  expect_facts(program.run(0, dry + Words{"--model", "lenet"}).err, {"init    ", "same keys"});
  expect_facts(program.run(4, dry).err,
      {"not a model of mnist", "10 tensors without sinter.config", "--model LAYERS --init FILE"});
  program.run(4, {"eval", "--from", "bare.safetensors"});
}

// The shape of Fashion-MNIST: its files have other names, and each is given.
TEST(MnistImages, FilesOfOtherNamesTrain) {
  const Program program;
  program.run(0, {"data", "make", "d", "--train", "600", "--test", "100"});
  Words files;
  for (const char* set : {"train", "t10k"}) {
    for (const char* kind : {"-images-idx3-ubyte", "-labels-idx1-ubyte"}) {
      files.push_back(std::string("fashion-") + set + kind + ".bin");
      std::filesystem::rename(
          program.folder() / "d" / (std::string(set) + kind), program.folder() / files.back());
    }
  }
  const std::string what = join(files, ",");
  const json trained =
      json_of(program, {"train", "--data", what, "--model", "lenet", "--threads", "1", "--epochs",
                           "3", "--batch", "16", "--augment", "shift=1"});
  EXPECT_GT(trained["test"]["accuracy"], 0.4);
  // Of other threads oneDNN may sum in another order.
  EXPECT_EQ(json_of(program, {"eval", "--threads", "1"})["loss"], trained["test"]["loss"])
      << "the data are remembered";
  const Result verified = program.run(0, {"data", "verify", what});
  expect_facts(verified.out, {"fashion-t10k-images-idx3-ubyte.bin  images 100 x 28 x 28"});
}

// Three kinds of small images in colour, 9 high and 8 wide: the brightest channel is the label.
struct Colours {
  Bytes images, labels;
};
Colours colours(size_t n) {
  Colours out{Bytes(n * 9 * 8 * 3), Bytes(n)};
  const Bytes noise = pattern(out.images.size());
  for (size_t i = 0; i < out.images.size(); ++i) {
    const size_t image = i / (9 * 8 * 3);
    out.labels[image] = uint8_t(image * 7 % 3);
    out.images[i] = uint8_t(noise[i] / 2 + (i % 3 == out.labels[image] ? 100 : 0));
  }
  return out;
}

TEST(MnistImages, ColourTrainsEvaluatesAndPredicts) {
  const Program program;
  const Colours all = colours(240);
  save(program, "x.npy", npy("|u1", "(240, 9, 8, 3)", all.images));
  save(program, "y.npy", npy("|u1", "(240,)", all.labels));
  const Words data{"--data", "x.npy,y.npy", "--threads", "1", "--batch", "16"};
  const Words net{"--model", "conv 6 3; relu; pool 2; flatten; linear 10"};
  for (const Words& model : {Words{"--hidden", "16"}, net}) {
    const Result r = program.run(0, Words{"train", "--lr", "0.01", "--epochs", "6"} + data + model);
    expect_facts(r.err, {"9x8x3"});
    const json read = json_of(program, {"eval", "--worst", "3", "--html", "w.html", "--force"});
    EXPECT_GT(read["accuracy"], 0.9);
    const std::string page = text_of(program.folder() / "w.html");
    expect_facts(page, {"\"channels\":3,\"rows\":9,\"columns\":8,\"items\":[{\"item\":"});
    EXPECT_FALSE(has(page, "https:"));
    program.run(0, {"predict", "--index", "1"});
    EXPECT_EQ(json_of(program, {"predict", "x.npy"})["predictions"].size(), 240u);
  }
  const Result compare = program.run(
      0, Words{"compare", "--rounds", "1", "--steps", "1", "--warmup", "0"} + data + net);

  // A model reads the images of one size.
  for (const Words& words :
      {Words{"eval", "--data", "synthetic"}, {"predict", "--index", "0", "--data", "synthetic"},
          {"train", "--init", "runs/last", "--data", "synthetic", "--limit", "100", "--dry-run"},
          {"compare", "--from", "runs/last", "--data", "synthetic"}}) {
    const Result r = program.run(3, words);
    EXPECT_EQ(r.out, "");
    expect_facts(r.err, {"images of another size: synthetic has 28x28, the model ", "reads 9x8x3"});
  }
  // A PNG is read in colour, and scaled.
  save(program, "large.png", png(16, 18, 3, pattern(864)));
  const Result large = program.run(0, {"predict", "large.png"});
  save(program, "same.png", png(8, 9, 3, pattern(216)));
  program.run(0, {"predict", "--raw", "same.png"});
  const Result raw = program.run(3, {"predict", "--raw", "large.png"});
  expect_facts(raw.err, {"not 9x8x3: ", "it is 18x16x3", "hint: leave out --raw to scale it"});
}

// Drawings are scaled to the size that the model reads.
TEST(MnistImages, PicturesOfAnotherSize) {
  const Program program;
  Bytes images(120 * 20 * 20), labels(120);
  for (size_t i = 0; i < 120; ++i) {  // a bar that stands or lies
    labels[i] = uint8_t(i % 2);
    for (size_t k = 3; k < 17; ++k)
      images[i * 400 + (i % 2 ? k * 20 + 10 : 200 + k)] = uint8_t(200 + i % 50);
  }
  save(program, "x.npy", npy("|u1", "(120, 20, 20)", images));
  save(program, "y.npy", npy("|u1", "(120,)", labels));
  program.run(0, {"train", "--data", "x.npy,y.npy", "--classes", "2", "--threads", "1", "--model",
                     "conv 4 5; relu; pool 4; flatten; linear 2", "--batch", "8", "--epochs", "5",
                     "--lr", "0.01"});
  Bytes drawing(60 * 40, 255);
  for (size_t y = 10; y < 50; ++y) drawing[y * 40 + 20] = drawing[y * 40 + 21] = 0;
  save(program, "bar.png", png(40, 60, 1, drawing));
  const Result r = program.run(0, {"predict", "bar.png"});
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 11) << r.out;
  EXPECT_EQ(json_of(program, {"predict", "bar.png"})["predictions"][0]["digit"], 1);
  const Result raw = program.run(3, {"predict", "--raw", "bar.png"});
  expect_facts(raw.err, {"png: not 20x20", "it is 60x40"});
}

TEST(MnistImagesSimt, AugmentationIsForTrainingAlone) {
  const Program program;
  const Words train{"train", "--limit", "300", "--hidden", "16", "--threads", "1", "--epochs", "2"};
  const json plain = json_of(program, train),
             changed = json_of(program, train + Words{"--augment", "rotate=20"});
  EXPECT_NE(plain["test"]["loss"], changed["test"]["loss"]);
  EXPECT_EQ(json_of(program, {"eval", "--limit", "300", "--threads", "1"})["loss"],
      changed["test"]["loss"]);
  const Result r = program.run(train + Words{"--augment", "shift=2", "--dry-run"});
  expect_facts(r.err, {"augmented, shift=2: a CPU thread makes each batch"});
  // The same images on a device that holds none of them.
  const json simt = json_of(program, {"train", "--limit", "64", "--hidden", "8", "--steps", "2",
                                         "--augment", "shift=2", "--device", "simt", "--val", "0"}),
             cpu = json_of(program, {"train", "--limit", "64", "--hidden", "8", "--steps", "2",
                                        "--augment", "shift=2", "--device", "cpu", "--val", "0"});
  EXPECT_NEAR(simt["test"]["loss"].get<double>(), cpu["test"]["loss"].get<double>(), 1e-4);
}

}  // namespace
}  // namespace sinter::test
