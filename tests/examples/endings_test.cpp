// What a command says, keeps and leaves where it does not go as planned: data that a model was
// trained on, run folders that are in the way, files that are there, words that are none.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/process.h"
#include "data/idx.h"
#include "data/npy.h"
#include "nn/safetensors.h"
#include "tests/data/data_test_util.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

namespace fs = std::filesystem;

const std::string kPair = "d/train-images-idx3-ubyte,d/train-labels-idx1-ubyte";
const Words kTiny{"train", "--data", "synthetic", "--limit", "100", "--hidden", "8", "--threads",
    "1", "--steps", "4", "-q"};

// 700 digits, of which 100 are the test set of a run on this pair.
void make_digits(const Program& program) {
  program.run(0, {"data", "make", "d", "--train", "700", "--test", "60"});
}
Words training_on(const std::string& data, const std::string& out) {
  return {"train", "--data", data, "--hidden", "64", "--threads", "1", "--epochs", "20", "--lr",
      "0.01", "--out", out, "-q"};
}

// However the pair is named: the images that training has seen are not the test.
TEST(MnistEval, ThePairOfTheTrainingIsSplitAsInTraining) {
  Program program;
  make_digits(program);
  const auto trained = json_of(program, training_on(kPair, "r"))["test"];
  ASSERT_EQ(trained["images"], 100);
  program.write(
      "mine.toml", "[eval]\ndata = \"" + kPair + "\"\n[predict]\ndata = \"" + kPair + "\"\n");
  const Words eval{"eval", "--from", "r"};
  const auto expect_same = [&](const Words& words) {
    const auto read = json_of(program, words);
    EXPECT_EQ(read["images"], 100) << testing::PrintToString(words);
    EXPECT_EQ(read["accuracy"], trained["accuracy"]);
    EXPECT_EQ(read["confusion"], trained["confusion"]);
  };
  expect_same(eval);
  expect_same(eval + Words{"--data", kPair, "--confusion"});
  expect_same(eval + Words{"--data", fs::absolute(program.folder() / "d").string() +
                                         "/train-images-idx3-ubyte,d/train-labels-idx1-ubyte"});
  expect_same(eval + Words{"--config", "mine.toml"});
  // The same images in files of another kind.
  const auto save = [&](const char* name, const char* type, const std::string& shape,
                        const std::vector<uint8_t>& bytes) {
    const Bytes file = npy(type, shape, bytes);
    program.write(name, std::string(file.begin(), file.end()));
  };
  const std::string folder = program.folder();
  save("x.npy", "|u1", "(700, 28, 28)",
      read_idx(folder + "/d/train-images-idx3-ubyte", IdxKind::images).bytes);
  save("y.npy", "|u1", "(700,)",
      read_idx(folder + "/d/train-labels-idx1-ubyte", IdxKind::labels).bytes);
  expect_same(eval + Words{"--data", "x.npy,y.npy"});
  expect_facts(program.run(0, eval + Words{"--data", kPair}).err,
      {"(1/7 of it, drawn, for the test), as in training: test 100 images"});
  const Words predict{"predict", "--from", "r", "--index", "7", "--json"};
  const std::string one = program.run(0, predict).out;
  EXPECT_EQ(program.run(0, predict + Words{"--data", kPair}).out, one);
  EXPECT_EQ(program.run(0, predict + Words{"--config", "mine.toml"}).out, one);
  program.run(2, {"predict", "--from", "r", "--data", kPair, "--index", "100"});
  program.environment = {"SINTER_DATA=" + kPair};
  expect_same(eval);
  EXPECT_EQ(program.run(0, predict).out, one);
}

TEST(MnistEval, OfAnotherPairAllIsTheTest) {
  const Program program;
  make_digits(program);
  program.run(0, training_on(kPair, "r"));
  const std::string other = "d/t10k-images-idx3-ubyte,d/t10k-labels-idx1-ubyte";
  const Result r = program.run(0, {"eval", "--from", "r", "--data", other});
  expect_facts(
      r.err, {"(all of it for the test): test 60 images", "the model was trained on other data: "});
  EXPECT_EQ(json_of(program, {"eval", "--from", "r", "--data", "d"})["images"], 60);

  // What a folder's run was trained on, as a pair: no share of it is a test.
  program.run(0, training_on("d", "s"));
  EXPECT_EQ(json_of(program, {"eval", "--from", "s"})["images"], 60);
  const Result seen = program.run(0, {"eval", "--from", "s", "--data", kPair, "-q"});
  expect_facts(seen.err, {"warning: the model was trained on these images"});
  const Result init = program.run(0, training_on(kPair, "t") + Words{"--init", "s"});
  expect_facts(init.err, {"warning: the model was trained on these images"});
  // A run goes on with its own split, or not at all.
  expect_facts(program.run(4, {"train", "--resume", "s", "--epochs", "21", "--data", kPair}).err,
      {"cannot resume with another split of the data: ", "/d, here it is "});
}

// The folder's files, with what they hold; the target of a link.
std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (entry.is_symlink())
      files[name] = fs::read_symlink(entry.path()).string();
    else if (entry.is_regular_file() && !name.starts_with("."))
      files[name] = text_of(entry.path());
  }
  return files;
}

TEST(MnistRunFolder, TheNameOfTheNewestRunIsNoFolder) {
  const Program program;
  const auto expect_refused = [&](const std::string& out) {
    for (const Words& force : {Words{}, Words{"--force"}}) {
      const auto before = files_in(program.folder() / "runs");
      const Result r = program.run(2, kTiny + Words{"--out", out} + force);
      expect_facts(r.err, {"--out " + out.substr(0, 9), "hint: --out runs/NAME"});
      EXPECT_EQ(files_in(program.folder() / "runs"), before) << out;
    }
  };
  fs::create_directory(program.folder() / "runs");
  expect_refused("runs/last");  // where there is none yet, too
  program.run(0, kTiny);
  for (const std::string out : {"runs/last", "./runs/last/", "runs//last/.", "runs/last/../last"})
    expect_refused(out);
  expect_refused((fs::canonical(program.folder()) / "runs/last").string());
}

TEST(MnistRunFolder, ARunInAnotherOrBehindALinkLeavesTheOthers) {
  const Program program;
  const fs::path folder = program.folder();
  program.run(0, kTiny);
  const auto first = files_in(folder / "runs" / fs::read_symlink(folder / "runs/last"));
  // Within the newest run, by the link that the run then changes.
  program.run(0, kTiny + Words{"--out", "runs/last/sub"});
  const fs::path sub = fs::canonical(folder / "runs/last");
  EXPECT_EQ(sub.filename(), "sub");
  for (const auto& [name, text] : first) EXPECT_EQ(text_of(sub.parent_path() / name), text) << name;
  program.run(0, {"eval", "--limit", "10"});

  fs::create_directory(folder / "elsewhere");
  fs::create_directory_symlink("elsewhere", folder / "link");
  for (const Words& force : {Words{}, Words{"--force"}}) {
    program.run(0, kTiny + Words{"--out", "link"} + force);
    EXPECT_TRUE(fs::is_symlink(folder / "link"));
    EXPECT_EQ(fs::canonical(folder / "runs/last"), fs::canonical(folder / "elsewhere"));
  }
  // The folder of the runs itself: none of those in it is touched.
  const auto before = files_in(folder / "runs");
  expect_facts(program.run(2, kTiny + Words{"--out", "runs", "--force"}).err,
      {"run folder is not empty: ", "hint: --out DIR takes another place"});
  EXPECT_EQ(files_in(folder / "runs"), before);
  fs::rename(folder / "runs", folder / "older");
  program.run(0, kTiny + Words{"--out", "runs"});
  program.run(0, kTiny);
  program.run(0, kTiny + Words{"--out", "runs", "--force"});
  program.run(0, {"eval", "--limit", "10"});
}

TEST(MnistRunFolder, ForceDeletesNoFilesButARuns) {
  const Program program;
  for (const char* name : {"config.toml", "metrics.csv", "model.safetensors", "profile.json"})
    program.write(name, std::string("mine\n"));
  const auto before = files_in(program.folder());
  const Result r = program.run(2, kTiny + Words{"--out", ".", "--force"});
  expect_facts(r.err, {"run folder is not empty: ", "hint: --out DIR takes another place"});
  EXPECT_EQ(files_in(program.folder()), before);
  EXPECT_FALSE(has(r.err, "--force")) << "it is no help: " << r.err;
  // A config of one's own is not that of a run that failed.
  fs::create_directory(program.folder() / "e");
  program.write("e/config.toml", std::string("[train]\nepochs = 1\n"));
  program.run(2, kTiny + Words{"--config", "e/config.toml", "--out", "e"});
  EXPECT_EQ(text_of(program.folder() / "e/config.toml"), "[train]\nepochs = 1\n");
}

TEST(MnistRunFolder, AProfileThatCannotBeTakesNoFolder) {
  const Program program;
  program.run(0, kTiny + Words{"--out", "r"});
  const auto before = files_in(program.folder() / "r");
  program.run(2, kTiny + Words{"--out", "r", "--force", "--profile"});
  EXPECT_EQ(files_in(program.folder() / "r"), before);
  program.run(2, kTiny + Words{"--out", "new", "--profile"});
  EXPECT_FALSE(exists(program.folder() / "new"));
}

// What the hints of a run that failed before its first save say helps.
TEST(Cases, FailedRunAndItsHints) {
  const Program program;
  const Words train = kTiny + Words{"--out", "r"};
  program.run(2, train + Words{"--profile"});
  program.run(0, train);
  program.run(0, {"train", "--resume=r"});

  // One that died before its first save: its config alone is there.
  for (const auto& entry : fs::directory_iterator(program.folder() / "r"))
    if (entry.path().filename() != "config.toml") fs::remove(entry);
  program.run(4, {"train", "--resume=r"});
  program.run(0, train);
  program.run(0, {"train", "--resume=r"});

  // One that diverged has a log, and nothing to go on with.
  const Words diverging{"train", "--data", "synthetic", "--limit", "2000", "--steps", "20",
      "--hidden", "64,32", "--lr", "1e6", "--optimizer", "sgd", "--threads", "1", "--log-every",
      "1", "--save-every", "0", "--out", "l ost", "-q"};
  program.run(6, diverging);
  const Result r = program.run(2, diverging);
  expect_facts(r.err, {"holds a run at step ", "hint: --force starts over, --out DIR"});
  program.run(0, kTiny + Words{"--out", "l ost", "--force"});
  expect_facts(program.run(2, diverging).err, {"hint: --resume 'l ost' goes on, --force"});
}

TEST(Cases, NegativeDurationInATrace) {
  const Program program;
  const auto write = [&](const char* name, int count, const std::string& odd) {
    std::string events;
    for (int i = 0; i < count; ++i) {
      events +=
          (i > 0 ? "," : "") +
          std::string(R"({"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,)") +
          (i == 3 && !odd.empty() ? odd : R"("ts":)" + std::to_string(100 * i) + R"(,"dur":50.0)") +
          "}";
    }
    program.write(name, R"({"traceEvents":[)" + events + "]}");
  };
  write("a.json", 8, "");
  write("b.json", 8, R"("ts":300,"dur":-1)");
  const Words diff{"diff", "a.json", "b.json", "--same-work"};
  expect_facts(program.run(0, diff).out,
      {"B: 1 of 8 events left out: their times cannot be; traceEvents[3], aten::mm: dur is -1, "
       "wanted 0 or more",
          "no factor: B is INCOMPLETE: 1 of 8 events left out"});
  // One of many is said, and takes nothing away.
  write("a.json", 200, "");
  for (const char* odd : {R"("ts":300,"dur":-1)", R"("dur":50)", R"("ts":NaN,"dur":50)",
           R"("ts":300,"dur":Infinity)", R"("ts":-Infinity,"dur":1)", R"("ts":"now","dur":1)",
           R"("ts":300,"dur":1e300)", R"("ts":1e17,"dur":1)", R"("ts":null,"dur":1)",
           R"("ts":[],"dur":{}, "args": {"NaN \" Infinity": NaN})"}) {
    write("b.json", 200, odd);
    const std::string out = program.run(0, diff).out;
    expect_facts(out, {"B: 1 of 200 events left out: "});
    EXPECT_FALSE(has(out, "INCOMPLETE")) << out;
  }
}

TEST(MnistResume, KeepsTheProfileThatIsThere) {
  const StoppingProgram program;
  const Words run{"train", "--data", "synthetic", "--limit", "300", "--hidden", "8", "--threads",
      "1", "--steps", "20", "--out", "r"};
  program.run(130, run + Words{"--profile=json", "--profile-steps", "0:0:3", "--stop-after", "10"});
  const std::string profile = text_of(program.folder() / "r/profile.json");
  ASSERT_NE(profile, "");
  expect_facts(program.run(2, {"train", "--resume", "r", "--profile=json"}).err,
      {"--profile: a file is there: r/profile.json", "hint: move it away"});
  const Result r = program.run(0, {"train", "--resume", "r"});
  expect_facts(r.err, {"profile that of the earlier steps stays as it is"});
  EXPECT_EQ(text_of(program.folder() / "r/profile.json"), profile);
}

TEST(MnistProfile, PartsOfABatchAreNotAnotherBatch) {
  const Program program;
  const auto facts_of = [&](const Words& more) {
    const Words train{"train", "--data", "synthetic", "--limit", "400", "--hidden", "8",
        "--threads", "1", "--steps", "4", "-q", "--out", "r", "--force", "--profile=json",
        "--profile-steps", "0:0:3"};
    program.run(0, train + more);
    return nlohmann::json::parse(text_of(program.folder() / "r/profile.json"));
  };
  const auto parts = facts_of({"--batch", "16", "--accum", "2"}),
             whole = facts_of({"--batch", "32"});
  EXPECT_EQ(parts["batch"], 32);
  EXPECT_EQ(whole["batch"], 32);
  EXPECT_EQ(whole["workload"], "mlp 784-8-10 relu, adam");
  EXPECT_EQ(parts["workload"], "mlp 784-8-10 relu, adam in parts of 16");
}

TEST(MnistGraph, AFileThatIsThereStays) {
  const Program program;
  program.run(0, kTiny + Words{"--out", "r"});
  const Words compare{"compare", "--data", "synthetic", "--hidden", "8", "--threads", "1",
      "--rounds", "1", "--steps", "1", "--dump-graph", "g.txt"},
      predict{"predict", "--from", "r", "--dump-graph", "g_fused.txt"},
      train = kTiny + Words{"--mode", "fused", "--dump-graph", "g_fused.txt"};
  program.write("g_fused.txt", std::string("mine"));
  for (const Words& words : {compare, predict, train}) {
    expect_facts(program.run(2, words).err,
        {"--dump-graph: a file is there: g_fused.txt",
            "hint: --force writes over it, --dump-graph NAME takes another name"});
    EXPECT_EQ(text_of(program.folder() / "g_fused.txt"), "mine");
    program.run(0, words + Words{"--force"});
    EXPECT_TRUE(
        text_of(program.folder() / "g_fused.txt").starts_with("{\"schema\": \"sinter.graph/2\""));
    program.write("g_fused.txt", std::string("mine"));
  }
}

// What an op of a graph refuses as it runs is said of the file.
TEST(MnistGraph, AStrangersFileIsRefusedByName) {
  const Program program;
  program.run(0, kTiny + Words{"--out", "r"});
  program.write("odd", std::string(R"({"schema": "sinter.graph/2",
"values": [
  {"is":"input","dtype":"f32","shape":[1,784],"strides":[784,1],"of":-1,"offset":0,"name":"x","number":""},
  {"is":"view","dtype":"f32","shape":[1,10],"strides":[10,1],"of":0,"offset":0,"name":"","number":""},
  {"is":"result","dtype":"u8","shape":[1,10],"strides":[10,1],"of":-1,"offset":0,"name":"","number":""},
  {"is":"result","dtype":"i32","shape":[1,10],"strides":[10,1],"of":-1,"offset":0,"name":"","number":""},
  {"is":"view","dtype":"i32","shape":[1],"strides":[1],"of":3,"offset":0,"name":"","number":""},
  {"is":"result","dtype":"f32","shape":[],"strides":[],"of":-1,"offset":0,"name":"","number":""},
  {"is":"result","dtype":"i64","shape":[],"strides":[],"of":-1,"offset":0,"name":"","number":""},
  {"is":"view","dtype":"i64","shape":[1],"strides":[1],"of":6,"offset":0,"name":"","number":""},
  {"is":"result","dtype":"f32","shape":[1,10],"strides":[10,1],"of":-1,"offset":0,"name":"","number":""},
  {"is":"result","dtype":"i32","shape":[1],"strides":[1],"of":-1,"offset":0,"name":"","number":""}],
"nodes": [
  {"op":"cast","attrs":{"dtype":"u8"},"in":[1],"out":[2],"role":"none"},
  {"op":"cast","attrs":{"dtype":"i32"},"in":[1],"out":[3],"role":"none"},
  {"op":"sum","attrs":{},"in":[0],"out":[5],"role":"none"},
  {"op":"cast","attrs":{"dtype":"i64"},"in":[5],"out":[6],"role":"none"},
  {"op":"gather_batch","attrs":{},"in":[2,4,7],"out":[8,9],"role":"none"}],
"gradients": [],
"outputs": [
  8]}
)"));
  expect_facts(program.run(3, {"predict", "--from", "r", "--index", "0", "--graph", "odd"}).err,
      {"error: graph: not for predict: odd; gather_batch: index out of range: "});
}

// The one NaN of a file is found, although a step later all weights are NaN.
TEST(MnistBlame, NamesTheNanOfTheFile) {
  const Program program;
  program.run(0, kTiny + Words{"--out", "r"});
  const std::string file = (program.folder() / "r/model.safetensors").string();
  for (const char* bad : {"0.bias", "2.bias", "2.weight"}) {
    nn::SafetensorsFile read = nn::read_safetensors(file);
    for (nn::NamedTensor& item : read.tensors)
      if (item.name == bad) item.tensor.data<float>()[3] = NAN;
    nn::write_safetensors(program.folder() / "bad.safetensors", read.tensors, read.metadata);
    const Result r = program.run(6, {"compare", "--blame", "--data", "synthetic", "--from",
                                        "bad.safetensors", "--threads", "1", "--batch", "4"});
    expect_facts(r.err, {"warning: step 1, ", std::string(bad) + ", has nan at "});
    for (const char* other : {"0.bias", "0.weight", "2.bias", "2.weight"})
      EXPECT_EQ(has(r.err, std::string(other) + ", has nan"), other == std::string(bad)) << r.err;
  }
}

TEST(MnistExplain, AnyWordIsReadOrRefused) {
  const Program program;
  const std::string a(60'000, 'a');
  for (const std::string& word : Words{a, "ampere_" + a, "void at::" + a + "()", "cutlass" + a,
           "triton_" + a, a + "_mma_1", "\xff\xfe_mma_1x1", std::string("\x01\x1b[31m")}) {
    const Result r = program.run(2, {"explain", word});
    expect_facts(r.err, {"unknown word: "});
    EXPECT_LT(r.err.size(), 500u);
  }
  const std::string odd = "ampere_sgemm_\xff\x1b[31m_" + std::string(9'000, 'a') + "_tn";
  const Result r = program.run(0, {"explain", odd});
  expect_facts(r.out, {"a matrix product", "\\x1b[31m  ", "unknown"});
  EXPECT_EQ(json_of(program, {"explain", odd})["maker"], "cuBLAS");
}

TEST(MnistWords, HelpIsAskedForInManyWays) {
  const Program program;
  EXPECT_EQ(program.run(0, {"help"}).out, program.run(0, {"--help"}).out);
  EXPECT_EQ(program.run(0, {"help", "train"}).out, program.run(0, {"train", "--help"}).out);
  EXPECT_EQ(program.run(2, {"report", "--help"}).out, "");
  expect_facts(program.run(2, {"compare", "--html"}).err, {"--profile=html"});
}

TEST(MnistConfig, ANumberHasNoLeadingZero) {
  const Program program;
  program.write("c.toml", std::string("[train]\nepochs = 010\n"));
  expect_facts(program.run(2, {"train", "--config", "c.toml"}).err,
      {"usage: --epochs has a leading zero: 010; ", "c.toml"});
  for (const Words& words : {Words{"--lr", "00.1"}, {"--hidden", "8,016"}, {"--seed", "007"},
           {"--profile-steps", "01:3:20"}, {"--lr-warmup", "020%"}, {"--lr", "-01"}})
    expect_facts(program.run(2, Words{"train"} + words).err, {words[0], " has a leading zero: "});
  for (const Words& words : {Words{"--lr", "0.01"}, {"--val", "0"}, {"--lr", "0"}, {"--lr", "0e1"}})
    program.run(0, kTiny + words);
}

TEST(Process, AnotherOfItsNumberIsNotTheSame) {
  const int64_t own = cli::process_start(getpid());
  EXPECT_GT(own, 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, id_t(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(kill(child, 0), 0) << "a zombie takes signals";
  EXPECT_EQ(cli::process_start(child), 0);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(cli::process_start(child), 0);
  EXPECT_EQ(cli::process_start(getpid()), own);
}

}  // namespace
}  // namespace sinter::test
