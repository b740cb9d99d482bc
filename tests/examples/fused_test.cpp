// Mode fused, compare and graph files of the `mnist` program, run as a subprocess: the same
// numbers, the counts of every rule set, and what is said and refused.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

const Words kSmallFused{"train", "--limit", "2000", "--hidden", "32", "--threads", "1", "--batch",
    "32", "--lr", "0.005"};
const Words kFused{"--mode", "fused"};
const Words kCompare{"compare", "--threads", "1", "--rounds", "1", "--steps", "1", "--warmup", "0"};

TEST(MnistFused, LearnsWhatEagerLearns) {
  const Program program;
  const Words recipe =
      kSmallFused + Words{"--epochs", "1", "--json", "--dropout", "0.1", "--schedule", "onecycle"};
  const Result eager = program.run(0, recipe + Words{"--mode", "eager"}),
               fused = program.run(0, recipe + Words{"-v"});
  const json e = json::parse(eager.out), f = json::parse(fused.out);
  EXPECT_EQ(f["mode"], "fused");
  EXPECT_GT(f["test"]["accuracy"], 0.6);
  EXPECT_NEAR(f["test"]["accuracy"].get<double>(), e["test"]["accuracy"].get<double>(), 0.03);
  // 62 whole batches, of which the first ran, and a ragged one, which ran.
  expect_facts(fused.err, {" (rules all), 61 of 63 steps replayed\n", ", 1 capture in ",
                              ", 0 allocations per replay\n"});
}

TEST(MnistFused, BatchesOfBothSizesAreCaptured) {
  const Result r = Program().run(0, kSmallFused + Words{"-v", "--epochs", "3", "--rules", "none"});
  expect_facts(r.err, {"17 launches -> 17 (rules none), 187 of 189 steps replayed\n",
                          ", 2 captures in ", ", 0 allocations per replay\n"});
}

TEST(MnistFused, ExplainNamesGroupsAndDumpGraphWritesTheRewrittenStep) {
  const Program program;
  const Words train{"train", "--limit", "200", "--threads", "1"};
  const Result r = program.run(
      0, train + kFused + Words{"--steps", "4", "--explain", "--dump-graph", "step.txt"});
  expect_facts(
      r.out, {"\ngroup 1  softmax_xent ", "\ngroup 8  weight_grad_update  <- ",
                 "adam_update of 0.weight", "\nmemory   ", "\n25 launches -> 9 (rules all)\n"});
  const std::string graph = text_of(program.folder() / "step.txt");
  EXPECT_TRUE(graph.starts_with("{\"schema\": \"sinter.graph/2\""));
  expect_facts(graph, {" = gather_batch(", " = linear_act(%", "\n  \"weight_grad_update("});

  // A training step is no graph to predict with.
  const Result refused = program.run(3, {"predict", "--index", "0", "--graph", "step.txt"});
  EXPECT_EQ(refused.out, "");
  expect_facts(refused.err,
      {"graph: not for predict: step.txt; it changes ", "hint: mnist predict --dump-graph F"});

  // A run too short for a capture says so.
  const Result brief = program.run(train + kFused + Words{"--steps", "1"});
  expect_facts(brief.err, {"capture none: ", "this run had 1 step\n"});

  const Result dry = program.run(0, train + kFused + Words{"--dry-run", "--explain"});
  expect_facts(dry.out, {"dry run 3 steps: ", "25 launches -> 9 (rules all)"});
  expect_facts(dry.err, {", 2 of 3 steps replayed"});
}

TEST(MnistFused, CompareCountsLaunchesAndBytesOfEachRuleSet) {
  struct Case {
    const char *rules, *optimizer;
    int launches;
    int64_t eager_bytes, bytes;
  };
  const Program program;
  for (const Case& c :
      {Case{"all", "adam", 9, 11'685'736, 8'794'904}, Case{"all", "sgd", 9, 9'804'568, 6'913'736},
          Case{"all,-weight_grad_update", "adam", 10, 11'685'736, 10'676'072},
          Case{"none", "adam", 25, 11'685'736, 11'685'736},
          Case{"linear_act", "adam", 23, 11'685'736, 11'292'520}}) {
    const json o =
        json_of(program, kCompare + Words{"--rules", c.rules, "--optimizer", c.optimizer});
    EXPECT_EQ(o["schema"], "sinter.compare/1");
    EXPECT_EQ(o["launches"], (json{{"eager", 25}, {"fused", c.launches}, {"complete", true}}))
        << c.rules;
    EXPECT_EQ(o["bytes"], (json{{"eager", c.eager_bytes}, {"fused", c.bytes}})) << c.rules;
    EXPECT_EQ(o["flops"]["eager"], o["flops"]["fused"]) << c.rules;
    EXPECT_LT(o["parity"]["loss"], 1e-5);
    EXPECT_LT(o["parity"]["gradients"], 1e-5);
    EXPECT_TRUE(o["ratio"]["value"].is_null()) << "no factor from one pair of rounds";
    int64_t launches = 0, bytes = 0;
    for (const json& row : o["table"]) {
      launches += row["launches"][1].get<int>();
      bytes += row["bytes"][1].get<int64_t>();
    }
    EXPECT_EQ(launches, c.launches);
    EXPECT_EQ(bytes, c.bytes);
  }
}

// What compare shows is what train does: nothing is decided by the clock unless --measure on asks
// for it.
TEST(MnistFused, CompareRunsThePlanOfTrain) {
  const Program program;
  const Result trained =
      program.run({"train", "--mode", "fused", "--limit", "400", "--steps", "3", "--threads", "1"});
  expect_facts(trained.err, {"25 launches -> 9 (rules all)"});
  for (int again = 0; again < 3; ++again) {
    expect_facts(program.run(kCompare).out, {" launches (claimed 9, counted 9), "});
  }
  const Result measured = program.run(kCompare + Words{"--measure", "on", "--explain"});
  expect_facts(measured.out, {"choice   measured: a group goes where the whole step "});
}

TEST(MnistFused, ComparePrintsTheTableAndChecks) {
  const Program program;
  const Result r = program.run(0,
      kCompare + Words{"--explain", "--dump-graph", "g.txt", "--rules", "all,-weight_grad_update"});
  EXPECT_TRUE(r.out.starts_with(
      "compare mlp 784-256-128-10 relu   batch 128   f32   adam   cpu, 1 thread"));
  expect_facts(
      r.out, {"\nstep     ", "no factor: ", " all,-weight_grad_update ",
                 "\ncounted  25 -> 10 launches (claimed 10, counted 10), 11.69 -> 10.68 MB moved\n",
                 "\nparity   ", "\nnext     ", "\nsoftmax_xent <- log_softmax, ", "  same op\n",
                 "\ngroup 9  multi_tensor_update  <- adam_update x6     saves 5 launches"});
  for (const char c : r.out + r.err) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int(c);
  EXPECT_EQ(text_of(program.folder() / "g_eager.txt").find("linear_act"), std::string::npos);
  expect_facts(text_of(program.folder() / "g_fused.txt"),
      {"linear_act", "multi_tensor_update", "\"gradient %"});

  const Result strict = program.run(7, kCompare + Words{"--max-rel", "0"});
  expect_facts(strict.out, {"\nparity   "});
  expect_facts(strict.err, {"compare: results differ: ", ", max rel ", "; allowed 0\n"});

  // A rate of zero leaves the weights as they are; a clipped gradient cannot be consumed by its
  // update.
  const Words no_rate = kCompare + Words{"--optimizer", "sgd", "--lr", "0", "--clip", "1",
                                       "--batch", "7", "--limit", "5"};
  expect_facts(program.run(0, no_rate).out,
      {"   batch 5   ", "clip_norm ",
          "not fused: 3 near misses, 0 groups not faster here (--explain)\n"});
  EXPECT_EQ(json_of(program, no_rate)["parity"]["weights_lr"], 0);
}

TEST(MnistFused, CompareTakesWeightsFromAFileAndGradientsInParts) {
  const Program program;
  program.run(0, kSmallFused + Words{"--steps", "2", "--out", "a"});
  const Result from = program.run(0, kCompare + Words{"--from", "a"});
  EXPECT_TRUE(from.out.starts_with("compare mlp 784-32-10 relu   batch 128   ")) << from.out;
  expect_facts(from.err, {"model   a/model.safetensors (same keys)\n"});

  const Words accum{"--hidden", "16", "--batch", "16", "--accum", "2"};
  EXPECT_TRUE(program.run(kCompare + accum)
                  .out.starts_with("compare mlp 784-16-10 relu   batch 32 in parts of 16   "));
  const json o = json_of(program, kCompare + accum);
  EXPECT_EQ(
      o["launches"], (json{{"eager", 35}, {"fused", o["launches"]["fused"]}, {"complete", true}}));
  EXPECT_LT(o["launches"]["fused"], 35);
  for (const char* what : {"loss", "gradients", "state"})
    EXPECT_LT(o["parity"][what], 1e-5) << what;
}

// Figures of one run must fit each other; how large they are is the machine's.
void expect_consistent(const json& row) {
  SCOPED_TRACE(row.dump());
  EXPECT_GT(row["p50_us"], 0);
  EXPECT_LE(row["p50_us"], row["p90_us"]);
  EXPECT_LE(row["p90_us"], row["p99_us"]);
  EXPECT_GE(row["calls"], 100);
  const double seconds = row["p50_us"].get<double>() * 1e-6;
  EXPECT_NEAR(row["images_per_s"].get<double>() * seconds / row["batch"].get<double>(), 1, 1e-9);
  EXPECT_GE(row["mean_us"].get<double>(), row["p50_us"].get<double>() / 2) << "half take as long";
}

TEST(MnistFused, PredictIsTimedInEachModeAndBatch) {
  const Program program;
  program.run(0, kSmallFused + Words{"--steps", "2", "--out", "a"});
  const Words bench{"predict", "--bench", "--from", "a", "--threads", "1", "--batch", "1,8"};
  const json o = json_of(program, bench + Words{"--dump-graph", "g.txt"});
  EXPECT_EQ(o["schema"], "sinter.predict-bench/1");
  ASSERT_EQ(o["rows"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const json& row = o["rows"][i];
    EXPECT_EQ(row["batch"], i < 3 ? 1 : 8);
    EXPECT_EQ(row["mode"], (std::array{"eager", "fused", "graph"}[i % 3]));
    EXPECT_EQ(row["threads"], 1);
    EXPECT_LE(row["difference"], 1e-5) << "all give the same logits";
    expect_consistent(row);
  }
  EXPECT_EQ(o["rows"][0]["difference"], 0);

  const Result table = program.run(0, bench);
  expect_facts(table.out, {"batch  mode ", "  p50", "  p90", "  p99", "  images/s", " graph "});

  // A saved graph is one of batch 1.
  const Result saved = program.run(0, bench + Words{"--graph", "g.txt"});
  int rows = 0;
  for (size_t at = 0; (at = saved.out.find(" graph ", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, 1) << saved.out;

  const Result simt = program.run(2, bench + Words{"--device", "simt"});
  expect_facts(simt.err, {"the device is simt", "hint: --device cpu"});
}

TEST(MnistFused, ASavedGraphPredictsToTheLastBit) {
  const Program program;
  for (const char* dtype : {"f32", "bf16"}) {
    const Words train{"--steps", "20", "--force", "--out", "a", "--dtype", dtype, "--dropout",
        "0.1", "--act", "gelu", "--normalize", "mnist"};
    program.run(0, kSmallFused + train);
    program.run(0, {"predict", "--from", "a", "--dump-graph", "g.txt", "--force"});
    const Words predict{"predict", "--from", "a", "--json", "--index", "3"};
    const Result model = program.run(0, predict),
                 graph = program.run(0, predict + Words{"--graph", "g.txt"});
    EXPECT_EQ(graph.out, model.out) << dtype;
  }
  expect_facts(text_of(program.folder() / "g.txt"), {"\n  \"output \\\"logits\\\" %"});
}

TEST(MnistFused, ALossThatIsNotANumberNamesTheStepOfAReplay) {
  const Program program;
  const Words train{"train", "--limit", "2000", "--steps", "20", "--hidden", "64,32", "--threads",
      "1", "--optimizer", "sgd", "--lr", "1e5"};
  const Result eager = program.run(6, train), fused = program.run(6, train + kFused);
  EXPECT_EQ(fused.out, "");
  const auto step = [](const std::string& text) {
    return text.substr(
        text.find("train: loss is "), text.find(" (epoch") - text.find("train: loss is "));
  };
  EXPECT_EQ(step(fused.err), step(eager.err));
  expect_facts(fused.err, {"--mode eager --check-nan names the op"});
}

TEST(MnistFused, Fast98RunsAndMissesItsTargetOnFewImages) {
  const Program program;
  const Result r = program.run(
      7, {"train", "--preset", "fast98", "--limit", "500", "--threads", "1", "--hidden", "32"});
  expect_facts(r.out, {"   target 98 %: missed\n", ", 8 steps, "});
  expect_facts(r.err,
      {"epoch 2/2", "train: target missed: test accuracy ", ", --target-acc 98\n", " --epochs 2 "});
  const Result steps = program.run(7, {"train", "--preset", "fast98", "--limit", "500", "--threads",
                                          "1", "--hidden", "32", "--steps", "2"});
  EXPECT_FALSE(has(steps.err, "--epochs")) << steps.err;
}

}  // namespace
}  // namespace sinter::test
