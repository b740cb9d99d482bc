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

json json_of(const Program& program, const Words& words, int status = 0) {
  const Result r = program.run(words + Words{"--json"});
  EXPECT_EQ(r.status, status) << r.err;
  return r.out.empty() ? json() : json::parse(r.out);
}
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
  EXPECT_EQ(program.run({"train", "--resume", "--epochs", "3"}).status, 0);
  const Result init = program.run({"train", "--init", "a", "--limit", "100", "--dry-run", "-v"});
  EXPECT_EQ(init.status, 0) << init.err;
  expect_facts(init.err, {"lenet 28x28-10, 61,706 parameters", "[128, 16, 10, 10]"});
  const Result confusion = program.run({"eval", "--limit", "100", "--confusion"});
  expect_facts(confusion.out, {"label  as 0  as 1"});
}

TEST(MnistNets, FusedTrainsTheSame) {
  const Program program;
  const json eager = json_of(program, kLenet + Words{"--val", "0"}),
             fused = json_of(program, kLenet + Words{"--val", "0", "--mode", "fused"});
  EXPECT_NEAR(
      fused["test"]["accuracy"].get<double>(), eager["test"]["accuracy"].get<double>(), 0.05);
  const Result compare = program.run({"compare", "--model", "lenet", "--batch", "8", "--rounds",
      "1", "--steps", "1", "--warmup", "0", "--threads", "1"});
  EXPECT_EQ(compare.status, 0) << compare.err;
  expect_facts(compare.out, {"compare lenet 28x28-10   batch 8",
                                "next     what was fused and why: --explain; the kernels' times"});
}

// The mean is taken away behind it, so its gradient is rounding, of which Adam makes whole steps.
TEST(MnistNets, CompareLeavesOutABiasBeforeBatchNorm) {
  const Result compare = Program().run(
      {"compare", "--model", "conv 4 3; batchnorm; relu; pool 2; flatten; linear 10", "--batch",
          "8", "--rounds", "1", "--steps", "1", "--warmup", "0", "--threads", "1", "--json"});
  EXPECT_EQ(compare.status, 0) << compare.err;
  EXPECT_EQ(json::parse(compare.out)["parity"]["not_compared"], json({"0.bias"}));
}

// The file holds PyTorch's keys for the same nn.Sequential, and one of them alone is taken, too.
TEST(MnistNets, WeightsHaveTheKeysOfASequential) {
  const Program program;
  ASSERT_EQ(program.run(kLenet + Words{"--steps", "2", "--out", "a"}).status, 2)
      << "--epochs and --steps exclude each other";
  ASSERT_EQ(
      program.run({"train", "--model", "lenet", "--limit", "64", "--steps", "2", "--out", "a"})
          .status,
      0);
  const auto path = (program.folder() / "a/model.safetensors").string();
  const nn::NamedTensors weights = nn::read_safetensors(path).tensors;
  const Tensor* kernel = nn::find(weights, "3.weight");
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->shape(), (Shape{16, 6, 5, 5}));
  nn::write_safetensors((program.folder() / "bare.safetensors").string(), weights);
  const Words dry{"train", "--limit", "64", "--dry-run", "--init", "bare.safetensors"};
  const Result taken = program.run(dry + Words{"--model", "lenet"});
  EXPECT_EQ(taken.status, 0) << taken.err;
  expect_facts(taken.err, {"init    ", "same keys"});
  const Result unknown = program.run(dry);
  EXPECT_EQ(unknown.status, 4);
  expect_facts(unknown.err,
      {"not a model of mnist", "10 tensors without sinter.config", "--model LAYERS --init FILE"});
  EXPECT_EQ(program.run({"eval", "--from", "bare.safetensors"}).status, 4);
}

TEST(MnistNets, FlagsAndLayersThatDoNotFitAreRefused) {
  const Program program;
  const std::pair<Words, Words> all[] = {
      {{"--model", "lenet", "--hidden", "32"},
          {"--model lenet has no use for --hidden, which is for mlp, geglu", "hint: leave it out"}},
      {{"--model", "cnn", "--act", "gelu"}, {"has no use for --act, which is for mlp"}},
      {{"--model", "linear", "--dropout", "0.1"}, {"--dropout, which is for mlp, cnn, cnn3"}},
      {{"--model", "flatten; linear 10", "--hidden", "32"},
          {"--model flatten; linear 10 has no use for --hidden"}},
      {{"--model", "lenat"},
          {"unknown --model: lenat; nearest is lenet; allowed mlp, linear, geglu, lenet, cnn, cnn3",
              "or layers: "}},
      {{"--model", "conv 16 5; rleu", "--limit", "50"},
          {"rleu at item 2: there is no rleu, nearest is relu; its input is [16, 24, 24]"}},
      {{"--model", "conv 16 29; relu", "--limit", "50"},
          {"the kernel 29x29 is larger than the input 28x28"}},
      {{"--model", "flatten; linear 7", "--limit", "50"},
          {"--model gives [7] for an image, wanted [10]", "hint: --classes 7, or linear 10"}},
      {{"--model", "conv 16 5; relu", "--limit", "50"},
          {"gives [16, 24, 24] for an image, wanted [10]", "hint: flatten; linear 10"}},
      {{"--augment", "shft=2"}, {"augment: unknown word: shft; nearest is shift"}}};
  for (const auto& [words, facts] : all) {
    const Result r = program.run(Words{"train", "--dry-run"} + words);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_EQ(r.out, "");
    expect_facts(r.err, facts);
  }
  // A preset may bring along what the model does not take.
  const Result preset =
      program.run({"train", "--preset", "fast98", "--model", "lenet", "--print-config"});
  EXPECT_EQ(preset.status, 0) << preset.err;
  EXPECT_FALSE(has(preset.out, "hidden")) << preset.out;
}

TEST(MnistNets, DropoutOfANamedNetCanBeSwitchedOff) {
  const Program program;
  const auto layers = [&](const Words& words) {
    const Words train{"train", "--model", "cnn", "--limit", "4", "--batch", "2", "--threads", "1",
        "--dry-run", "-v"};
    return program.run(train + words).err;
  };
  expect_facts(layers({}), {"model   cnn 28x28-10, 1,199,882 parameters",
                               "layers.7 / Linear(9216 -> 128)", "layers.10 / Linear(128 -> 10)"});
  expect_facts(layers({"--dropout", "0.3"}),
      {"cnn 28x28-10 dropout 0.3, 1,199,882 parameters", "layers.10 / Linear(128 -> 10)"});
  expect_facts(layers({"--dropout", "0"}),
      {"cnn 28x28-10 dropout 0, 1,199,882 parameters", "layers.8 / Linear(128 -> 10)"});
}

// The shape of Fashion-MNIST: its files have other names, and each is given.
TEST(MnistImages, FilesOfOtherNamesTrain) {
  const Program program;
  ASSERT_EQ(program.run({"data", "make", "d", "--train", "600", "--test", "100"}).status, 0);
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
  EXPECT_EQ(json_of(program, {"eval"})["loss"], trained["test"]["loss"])
      << "the data are remembered";
  const Result verified = program.run({"data", "verify", what});
  EXPECT_EQ(verified.status, 0) << verified.err;
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
    out.labels[image] = static_cast<uint8_t>(image * 7 % 3);
    out.images[i] = static_cast<uint8_t>(noise[i] / 2 + (i % 3 == out.labels[image] ? 100 : 0));
  }
  return out;
}

TEST(MnistImages, ColourTrainsEvaluatesAndPredicts) {
  const Program program;
  const Colours all = colours(240);
  save(program, "x.npy", npy(npy_dict("|u1", "(240, 9, 8, 3)"), all.images));
  save(program, "y.npy", npy(npy_dict("|u1", "(240,)"), all.labels));
  const Words data{"--data", "x.npy,y.npy", "--threads", "1", "--batch", "16"};
  const Words net{"--model", "conv 6 3; relu; pool 2; flatten; linear 10"};
  for (const Words& model : {Words{"--hidden", "16"}, net}) {
    const Result r = program.run(Words{"train", "--lr", "0.01", "--epochs", "6"} + data + model);
    ASSERT_EQ(r.status, 0) << r.err;
    expect_facts(r.err, {"9x8x3"});
    const json read = json_of(program, {"eval", "--worst", "3", "--html", "w.html", "--force"});
    EXPECT_GT(read["accuracy"], 0.9);
    const std::string page = Program::text(program.folder() / "w.html");
    expect_facts(page, {"\"channels\":3,\"rows\":9,\"columns\":8,\"items\":[{\"item\":"});
    EXPECT_FALSE(has(page, "https:"));
    EXPECT_EQ(program.run({"predict", "--index", "1"}).status, 0);
    const json all_read = json_of(program, {"predict", "x.npy"});
    EXPECT_EQ(all_read["predictions"].size(), 240u);
  }
  const Result compare =
      program.run(Words{"compare", "--rounds", "1", "--steps", "1", "--warmup", "0"} + data + net);
  EXPECT_EQ(compare.status, 0) << compare.err;

  // A model reads the images of one size.
  for (const Words& words :
      {Words{"eval", "--data", "synthetic"}, {"predict", "--index", "0", "--data", "synthetic"},
          {"train", "--init", "runs/last", "--data", "synthetic", "--limit", "100", "--dry-run"},
          {"compare", "--from", "runs/last", "--data", "synthetic"}}) {
    const Result r = program.run(words);
    EXPECT_EQ(r.status, 3) << r.err;
    EXPECT_EQ(r.out, "");
    expect_facts(r.err, {"images of another size: synthetic has 28x28, the model ", "reads 9x8x3"});
  }
  // A PNG is read in colour, and scaled.
  save(program, "large.png", png(16, 18, 3, pattern(864)));
  const Result large = program.run({"predict", "large.png"});
  EXPECT_EQ(large.status, 0) << large.err;
  save(program, "same.png", png(8, 9, 3, pattern(216)));
  EXPECT_EQ(program.run({"predict", "--raw", "same.png"}).status, 0);
  const Result raw = program.run({"predict", "--raw", "large.png"});
  EXPECT_EQ(raw.status, 3);
  expect_facts(raw.err, {"not 9x8x3: ", "it is 18x16x3", "hint: leave out --raw to scale it"});
}

// Drawings are scaled to the size that the model reads.
TEST(MnistImages, PicturesOfAnotherSize) {
  const Program program;
  Bytes images(120 * 20 * 20), labels(120);
  for (size_t i = 0; i < 120; ++i) {  // a bar that stands or lies
    labels[i] = static_cast<uint8_t>(i % 2);
    for (size_t k = 3; k < 17; ++k)
      images[i * 400 + (i % 2 ? k * 20 + 10 : 200 + k)] = static_cast<uint8_t>(200 + i % 50);
  }
  save(program, "x.npy", npy(npy_dict("|u1", "(120, 20, 20)"), images));
  save(program, "y.npy", npy(npy_dict("|u1", "(120,)"), labels));
  ASSERT_EQ(program
                .run({"train", "--data", "x.npy,y.npy", "--classes", "2", "--threads", "1",
                    "--model", "conv 4 5; relu; pool 4; flatten; linear 2", "--batch", "8",
                    "--epochs", "5", "--lr", "0.01"})
                .status,
      0);
  Bytes drawing(60 * 40, 255);
  for (size_t y = 10; y < 50; ++y) drawing[y * 40 + 20] = drawing[y * 40 + 21] = 0;
  save(program, "bar.png", png(40, 60, 1, drawing));
  const Result r = program.run({"predict", "bar.png"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 11) << r.out;
  EXPECT_EQ(json_of(program, {"predict", "bar.png"})["predictions"][0]["digit"], 1);
  const Result raw = program.run({"predict", "--raw", "bar.png"});
  EXPECT_EQ(raw.status, 3);
  expect_facts(raw.err, {"png: not 20x20", "it is 60x40"});
}

TEST(MnistImagesSimt, AugmentationIsForTrainingAlone) {
  const Program program;
  const Words train{"train", "--limit", "300", "--hidden", "16", "--threads", "1", "--epochs", "2"};
  const json plain = json_of(program, train),
             changed = json_of(program, train + Words{"--augment", "rotate=20"});
  EXPECT_NE(plain["test"]["loss"], changed["test"]["loss"]);
  EXPECT_EQ(json_of(program, {"eval", "--limit", "300"})["loss"], changed["test"]["loss"]);
  const Result r = program.run(train + Words{"--augment", "shift=2", "--dry-run"});
  expect_facts(r.err, {"augmented, shift=2: a CPU thread makes each batch"});
  // The same images on a device that holds none of them.
  const json simt = json_of(program, {"train", "--limit", "64", "--hidden", "8", "--steps", "2",
                                         "--augment", "shift=2", "--device", "simt", "--val", "0"}),
             cpu = json_of(program, {"train", "--limit", "64", "--hidden", "8", "--steps", "2",
                                        "--augment", "shift=2", "--device", "cpu", "--val", "0"});
  EXPECT_NEAR(simt["test"]["loss"].get<double>(), cpu["test"]["loss"].get<double>(), 1e-4);
}

TEST(MnistPresets, NameTheirNets) {
  const Program program;
  const Result fast = program.run({"train", "--preset", "fast99", "--print-config"});
  expect_facts(fast.out, {"model = \"conv 8 5; relu; pool 2; conv 24 3; relu; pool 2; flatten; ",
                             "betas = \"0.7,0.9\"\n", "target-acc = 99\n", "mode = \"fused\"\n"});
  const Result best = program.run({"train", "--preset", "best", "--print-config"});
  expect_facts(best.out, {"model = \"cnn3\"\n", "augment = \"shift=2,rotate=10,scale=10\"\n",
                             "epochs = 15\n", "target-acc = 99.4\n"});
  EXPECT_EQ(program
                .run({"train", "--preset", "best", "--dry-run", "--limit", "8", "--batch", "4",
                    "--target-acc", "0"})
                .status,
      0);
}

}  // namespace
}  // namespace sinter::test
