// mnist compare as a user runs it.
#include <gtest/gtest.h>

#include "core/numbers.h"
#include "nn/mlp.h"
#include "nn/safetensors.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

// The compared step has one learning rate on both sides, however many steps a side took before it.
TEST(MnistCompare, ParityHoldsUnderEveryScheduleAndWarmUp) {
  for (const Words& words : {Words{"--schedule", "onecycle"}, {"--lr-warmup", "10"},
           {"--schedule", "cosine", "--optimizer", "sgd"},
           {"--schedule", "step", "--lr-warmup", "50%"}}) {
    Words all{"compare", "--data", "synthetic", "--hidden", "16", "--threads", "1", "--measure",
        "off", "--rounds", "1", "--steps", "1", "--warmup", "0"};
    all.insert(all.end(), words.begin(), words.end());
    const Result r = Program().run(0, all);
  }
}

const Words kOneRound{"compare", "--data", "synthetic", "--threads", "1", "--measure", "off",
    "--rounds", "1", "--steps", "1", "--warmup", "0"};

// Agreement by the numbers, and not by what compare makes of them. Returns whether the gradients
// differ at all, as those of two ways to compute them mostly do.
bool expect_agreement(
    const Program& program, const Words& words, const char* device, bool cancels = false) {
  const nlohmann::json found = json_of(program, kOneRound + words + Words{"--device", device});
  const nlohmann::json parity = found["parity"];
  const double limit = found["dtype"] == "f32" ? 1e-5 : 2e-2;
  EXPECT_LE(parity["loss"], limit);
  EXPECT_LE(parity["gradients"], limit);
  EXPECT_LE(parity["state"], 2 * limit) << "of squares";
  // A first update is lr times the gradient, its sign, or ten times that: by another sign it parts
  // twice as far.
  const std::string optimizer = found["optimizer"];
  EXPECT_LE(parity["weights_lr"], optimizer == "sgd"       ? limit
                                  : optimizer == "rmsprop" ? 20.1
                                                           : 2.01)
      << optimizer;
  // Batch norm takes off what a bias adds before it, and what the only weight of a channel scales.
  const bool scales = has(testing::PrintToString(words), "conv 3 1; batchnorm");
  for (const std::string name : parity["not_compared"]) {
    EXPECT_TRUE(cancels && (name.ends_with(".bias") || (scales && name == "0.weight")))
        << name << testing::PrintToString(words);
  }
  return parity["gradients"] > 0;
}

constexpr const char* kDtypes[] = {"f32", "bf16"};
const Words kOptimizers{"sgd", "adam", "adamw", "rmsprop", "lion"};

// Right kernels part by rounding: no model, type, optimizer or activation is accused of it.
void check_models(
    const char* device, const Words& models, const char* batch, const Words& optimizers) {
  const Program program;
  int runs = 0, differ = 0;
  for (const std::string& model : models) {
    const bool cancels = has(model, "batchnorm") || model == "cnn3";  // what a bias adds before it
    for (const char* dtype : kDtypes) {
      for (const std::string& optimizer : optimizers) {
        // That the others agree is found without a sanitizer; their memory is that of Adam's.
        if (test::kSanitized && optimizer != "adam") continue;
        Words words{"--model", model, "--dtype", dtype, "--optimizer", optimizer, "--batch", batch};
        if (model == "mlp" || model == "geglu") words = words + Words{"--hidden", "16"};
        ++runs;
        differ += expect_agreement(program, words, device, cancels);
        if (optimizer == "sgd")
          expect_agreement(program, words + Words{"--momentum", "0"}, device, cancels);
      }
    }
  }
  EXPECT_GE(differ, runs / 2) << "of " << runs << ": a step was compared with itself";
}
const Words kLayers{"conv 1 1; flatten; linear 10; softplus",
    "conv 3 1; batchnorm; relu; flatten; linear 10",
    "conv 4 5; batchnorm; relu; pool 2; flatten; linear 10",
    "flatten; linear 16; layernorm; mish; linear 10"};

TEST(MnistCompare, EveryModelAgrees) {
  check_models("cpu", Words{"mlp", "linear", "geglu", "lenet"} + kLayers, "8", kOptimizers);
  // Ten times as large, of the same ops as lenet.
  check_models("cpu", {"cnn", "cnn3"}, "2", {"adam"});
}
// An update alone is the CPU's to the bit (tests/ops/device_parity_test.cpp).
TEST(MnistCompareSimt, SmallModelsAgree) {
  check_models("simt", {"mlp", "geglu", kLayers[3]}, "4", {"adam", "lion"});
}

TEST(MnistCompare, EveryActivationAgrees) {
  const Program program;
  for (const char* act : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softplus",
           "mish", "leaky_relu", "elu"}) {
    for (const char* dtype : kDtypes) {
      for (const std::string optimizer : {"sgd", "adam"}) {
        if (test::kSanitized && optimizer == "sgd") continue;
        expect_agreement(program,
            {"--model", str("flatten; linear 16; ", act, "; linear 10"), "--dtype", dtype,
                "--optimizer", optimizer, "--batch", "8"},
            "cpu");
      }
    }
  }
}

// A NaN on both sides is no difference and no success; each command says where it comes from.
TEST(MnistCompare, ANanOfAWeightIsNamedByEachCommand) {
  const Program program;
  const nn::Mlp model({784, 16, 10});
  model.parameters()[0].data<float>()[2 * 784 + 5] = NAN;
  nn::write_safetensors((program.folder() / "nan.safetensors").string(), model.state_dict());
  const Words from{"--from", "nan.safetensors", "--data", "synthetic", "--threads", "1"};
  expect_facts(program.run(6, kOneRound + from + Words{"--rules", "none", "--batch", "4"}).err,
      {"compare: nan on both sides: loss at [0]", "linear: the result is nan: first at [0, 2]",
          "operand 1, ", "0.weight, has nan at [2, 5]", "Linear(784 -> 16)"});
  const Result blamed = program.run(6, Words{"compare", "--blame", "--batch", "4"} + from);
  expect_facts(blamed.out, {"verdict none of ", "the first nan, in f64 as well, is that of "});
  const Result read = program.run(6, Words{"eval", "--limit", "50"} + from);
  expect_facts(read.out, {"loss nan"});
  EXPECT_FALSE(has(read.out, "-nan")) << read.out;
  expect_facts(read.err, {"eval: loss is nan: ", "0.weight has nan at [2, 5]"});
  const Result predicted = program.run(6, Words{"predict", "--index", "0"} + from);
  expect_facts(predicted.out, {"nan %"});
  EXPECT_FALSE(has(predicted.out, "-nan")) << predicted.out;
  expect_facts(predicted.err, {"predict: probabilities are nan", "0.weight has nan at [2, 5]"});
}

// The steps that are timed may run away from weights that are compared.
TEST(MnistCompare, ANanOfTrainingIsNamed) {
  const Result r =
      Program().run(0, {"compare", "--data", "synthetic", "--threads", "1", "--measure", "off",
                           "--rules", "none", "--optimizer", "sgd", "--lr", "1e6", "--hidden",
                           "64,32", "--batch", "16", "--rounds", "2", "--steps", "10"});
  expect_facts(r.err, {"only the first steps are compared", ": the result is nan: first at "});
}

}  // namespace
}  // namespace sinter::test
