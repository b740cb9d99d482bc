// `mnist` on the emulator: every command, small. The numbers are those of the CPU; the times are
// nobody's, and the programs say so.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/closeness.h"
#include "tests/examples/program.h"
#include "tests/gpu_test.h"

namespace sinter {
namespace {

using nlohmann::json;
using test::has;
using test::Program;
using test::operator+;
using test::Result;
using test::Words;

const Words kTrain{"train", "--data", "synthetic", "--limit", "64", "--epochs", "1", "--hidden",
    "24,16", "--batch-size", "24", "--val", "0", "--seed", "3"};

void check_training(const std::string& device) {
  for (const char* mode : {"eager", "fused"}) {
    const Program program;
    json found[2];
    for (const bool other : {false, true}) {
      const Result r = program.run(
          0, kTrain + Words{"--mode", mode, "--json", "--epochs=2", "--dropout", "0.2", "--out",
                          other ? "there" : "here", "--device", other ? device : "cpu"});
      EXPECT_EQ(has(r.err, "its times mean nothing"), other && device == "simt") << r.err;
      found[other] = json::parse(r.out);
    }
    EXPECT_TRUE(found[1]["device"].get<std::string>().starts_with(device));
    for (const int epoch : {0, 1}) {
      const double here = found[0]["epochs"][epoch]["loss"],
                   there = found[1]["epochs"][epoch]["loss"];
      EXPECT_NEAR(there, here, 1e-3 * here) << mode;
    }
    const json eval =
        json_of(program, {"eval", "--from", "there", "--limit", "64", "--device", device});
    EXPECT_NEAR(eval["loss"].get<double>(), found[1]["test"]["loss"].get<double>(), 1e-5);
    json probabilities[2];
    for (const bool other : {false, true}) {
      const json read = json_of(program,
          {"predict", "--index", "0", "--from", "there", "--device", other ? device : "cpu"});
      probabilities[other] = read["predictions"][0]["probabilities"];
    }
    EXPECT_TRUE(test::close(probabilities[1].get<std::vector<double>>(),
        probabilities[0].get<std::vector<double>>(), {.absolute = 1e-5}));
  }
}
TEST(MnistSimt, TrainsAsTheCpuDoes) { check_training("simt"); }
using MnistGpu = test::GpuTest;
TEST_F(MnistGpu, TrainsAsTheCpuDoes) { check_training("cuda"); }
// The library's kernels on one side, own ones on the other, which cut operands otherwise.
TEST_F(MnistGpu, ComparesNetsInTf32) {
  const Result r =
      Program().run(0, {"compare", "--data", "synthetic", "--model", "lenet", "--dtype", "tf32",
                           "--device", "cuda", "--rounds", "1", "--steps", "1"});
  test::expect_facts(r.out, {", by TF32 "});
}

TEST(MnistSimt, ComparesAndCountsLaunches) {
  const Program program;
  const Result r = program.run(0, {"compare", "--data", "synthetic", "--batch-size", "24",
                                      "--hidden", "24,16", "--device", "simt"});
  test::expect_facts(
      r.out, {"   simt, ", "not timed on simt\n", " launches (claimed 2, counted 2), ",
                 "\nparity   ", "TOTAL", "- -> "});
  EXPECT_FALSE(has(r.out, "INCOMPLETE")) << r.out;
  EXPECT_FALSE(has(r.out, "nan")) << r.out;
  const json o = json_of(program, {"compare", "--data", "synthetic", "--batch-size", "24",
                                      "--hidden", "24,16", "--device", "simt", "--rules", "none"});
  EXPECT_EQ(o["launches"], (json{{"eager", 25}, {"fused", 25}, {"complete", true}}));
  EXPECT_TRUE(o["eager_us"].is_null());
}

}  // namespace
}  // namespace sinter
