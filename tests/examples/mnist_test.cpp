// The `mnist` program as a whole, run as a subprocess on few synthetic images: what goes to stdout
// and what to stderr, one case per exit status, and that train, eval and predict agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/examples/program.h"

namespace sinter::test {
namespace {

using nlohmann::json;

const Words kQuick{"train", "--limit", "2000", "--epochs", "1", "--hidden", "32", "--threads", "1",
    "--batch", "32", "--lr", "0.005"};

TEST(Mnist, TrainsAndSaysSo) {
  const Program program;
  const Result r = program.run(kQuick);
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out.find("test    "), 0u) << r.out;
  EXPECT_TRUE(has(r.out, "confused most: ")) << r.out;
  EXPECT_TRUE(has(r.out, "\ntime    ")) << r.out;
  EXPECT_TRUE(has(r.out, "63 steps     run runs/")) << r.out;
  for (const char* line :
      {"data    synthetic digits", "model   mlp 784-32-10 relu, 25,450 parameters",
          "device  cpu (auto", "epoch 1/1  loss ", "saved, best",
          "next    mnist predict --index 0, mnist predict FILE.png, mnist compare, mnist train "
          "--mode "
          "fused\n"})
    EXPECT_TRUE(has(r.err, line)) << line << " in\n" << r.err;
  EXPECT_GT(std::stod(r.out.substr(8)), 60) << r.out;  // it learns: guessing gives 10 %
  // Neither stream has escapes or carriage returns off a terminal, and all of it is ASCII.
  for (const char c : r.out + r.err)
    ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  for (const char* file : {"model.safetensors", "best.safetensors", "config.toml"})
    EXPECT_TRUE(exists(program.folder() / "runs/last" / file)) << file;
  EXPECT_TRUE(has(Program::text(program.folder() / "runs/last/events.jsonl"),
      "{\"step\":63,\"epoch\":1,\"loss\":"));
}

TEST(Mnist, JsonIsOneObjectAndTheOnlyOutput) {
  const Program program;
  const Result r =
      program.run(with(kQuick, {"--json", "-q", "--seed", "18446744073709551615", "--val", "0"}));
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(r.out.find("{\n  \"schema\": \"sinter.train/1\""), 0u);
  const json o = json::parse(r.out);
  EXPECT_EQ(o["seed"], "18446744073709551615");
  EXPECT_EQ(o["steps"], 63);
  EXPECT_EQ(o["test"]["images"], 2000);
  EXPECT_GT(o["train_seconds"], 0);
  EXPECT_TRUE(o["epochs"][0]["val_accuracy"].is_null());
  EXPECT_FALSE(exists(program.folder() / "runs/last/best.safetensors"));
}

TEST(Mnist, EvalAndPredictAgreeWithTrain) {
  const Program program;
  const Result trained = program.run(
      with(kQuick, {"--json", "--normalize", "mnist", "--act", "gelu", "--dropout", "0.1"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const json test = json::parse(trained.out)["test"];
  const Result r = program.run({"eval", "--json", "--limit", "2000", "--confusion"});
  ASSERT_EQ(r.status, 0) << r.err;
  const json e = json::parse(r.out);
  EXPECT_EQ(e["accuracy"], test["accuracy"]);
  EXPECT_EQ(e["loss"], test["loss"]);
  EXPECT_EQ(e["confusion"], test["confusion"]);
  EXPECT_EQ(e["worst"].size(), 5u);

  // The item read worst, predicted alone, is read as the same digit; the same by file, by folder,
  // by the best model's name.
  const json worst = e["worst"][0];
  const std::string index = std::to_string(worst["item"].get<int>());
  const Result p =
      program.run({"predict", "--json", "--index", index, "--from", "runs/last/model.safetensors"});
  ASSERT_EQ(p.status, 0) << p.err;
  const json prediction = json::parse(p.out)["predictions"][0];
  EXPECT_EQ(prediction["digit"], worst["read_as"]);
  EXPECT_EQ(prediction["label"], worst["label"]);
  double sum = 0;
  for (const double probability : prediction["probabilities"]) sum += probability;
  EXPECT_NEAR(sum, 1, 1e-6);

  const Result shown = program.run({"predict", "--index", "0"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_EQ(std::count(shown.out.begin(), shown.out.end(), '\n'),
      15);  // a picture of 14 lines, then the result
  EXPECT_TRUE(has(shown.out, "   then ")) << shown.out;
  EXPECT_TRUE(has(shown.out, "test image 0, label ")) << shown.out;
  const Result bare = program.run({"predict", "--index", "0", "--no-art", "--top", "1"});
  EXPECT_EQ(std::count(bare.out.begin(), bare.out.end(), '\n'), 1) << bare.out;
}

TEST(Mnist, InitTakesWeightsAndSizesFromTheFile) {
  const Program program;
  ASSERT_EQ(program.run(with(kQuick, {"--out", "a"})).status, 0);
  const Result r = program.run({"train", "--limit", "500", "--steps", "1", "--lr", "0", "--threads",
      "1", "--init", "a/model.safetensors"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.err, "mlp 784-32-10")) << r.err;
  EXPECT_GT(std::stod(r.out.substr(8)), 60) << r.out;
  const Result other = program.run({"train", "--limit", "500", "--hidden", "16", "--init", "a"});
  EXPECT_EQ(other.status, 4);
  for (const char* fact : {"is mlp 784-32-10, asked for mlp 784-16-10",
           "0 missing, 0 unexpected, 3 of another shape", "leave out --model and --hidden"})
    EXPECT_TRUE(has(other.err, fact)) << other.err;
}

struct Refusal {
  const char* what;
  Words words;
  int status;
  Words facts;
};

TEST(Mnist, RefusalsHaveAStatusAndFactsAndLeaveStdoutEmpty) {
  const Program program;
  program.write("bad.toml", "[train]\nhiden = 3\n");
  program.write("pickle.pt", "PK\x03\x04 and so on, not a safetensors file");
  std::filesystem::create_directory(program.folder() / "empty");
  std::filesystem::create_directory(program.folder() / "used");
  program.write("used/notes.txt", "mine");
  std::filesystem::create_symlink("loop", program.folder() / "loop");
  const Refusal all[] = {
      {"unknown flag", {"train", "--hiden", "3"}, 2,
          {"usage: unknown flag: --hiden for train; nearest is --hidden",
              "hint: mnist train --help"}},
      {"unknown flag, nothing near", {"train", "--zzzzzz"}, 2,
          {"unknown flag: --zzzzzz for train"}},
      {"flag before the command", {"--seed", "3", "train"}, 2, {"--seed", "mnist COMMAND [flags]"}},
      {"unknown command", {"tarin"}, 2, {"unknown command: tarin; nearest is train"}},
      {"no command", {}, 2, {"no command given; allowed train, speedrun, eval, predict"}},
      {"stray word", {"train", "digits"}, 2, {"unexpected word: digits; train takes flags alone"}},
      {"out of range", {"train", "--batch-size", "0"}, 2,
          {"--batch-size out of range: 0; allowed 1..1000000"}},
      {"empty item", {"train", "--hidden=256,,8"}, 2,
          {"--hidden has an empty item: 256,,8; item 2"}},
      {"list twice", {"train", "--hidden", "8", "--hidden", "9"}, 2,
          {"--hidden is a list, given 2 times: 8 and 9"}},
      {"not finite", {"train", "--lr", "inf"}, 2, {"--lr out of range: inf"}},
      {"value missing", {"train", "--data", "--limit", "5"}, 2,
          {"--data needs a value: the next word is --limit"}},
      {"value missing at the end", {"train", "--data"}, 2,
          {"usage: --data needs a value: nothing follows it\n"}},
      {"value empty", {"train", "--epochs", ""}, 2,
          {"--epochs is not a whole number: \"\"; allowed"}},
      {"exclusive", {"train", "--epochs", "2", "--steps", "9"}, 2,
          {"--epochs and --steps exclude each other: epochs is 2, steps is 9\n"}},
      {"of another optimizer", {"train", "--momentum", "0.1"}, 2,
          {"usage: --optimizer adam has no use for --momentum, which is for sgd",
              "hint: leave it out, or --optimizer sgd"}},
      {"PyTorch's word for a flag", {"train", "--gradient_accumulation_steps", "3"}, 2,
          {"unknown flag: --gradient-accumulation-steps for train; nearest is --accum\n"}},
      {"an unknown rule", {"train", "--mode", "fused", "--rules", "foo"}, 2,
          {"error: usage: --rules: unknown rule: foo; allowed all, none, softmax_xent"}},
      {"the beginning of a rule", {"train", "--mode", "fused", "--rules", "softmax"}, 2,
          {"error: usage: --rules: unknown rule: softmax; nearest is softmax_xent\n"}},
      {"a loop of links", {"train", "--limit", "100", "--out", "loop"}, 4,
          {"cannot make the run folder: ", "loop; Too many levels of symbolic links",
              "hint: --out DIR takes another place"}},
      {"a name that is too long", {"train", "--limit", "100", "--out", std::string(300, 'a')}, 4,
          {"cannot make the run folder: ", "; File name too long"}},
      {"choice", {"train", "--optimizer", "adan"}, 2,
          {"unknown --optimizer: adan; nearest is adam"}},
      {"dtype and device", {"train", "--dtype", "tf32"}, 2,
          {"--dtype tf32 needs cuda or simt: the device is cpu"}},
      {"config key", {"train", "--config", "bad.toml"}, 2,
          {"unknown key: hiden under [train] in ", "bad.toml; nearest is hidden"}},
      {"config missing", {"train", "--config", "none.toml"}, 2, {"none.toml", "No such file"}},
      {"profile too long", {"train", "--limit", "100", "--steps", "3", "--profile"}, 2,
          {"--profile-steps 1:3:20", "the run has 3 steps, wanted 5"}},
      {"run folder not empty", {"train", "--limit", "100", "--out", "used"}, 2,
          {"run folder is not empty", "used; holds notes.txt", "--force starts over"}},
      {"a page that is there", {"eval", "--html", "used/notes.txt"}, 2,
          {"--html: a file is there: used/notes.txt", "--force"}},
      {"more digits than a file may have", {"data", "make", "d", "--train", "6000000"}, 2,
          {"--train out of range: 6000000; allowed 1..5478274"}},
      {"index", {"predict"}, 2, {"nothing to predict", "--index 0"}},
      {"no folder", {"train", "--data", "nowhere"}, 3, {"nowhere", "--data synthetic"}},
      {"no files", {"train", "--data", "empty"}, 3,
          {"no MNIST files", "looked for train-images-idx3-ubyte"}},
      {"no model", {"eval"}, 4, {"nothing there", "runs/last", "mnist train"}},
      {"no model in the folder", {"eval", "--from", "empty"}, 4,
          {"looked for model.safetensors, best.safetensors, last.safetensors"}},
      {"pickle", {"predict", "--index", "0", "--from", "pickle.pt"}, 4,
          {"a zip archive, as torch.save() writes", "safetensors.torch.save_file"}},
      {"device", {"train", "--device", "cuda:99"}, 5, {"cuda", "--device"}},
      {"no such device", {"train", "--device", "gpu"}, 2,
          {"device: unknown: gpu; nearest is cuda; allowed cpu, cuda, cuda:N, simt"}},
  };
  for (const Refusal& refusal : all) {
    const Result r = program.run(refusal.words);
    EXPECT_EQ(r.status, refusal.status) << refusal.what << "\n" << r.err;
    EXPECT_EQ(r.out, "") << refusal.what;
    EXPECT_TRUE(has(r.err, "error: ")) << refusal.what;
    for (const std::string& fact : refusal.facts)
      EXPECT_TRUE(has(r.err, fact)) << refusal.what << ": no \"" << fact << "\" in\n" << r.err;
  }
}

TEST(Mnist, IndexBeyondTheTestSetIsRefused) {
  const Program program;
  ASSERT_EQ(program.run(kQuick).status, 0);
  const Result r = program.run({"predict", "--index", "7", "--limit", "7"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "--index out of range: 7; the test set of synthetic has 0..6")) << r.err;
}

TEST(Mnist, ALossThatIsNotANumberEndsTheRun) {
  const Program program;
  const Words train{"train", "--limit", "2000", "--steps", "20", "--hidden", "64,32", "--threads",
      "1", "--optimizer", "sgd", "--lr", "1e6"};
  const Result r = program.run(with(train, {"--log-every", "5"}));
  EXPECT_EQ(r.status, 6) << r.err;
  EXPECT_EQ(r.out, "");
  for (const char* fact : {"train: loss is ", "(epoch 1, batch ", "last good ", "lr 1e+06",
           "hint: --lr 0.1 (the default of sgd) or --clip 1"})
    EXPECT_TRUE(has(r.err, fact)) << fact << "\n" << r.err;
  const Result named = program.run(with(train, {"--check-nan"}));
  EXPECT_EQ(named.status, 6) << named.err;
  EXPECT_TRUE(has(named.err, ": the result is ")) << named.err;
}

TEST(Mnist, ATargetMissedIsStatus7AfterTheResult) {
  const Program program;
  const Result r = program.run({"train", "--limit", "200", "--steps", "1", "--threads", "1",
      "--hidden", "8", "--target-acc", "99.5"});
  EXPECT_EQ(r.status, 7);
  EXPECT_TRUE(has(r.out, "target 99.5 %: missed")) << r.out;
  EXPECT_TRUE(has(r.err, "error: train: target missed: test accuracy ")) << r.err;
  EXPECT_TRUE(has(r.err, "--target-acc 99.5")) << r.err;
  EXPECT_EQ(program
                .run({"train", "--limit", "200", "--overfit-batch", "--lr", "0", "--threads", "1",
                    "--hidden", "8"})
                .status,
      7);
  EXPECT_EQ(
      program
          .run({"train", "--limit", "200", "--overfit-batch", "--threads", "1", "--hidden", "32"})
          .status,
      0);
}

TEST(Mnist, DryRunWritesNothing) {
  const Program program;
  const Result r = program.run({"train", "--limit", "200", "--dry-run", "--threads", "1"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "dry run")) << r.out;
  EXPECT_FALSE(exists(program.folder() / "runs"));
}

TEST(Mnist, ARunFolderIsStartedOverOnlyByForce) {
  const Program program;
  const Words train = with(kQuick, {"--out", "a"});
  ASSERT_EQ(program.run(train).status, 0);
  const Result r = program.run(train);
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "run folder is not empty: ")) << r.err;
  EXPECT_TRUE(has(r.err, "/a; holds a run at step 63")) << r.err;
  // Of a run of two ranks, before.
  for (const char* name : {"a/profile.rank0.trace.json.gz", "a/profile.rank1.trace.json.gz"})
    program.write(name, "old");
  EXPECT_EQ(program.run(with(train, {"--force"})).status, 0);
  EXPECT_FALSE(exists(program.folder() / "a/profile.rank0.trace.json.gz"));
  EXPECT_FALSE(exists(program.folder() / "a/profile.rank1.trace.json.gz"));
  EXPECT_EQ(program.run({"eval", "--limit", "50"}).status, 0);  // runs/last names it
}

TEST(Mnist, PrintConfigComesBackAsItIs) {
  const Program program;
  const Result first = program.run({"train", "--print-config", "--hidden", "32,16", "--optimizer",
      "sgd", "--schedule", "onecycle", "--steps", "70", "--seed", "7", "--out", "a b"});
  ASSERT_EQ(first.status, 0) << first.err;
  for (const char* line : {"seed = 7\n", "[train]\n", "hidden = \"32,16\"\n", "lr = 0.1\n",
           "lr-warmup = \"20%\"\n", "steps = 70\n", "out = \"a b\"\n"})
    EXPECT_TRUE(has(first.out, line)) << line;
  EXPECT_FALSE(has(first.out, "epochs"));
  program.write("c.toml", first.out);
  const Result second = program.run({"train", "--config", "c.toml", "--print-config"});
  EXPECT_EQ(second.out, first.out) << second.err;
  // Command line over file, preset under both, $SINTER_DATA between.
  const Result third = program.run(
      {"train", "--config", "c.toml", "--preset", "fast98", "--epochs", "4", "--print-config"});
  for (const char* line : {"epochs = 4\n", "hidden = \"32,16\"\n", "lr = 0.1\n", "val = 5000\n"})
    EXPECT_TRUE(has(third.out, line)) << line << third.out << third.err;
  const Result preset = program.run({"train", "--preset", "fast98", "--print-config"});
  for (const char* line : {"epochs = 3\n", "lr = 0.005\n", "label-smoothing = 0.05\n", "val = 0\n",
           "target-acc = 98\n"})
    EXPECT_TRUE(has(preset.out, line)) << line;
  EXPECT_FALSE(has(preset.out, "preset"));
}

TEST(Mnist, TheEnvironmentStandsBetweenFileAndCommandLine) {
  Program program;
  program.write("c.toml", "[train]\ndata = \"from-file\"\n");
  program.environment = {"SINTER_DATA=from-environment"};
  EXPECT_TRUE(has(program.run({"train", "--config", "c.toml", "--print-config"}).out,
      "data = \"from-environment\"\n"));
  EXPECT_TRUE(has(program.run({"train", "--config", "c.toml", "--data", "x", "--print-config"}).out,
      "data = \"x\"\n"));
}

TEST(Mnist, AClosedStdoutEndsTheReportNotTheTraining) {
  Program program;
  program.close_stdout = true;
  const Result r = program.run(kQuick);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(exists(program.folder() / "runs/last/model.safetensors"));
}

TEST(Mnist, ColourIsOnlyWhereItIsWanted) {
  Program program;
  program.environment = {"NO_COLOR=1", "TERM=xterm"};
  EXPECT_FALSE(has(program.run({"tarin"}).err, "\x1b"));
  EXPECT_FALSE(
      has(program.run({"train", "--dry-run", "--limit", "100", "--threads", "1"}).err, "\x1b"));
  EXPECT_TRUE(has(
      program.run({"train", "--dry-run", "--limit", "100", "--threads", "1", "--color", "always"})
          .err,
      "\x1b[1mdata"));
}

TEST(Mnist, OnATerminalProgressIsOneLineWrittenAnew) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = true;
  program.environment = {"TERM=xterm", "NO_COLOR=1"};
  program.call_at = " ETA ";
  const Result r = program.run({"train", "--limit", "5000", "--epochs", "1000", "--batch", "1",
                                   "--hidden", "16", "--threads", "1", "--save-every", "0"},
      [](pid_t child) { kill(child, SIGINT); });
  EXPECT_EQ(r.status, 130);
  const size_t line = r.err.find("\repoch ");
  ASSERT_NE(line, std::string::npos) << r.err.substr(0, 2000);
  for (const char* part : {"/1000 [", "] ", " %  loss ", " img/s  data-wait ", "ETA "})
    EXPECT_LT(r.err.find(part, line), r.err.find('\n', line)) << part;
  EXPECT_FALSE(has(r.err, "\x1b"));
}

TEST(Mnist, ADumbTerminalGetsWholeLines) {
  if (!Program::has_terminals()) GTEST_SKIP() << "no /dev/pts here";
  Program program;
  program.terminal = true;
  program.environment = {"TERM=dumb"};
  std::string text = program.run(with(kQuick, {"--epochs", "8"})).err;
  for (size_t at = text.find("\r\n"); at != std::string::npos; at = text.find("\r\n"))
    text.erase(at, 1);  // the terminal's own
  EXPECT_TRUE(has(text, "epoch 8/8  loss ")) << text;
  EXPECT_FALSE(has(text, "\r"));
  EXPECT_FALSE(has(text, "\x1b"));
}

TEST(Mnist, ProfilePrintsItsTable) {
  const Program program;
  const Result r = program.run(with(kQuick, {"--profile", "--profile-steps", "1:1:3"}));
  ASSERT_EQ(r.status, 0) << r.err;
  // A row of little time is folded into "small rows": which ones are is the machine's to say.
  for (const char* row : {"CPU eager", "small rows", "launches 17", "next_batch"})
    EXPECT_TRUE(has(r.out, row)) << row << "\n" << r.out;
  EXPECT_EQ(r.out.find("test    "), 0u);
  EXPECT_TRUE(has(r.out, Program::text(program.folder() / "runs/last/profile.txt")));
}

TEST(Mnist, ASignalSavesAndEndsWith130) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Program program;
    const Words train{"train", "--limit", "2000", "--epochs", "100000", "--hidden", "16",
        "--threads", "1", "--val", "0"};
    const Result r = program.run(train, [&](pid_t child) {
      for (int i = 0; i < 1000 && !exists(program.folder() / "runs"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (int i = 0; i < 1000; ++i) {  // until the first epoch is saved
        bool saved = false;
        for (const auto& entry :
            std::filesystem::recursive_directory_iterator(program.folder() / "runs"))
          saved |= entry.path().filename() == "events.jsonl";
        if (saved) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      kill(child, signal);
    });
    EXPECT_EQ(r.status, 130) << r.err;
    EXPECT_TRUE(has(r.err, "stop    interrupted after step ")) << r.err;
    EXPECT_TRUE(has(r.out, "time    ")) << r.out;
    EXPECT_EQ(program.run({"eval", "--limit", "50"}).status, 0);  // the model is there
  }
}

TEST(Mnist, HelpListsEveryFlagOnStdout) {
  const Program program;
  const Result r = program.run({"train", "--help"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err, "");
  for (const char* part : {"usage: mnist train [flags]", "--hidden, --hidden-sizes N,N,..",
           "[256,128]", "--batch-size, --batch N", "every command", "--seed N"})
    EXPECT_TRUE(has(r.out, part)) << part;
  for (const Words& words : {Words{"--help"}, {"-h"}, {"eval", "-h"}, {"predict", "--help"},
           {"--version"}, {"train", "--version"}}) {
    const Result other = program.run(words);
    EXPECT_EQ(other.status, 0);
    EXPECT_NE(other.out, "");
  }
}

}  // namespace
}  // namespace sinter::test
