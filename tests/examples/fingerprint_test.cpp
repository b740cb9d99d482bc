// `train --fingerprint` and `diff RUN RUN`.
#include <gtest/gtest.h>

#include "tests/examples/program.h"

namespace sinter {
namespace {

using namespace test;

const Words kTrain{"train", "--limit", "640", "--batch", "16", "--val", "0", "--epochs", "1",
    "--threads", "1", "--fingerprint"};

Words run(const char* folder) { return Words{"--out", folder}; }

TEST(Fingerprint, EqualRunsAreEqualAndItsCostIsTold) {
  for (const char* mode : {"eager", "fused"}) {
    const Program program;
    const Words train = kTrain + Words{"--mode", mode, "--dropout", "0.2", "--schedule", "onecycle",
                                     "--clip", "1", "--augment", "shift=2"};
    const Result r = program.run(0, train + run("a"));
    expect_facts(r.err, {"prints  ", " of a step hashed in ", " GB/s, ", "mnist diff RUN RUN"});
    program.run(0, train + run("b"));
    expect_facts(program.run(0, {"diff", "a", "b"}).out, {"equal   to the bit: steps 0 to 40, "});
    EXPECT_EQ(json_of(program, {"diff", "a", "b"})["what"], "nothing");
  }
}

// An ulp in one call of a kernel: there, and what it read is equal. The first step of a fused run
// runs op by op; in the others four products have an end.
TEST(Fingerprint, TellsTheKernelThatAddsAnUlpInStep37) {
  struct Planted {
    const char *mode, *kernel, *name;
    int64_t call;
  };
  for (const auto& [mode, kernel, name, call] : {Planted{"eager", "relu", "relu", 36 * 2 + 2},
           {"fused", "product_chain", "linear_act", 142}}) {
    Program right, wrong;
    wrong.name = "mnist_wrong";
    const Words train = kTrain + Words{"--hidden", "32,16", "--mode", mode};
    wrong.environment = {str("WRONG_KERNEL=", kernel, " out0 1e-7 ", call)};
    right.run(0, train + run("a"));
    wrong.run(0, train + Words{"--out", (right.folder() / "b").string()});
    const nlohmann::json found = json_of(right, {"diff", "a", "b"});
    EXPECT_EQ(found["step"], 37) << found;
    EXPECT_EQ(found["what"], "written");
    EXPECT_EQ(found["name"], name);
    EXPECT_EQ(found["tensor"], "f32[16, 16]");
    expect_facts(right.run(0, {"diff", "a", "b"}).out,
        {"part    in step 37, op ", "in MLP / layers.", "inputs  equal to the bit",
            "before  steps 0 to 36, ", "heads   build is ", "A       own kernel, 1 thread, "});
  }
}

TEST(Fingerprint, AnotherNumberOfThreadsPartsAtALibraryOrNowhere) {
  const Program program;
  for (const char* threads : {"1", "2", "3"})
    program.run(0, kTrain + Words{"--hidden", "300,200", "--threads", threads} + run(threads));
  for (const char* other : {"2", "3"}) {
    const nlohmann::json found = json_of(program, {"diff", "1", other});
    if (found["what"] == "nothing") continue;
    EXPECT_EQ(found["what"], "written") << found;
    EXPECT_NE(found["library_a"], "") << found;
    EXPECT_NE(found["library_b"], "") << found;
  }
}

TEST(Fingerprint, OfEagerAndFusedPointsToBlame) {
  const Program program;
  for (const char* mode : {"eager", "fused"})
    program.run(0, kTrain + Words{"--mode", mode} + run(mode));
  expect_facts(program.run(0, {"diff", "eager", "fused"}).out,
      {"part    in step 2, op ", "A runs linear, B linear_act, in ",
          "heads   mode is \"eager\" in A, \"fused all\" in B", "why     a fused op rounds ",
          "next    mnist compare --blame holds each op"});
}

TEST(Fingerprint, OfARunThatGoesOnIsThatOfTheWholeOne) {
  const StoppingProgram program;
  program.run(0, kTrain + run("a"));
  program.run(130, kTrain + Words{"--stop-after", "17"} + run("b"));
  program.run(0, {"train", "--resume", "b", "--fingerprint"});
  Program mnist;
  const std::string a = (program.folder() / "a").string(), b = (program.folder() / "b").string();
  expect_facts(mnist.run(0, {"diff", a, b}).out, {"equal   to the bit: steps 18 to 40, "});
}

TEST(Fingerprint, EqualOnTheEmulatorAndOfAGptSimt) {
  Program program;
  const Words few{"--device", "simt", "--limit", "64", "--hidden", "8"};
  program.run(0, kTrain + few + run("a"));
  program.run(0, kTrain + few + run("b"));
  expect_facts(program.run(0, {"diff", "a", "b"}).out, {"equal   to the bit: steps 0 to 4, "});
  program.name = "gpt";
  const Words gpt{"train", "--device", "cpu", "--steps", "30", "--fingerprint=3"};
  program.run(0, gpt + run("c"));
  program.run(0, gpt + run("d"));
  expect_facts(program.run(0, {"diff", "c", "d"}).out, {"equal   to the bit: steps 0 to "});
  expect_facts(program.run(0, {"resume-check", "c"}).out, {" resumes to the bit: "});
}

TEST(Fingerprint, RefusesWhatHasNone) {
  const Program program;
  program.run(
      0, {"train", "--limit", "64", "--val", "0", "--epochs", "1", "--threads", "1", "--out", "a"});
  expect_facts(program.run(3, {"diff", "a", "a"}).err,
      {"data: no fingerprints in the run: a", "hint: mnist train --fingerprint keeps them"});
  expect_facts(program.run(2, {"train", "--fingerprint", "--profile"}).err,
      {"usage: --fingerprint and --profile exclude each other: both are given"});
  expect_facts(program.run(2, {"train", "--fingerprint", "--dry-run"}).err,
      {"usage: --fingerprint and --dry-run exclude each other"});
}

}  // namespace
}  // namespace sinter
