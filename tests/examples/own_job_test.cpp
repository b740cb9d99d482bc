// What a program of a user's own (own_job.cpp) gets of the frame: no row of its batch is a picture,
// and none of its targets a class.
#include <gtest/gtest.h>

#include "tests/examples/program.h"

namespace sinter {
namespace {

using namespace test;

struct OwnJob : Program {
  OwnJob() { name = "own_job"; }
};

TEST(OwnJob, ComparesItsStepAndProfilesIt) {
  const OwnJob program;
  const Words small{"--threads", "1", "--steps", "2", "--rounds", "2", "--length", "7"};
  const Result r = program.run(0,
      Words{"compare", "--profile=table,json", "--expect", "row:weight_grad_update.launches==2"} +
          small);
  expect_facts(r.out, {"compare waves of 7 numbers   batch 16   f32   adam, cpu, 1 thread",
                          "CPU eager", "CPU fused", "parity: loss ", "weight_grad_update x2"});
  for (const char* file : {"waves_b16_f32_cpu_eager.json", "waves_b16_f32_cpu_fused.json"})
    expect_facts(program.run(0, {"diff", file, file}).out, {"waves of 7 numbers, adam"});
  const nlohmann::json json = json_of(program, Words{"compare", "--optimizer", "sgd"} + small);
  EXPECT_EQ(json["model"], "waves of 7 numbers");
  EXPECT_LE(json["parity"]["gradients"], 1e-5);
  expect_facts(program.run(0, Words{"compare", "--blame"} + small).out, {"none of "});
}

TEST(OwnJob, InspectsItsStep) {
  const OwnJob program;
  expect_facts(program.run(0, {"inspect", "--text", "--batch-size", "3", "--threads", "1"}).out,
      {"waves of 12 numbers   f32   batch 3   adam"});
  program.run(0, {"inspect", "--threads", "1"});
  EXPECT_TRUE(std::filesystem::exists(program.folder() / "step.html"));
  // Hints name the program that runs, and none that is not there.
  expect_facts(program.run(2, {"diff", "a"}).err, {"hint: own_job diff A.json B.json"});
  expect_facts(program.run(2, {"compare", "--lr", "x"}).err, {"usage: --lr is not a number: x"});
}

}  // namespace
}  // namespace sinter
