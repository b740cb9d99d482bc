// --blame as a user runs it, and its exit status where a kernel is wrong.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/comparison.h"
#include "cli/process.h"
#include "ops/fused/fused.h"
#include "tests/capture/step_util.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

const Words kBlameWords{"compare", "--blame", "--data", "synthetic", "--threads", "1"};

Result geglu_blame(const Words& more) {
  Program program;
  program.name = "geglu";
  return program.run(0, Words{"--blame", "--batch", "1", "--seq", "17", "--dim", "24", "--hidden",
                            "40", "--threads", "1"} +
                            more);
}

TEST(MnistBlameSimt, HoldsEveryOpOfTheStepAgainstF64) {
  const Program program;
  const Result r = program.run(
      0, kBlameWords + Words{"--hidden", "16", "--batch", "9", "--devices", "cpu,simt"});
  expect_facts(r.out, {"blame   mlp 784-16-10 relu   batch 9", "cpu eager ", "cpu fused ",
                          "simt eager ", "simt fused ", " linear_act ", "Bound", "layers.0",
                          "verdict none of ", " ops exceeds its bound"});
  const Result lenet = program.run(0, kBlameWords + Words{"--model", "lenet", "--batch", "3",
                                                        "--dtype", "bf16", "--device", "cpu"});
  expect_facts(lenet.out, {"conv_act_pool_backward"});
}

TEST(MnistBlame, AsJson) {
  const auto object =
      json_of(Program(), kBlameWords + Words{"--hidden", "16", "--batch", "9", "--device", "cpu"});
  EXPECT_EQ(object["schema"], "sinter.blame/1");
  EXPECT_TRUE(object["first"].is_null());
  EXPECT_TRUE(object["ops"][0]["op"].get<std::string>().ends_with(" linear"));
  EXPECT_LE(object["ops"][0]["error"], object["ops"][0]["bound"]);
}

TEST(GegluBlameSimt, HoldsTheGatedBlockAgainstF64) {
  for (const char* dtype : {"f32", "bf16"}) {
    const Result r = geglu_blame({"--devices", "cpu,simt", "--dtype", dtype});
    expect_facts(r.out, {"gated_linear_backward", "verdict none of "});
  }
}

// No program has a wrong kernel to run: the same code, with one.
TEST(Blame, AWrongKernelIsExitCode7) {
  TrainOptions small{.sizes = {12, 8, 4}};
  Training training(small);
  capture::Step step(training.function(), training.step_options());
  const Tensors batch = batch_of(small, 5, 1);
  for (int i = 0; i < 2; ++i) step(batch);
  cli::CommonFlags common;
  common.quiet = true;
  const cli::FusionFlags fusion;
  cli::ComparisonFlags flags;
  flags.blame = true;
  cli::Output out(common);
  cli::CompareRun compare_run{common, fusion, flags, out, "compare", "mlp", "mlp"};
  compare_run.comparison.step = &step;
  compare_run.inputs = batch;
  const auto launch = [](const Call& call) {
    launch_op(call);
    if (call.op.label_of(call.attrs) == profiler::StaticName("linear_act") &&
        call.out[0].numel() > 3)
      call.out[0].data<float>()[3] += 1;
  };
  testing::internal::CaptureStdout();
  const std::string message =
      message_of([&] { compare_run.blame({.launch = launch}); }, Error::Kind::check);
  expect_facts(testing::internal::GetCapturedStdout(), {"linear_act", "EXCEEDS", "verdict cpu"});
  expect_facts(message, {"compare: cpu fused: %", " linear_act is wrong: result 0 [0, 3], error ",
                            "rule linear_act", "hint: --rules=-linear_act goes without it"});
  EXPECT_EQ(cli::exit_code(Error::Kind::check), 7);
}

}  // namespace
}  // namespace sinter::test
