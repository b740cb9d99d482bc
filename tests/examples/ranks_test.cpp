// `mpirun -np N mnist train`: several processes train one model, under Open MPI where it is
// installed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <thread>

#include "distributed/mpi.h"
#include "nn/safetensors.h"
#include "tests/closeness.h"
#include "tests/examples/program.h"

namespace sinter::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// 275 images and 25 held out: 9 batches an epoch, the last of 19.
const Words kTrainSmall{"train", "--limit", "300", "--batch", "32", "--hidden", "16", "--epochs",
    "2", "--threads", "1", "--log-every", "4", "--dropout", "0.2", "--optimizer", "sgd", "--out",
    "r"};
// Much longer than a test waits.
const Words kTrainLong = with(kTrainSmall, {"--epochs", "100000", "--save-steps", "1"});

class MnistRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (distributed::mpi_version().empty()) GTEST_SKIP() << "no MPI in this build";
    if (std::getenv("SINTER_QUICK")) GTEST_SKIP() << "scripts/test --quick";
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    if (kSanitized && name != "TrainAsOneProcessDoes")
      GTEST_SKIP() << "a sanitizer reads one run of several processes";
    // There may be none, or one that starts nothing: in a sandbox without sockets, say.
    static const int status = std::system(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 30 "
        "mpirun --oversubscribe --bind-to none -np 2 true >/dev/null 2>&1");
    if (status != 0) GTEST_SKIP() << "no mpirun here that starts two processes";
  }
};

Words mpirun(int ranks) {
  return {"mpirun", "--oversubscribe", "--bind-to", "none", "-np", std::to_string(ranks)};
}
struct RankProgram : Program {
  explicit RankProgram(int ranks) {
    launcher = ranks > 1 ? mpirun(ranks) : Words{};
    // What a sanitizer calls a leak is Open MPI's.
    environment = {"ASAN_OPTIONS=detect_leaks=0", "OMPI_ALLOW_RUN_AS_ROOT=1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_btl_vader_single_copy_mechanism=none"};
  }
};
// Starts something else beside the ranks: ": -np 1 PROGRAM WORDS".
Words beside(const Words& words, const Words& options = {}, const std::string& program = "") {
  return Words{":"} + options +
         Words{"-np", "1", program.empty() ? SINTER_BIN_DIR "/mnist" : program} + words;
}

fs::path last(const Program& program) { return program.folder() / "r" / "last.safetensors"; }

void wait_until(const std::function<bool()>& there) {
  for (int i = 0; i < 3000 && !there(); ++i) std::this_thread::sleep_for(10ms);
  ASSERT_TRUE(there());
}
// The process of a rank, below mpirun.
pid_t pid_of_rank(pid_t launcher, int rank) {
  std::ifstream children(str("/proc/", launcher, "/task/", launcher, "/children"));
  const std::string wanted = str("OMPI_COMM_WORLD_RANK=", rank);
  for (pid_t pid; children >> pid;) {
    const std::string environment = text_of(str("/proc/", pid, "/environ"));
    for (size_t at = 0; at < environment.size(); at = environment.find('\0', at) + 1) {
      if (environment.c_str() + at == wanted) return pid;
      if (environment.find('\0', at) == std::string::npos) break;
    }
  }
  return 0;
}
size_t count_of_text(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

nlohmann::json trace_of(const Program& program, const std::string& name) {
  const std::string file = program.folder() / "r" / name;
  EXPECT_EQ(std::system(str("gunzip -kf ", file, ".trace.json.gz").c_str()), 0);
  return nlohmann::json::parse(text_of(file + ".trace.json"));
}

// 18 steps of SGD with rate 0.1 and momentum 0.9, of gradients below 1 that are sums of at most 32
// products: each step may part by 0.1 * 32 * 2^-24 = 2e-7, and momentum adds up ten of them. A mask
// or a row that is another one moves weights by 1e-3.
constexpr double kRounding = 18 * 10 * 2e-7;

// The weights that a run has saved, one behind the other.
std::vector<double> weights_of(const Program& program) {
  std::vector<double> all;
  for (const auto& [_, t] :
      nn::read_safetensors(program.folder() / "r" / "model.safetensors").tensors) {
    for (const double v : t.to_vector<double>()) all.push_back(v);
  }
  return all;
}
testing::AssertionResult close_weights(const Program& got, const Program& wanted) {
  return close(weights_of(got), weights_of(wanted), {.absolute = kRounding});
}

TEST_F(MnistRanks, TrainAsOneProcessDoes) {
  struct Case {
    std::string what;
    Words words;
  };
  for (const Case& c : std::vector<Case>{{"eager", {}}, {"fused", {"--mode", "fused"}},
           {"accumulated", {"--accum", "2", "--mode", "fused", "--clip", "0.5"}},
           {"made ahead", {"--augment", "shift=2"}},
           {"fewer images than ranks", {"--limit", "3", "--mode", "fused"}},
           {"convolution", {"--model", "conv 4 5 stride 2; relu; flatten; linear 10"}}}) {
    Words words = with(kTrainSmall, c.words);
    if (c.what == "convolution") {
      std::erase(words, "--hidden");
      std::erase(words, "16");
      std::erase(words, "--dropout");
      std::erase(words, "0.2");
    }
    const RankProgram alone(1);
    const nlohmann::json a = json_of(alone, words);
    for (const int ranks : c.what == "fused" ? std::vector{2, 3, 4} : std::vector{4}) {
      const RankProgram program(ranks);
      const nlohmann::json b = json_of(program, words);
      EXPECT_TRUE(close_weights(program, alone)) << c.what << ", " << ranks << " ranks";
      EXPECT_EQ(a["test"]["images"], b["test"]["images"]);
      EXPECT_NEAR(a["test"]["loss"].get<double>(), b["test"]["loss"].get<double>(), 1e-4);
      // Accumulated, one process counts the mean of each step alike, a ragged one too.
      for (size_t e = 0; c.what != "accumulated" && e < a["epochs"].size(); ++e) {
        EXPECT_NEAR(
            a["epochs"][e]["loss"].get<double>(), b["epochs"][e]["loss"].get<double>(), 1e-4)
            << c.what << ", " << ranks << " ranks, epoch " << e + 1;
      }
      EXPECT_EQ(b["ranks"], ranks);
      EXPECT_GT(b["all_reduce"]["bytes"], 0);
    }
  }
}

// In the mean: Adam's step is about lr however small the gradient, so where that is rounding two
// runs may part by 2 lr. A gradient is off by up to 32 * 2^-24 of its terms' sum, d = 2e-6; the
// share of gradients that are smaller than e of that sum is about e, so a step is off by lr d / e
// on the average over e, which is lr d (1 + ln(1 / d)) = 15 lr d. 18 steps of rate 1e-3: 5e-7, and
// tenfold for what each makes of the next. A row less in 32 moves the mean by 3 % of 18 lr.
TEST_F(MnistRanks, TrainByAdamAsOneProcessDoes) {
  constexpr double kMeanRounding = 10 * 18 * 1e-3 * 15 * 2e-6;
  for (const char* mode : {"eager", "fused"}) {
    const Words words = with(kTrainSmall, {"--optimizer", "adam", "--mode", mode});
    const RankProgram alone(1), program(3);
    alone.run(0, words);
    const Result r = program.run(0, words);
    EXPECT_LE(
        closeness(weights_of(program), weights_of(alone), {.absolute = 1}).mean, kMeanRounding)
        << mode;
  }
}

TEST_F(MnistRanks, ResumeToTheBitOrWithAnotherNumber) {
  for (const char* mode : {"eager", "fused"}) {
    const Words words = with(kTrainSmall, {"--mode", mode, "--save-steps", "5"});
    RankProgram straight(3), stopped(3);
    straight.name = stopped.name = StoppingProgram().name;
    straight.run(0, words);
    // The ranks agree to stop once in a while, and where they read the val set: after step 9.
    const Result r = stopped.run(130, with(words, {"--stop-after", "5"}));
    EXPECT_EQ(count_of_text(r.err, "interrupted after step "), 1U) << r.err;
    const std::string saved = text_of(last(stopped));
    stopped.run(0, {"train", "--resume", "r"});
    const std::regex seconds("\"seconds\":[^}]*");  // the one time of a log
    for (const char* file : {"last.safetensors", "model.safetensors", "events.jsonl"}) {
      const auto untimed = [&](const Program& p) {
        const std::string text = text_of(p.folder() / "r" / file);
        return text.starts_with("{\"step\"") ? std::regex_replace(text, seconds, "") : text;
      };
      EXPECT_EQ(untimed(straight), untimed(stopped)) << mode << " " << file;
    }
    for (const int ranks : {1, 2}) {
      std::ofstream(last(stopped), std::ios::binary) << saved;
      stopped.launcher = ranks > 1 ? mpirun(ranks) : Words{};
      const Result other = stopped.run(0, {"train", "--resume", "r"});
      expect_facts(
          other.err, {"the bits of an undisturbed one: device was cpu x 3 ranks, now cpu"});
      EXPECT_TRUE(close_weights(stopped, straight)) << mode << ", " << ranks << " ranks";
    }
  }
}

TEST_F(MnistRanks, AKilledRankEndsTheJobAndIsNamed) {
  for (const int rank : {0, 2}) {
    const RankProgram program(3);
    pid_t victim = 0;
    const Result r = program.run(kTrainLong, [&](pid_t launcher) {
      wait_until([&] { return fs::exists(last(program)); });
      victim = pid_of_rank(launcher, rank);
      ASSERT_GT(victim, 0);
      kill(victim, SIGKILL);
    });
    EXPECT_NE(r.status, 0);
    const std::string wanted = str("rank ", rank, " is lost: its process ", victim, " has ended");
    EXPECT_EQ(count_of_text(r.err, "error: "), 1U) << r.err;
    expect_facts(r.err, {wanted, "mpirun -np 3 mnist train --resume r goes on"});
    program.run(0, {"train", "--resume", "r", "--epochs", "1"});
  }
}

TEST_F(MnistRanks, ARankThatHangsEndsTheJobByTheTimeout) {
  for (const int rank : {0, 1}) {
    const RankProgram program(3);
    std::vector<pid_t> pids;
    const Result r = program.run(with(kTrainLong, {"--rank-timeout", "4"}), [&](pid_t launcher) {
      wait_until([&] { return fs::exists(last(program)); });
      for (int i = 0; i < 3; ++i) pids.push_back(pid_of_rank(launcher, i));
      ASSERT_GT(pids[rank], 0);
      kill(pids[rank], SIGSTOP);
    });
    EXPECT_NE(r.status, 0);
    EXPECT_EQ(count_of_text(r.err, "error: "), 1U) << r.err;
    expect_facts(r.err, {str("rank ", rank, " of 3 did not arrive"),
                            "mpirun -np 3 mnist train --resume r goes on"});
    // Where nobody waits for the launcher's children they stay as zombies.
    wait_until([&] {
      return std::ranges::all_of(pids, [](pid_t pid) {
        const std::string state = text_of(str("/proc/", pid, "/stat"));
        return state.empty() || has(state, ") Z ");
      });
    });
  }
}

TEST_F(MnistRanks, ASignalStopsAllAtOneStep) {
  const RankProgram program(3);
  const Result r = program.run(kTrainLong, [&](pid_t launcher) {
    wait_until([&] { return fs::exists(last(program)); });
    kill(launcher, SIGINT);
  });
  EXPECT_NE(r.status, 0);
  EXPECT_EQ(count_of_text(r.err, "interrupted after step"), 1U) << r.err;
  EXPECT_FALSE(has(r.err, "error: ")) << r.err;
}

TEST_F(MnistRanks, AWrongSetUpIsRefusedWithBothValues) {
  struct Case {
    Words here, there;
    std::string said;
    Words options{};
    std::string program{};
  };
  const RankProgram program(2);
  for (const char* seed : {"1", "2"}) {
    RankProgram maker(1);
    maker.run(0, {"data", "make", program.folder() / (std::string("d") + seed), "--train", "200",
                     "--test", "20", "--data-seed", seed});
  }
  const std::string other = program.folder() / "other";
  fs::copy_file(SINTER_BIN_DIR "/mnist", other);
  std::ofstream(other, std::ios::app) << "x";
  fs::create_directory(program.folder() / "elsewhere");
  for (const Case& c : std::vector<Case>{
           {{"--seed", "1"}, {"--seed", "2"}, "ranks differ in --seed: rank 0 has 1, rank 1 has 2"},
           {{"--lr", "0.1"}, {"--lr", "0.2"}, "in --lr: rank 0 has 0.1, rank 1 has 0.2"},
           {{"--data", "d1"}, {"--data", "d2"}, "ranks differ in the data: rank 0 has "},
           {{}, {}, "ranks differ in the build: rank 0 has ", {}, other},
           {{}, {}, "ranks differ in the run folder: rank 0 has ", {"-wdir", "elsewhere"}}}) {
    RankProgram pair(2);
    pair.launcher = {
        "mpirun", "--oversubscribe", "--bind-to", "none", "-wdir", program.folder(), "-np", "1"};
    const Words other_one = beside(with(kTrainSmall, c.there),
        c.options.empty() ? Words{"-wdir", program.folder()}
                          : Words{"-wdir", program.folder() / c.options[1]},
        c.program);
    const Result r = pair.run(2, with(kTrainSmall, c.here) + other_one);
    EXPECT_EQ(count_of_text(r.err, "error: "), 1U) << r.err;
    expect_facts(r.err, {"error: rank 0: usage: ranks differ in ", c.said});
    EXPECT_FALSE(fs::exists(program.folder() / "r"));
  }
}

TEST_F(MnistRanks, ErrorsCarryTheirRank) {
  const RankProgram program(2);
  RankProgram pair(2);
  pair.launcher = {"mpirun", "--oversubscribe", "--bind-to", "none", "-np", "1"};
  // Rank 1 alone lacks the file.
  program.write("weights", "none");
  Result r =
      pair.run(4, kTrainSmall + beside(with(kTrainSmall, {"--init", "missing.safetensors"})));
  EXPECT_EQ(count_of_text(r.err, "error: "), 1U) << r.err;
  expect_facts(r.err, {"error: rank 1: "});
  // All ranks fail alike: the first says it.
  for (const Words& words :
      {with(kTrainSmall, {"--batch", "none"}), with(kTrainSmall, {"--target-acc", "100"}),
          Words{"eval"}, with(kTrainSmall, {"--measure", "on", "--mode", "fused"})}) {
    r = program.run(words);
    EXPECT_NE(r.status, 0);
    EXPECT_EQ(count_of_text(r.err, "error: "), 1U) << r.err;
    expect_facts(r.err, {"error: rank 0: "});
  }
}

// One file with a process lane for each rank on a common clock, and one file for each rank.
TEST_F(MnistRanks, ATraceHasALaneForEachRank) {
  for (const char* mode : {"eager", "fused"}) {
    const RankProgram program(3);
    const Result r = program.run(0,
        with(kTrainSmall, {"--profile=table,trace", "--profile-steps", "2:2:3", "--mode", mode}));
    expect_facts(r.out, {"all_reduce"});
    std::set<int64_t> flows, processes;
    std::map<int64_t, double> begins;
    const nlohmann::json together = trace_of(program, "profile");
    for (const auto& event : together["traceEvents"]) {
      const auto pid = event["pid"].get<int64_t>();
      if (event["ph"] == "M" && event["name"] == "process_name") {
        EXPECT_EQ(event["args"]["name"], str("rank ", pid / 2, ": host"));
        processes.insert(pid);
      }
      if (event["ph"] == "s") {
        EXPECT_TRUE(flows.insert(event["id"].get<int64_t>()).second);
      }
      if (event["ph"] == "X" && event["name"] == "all_reduce") begins.emplace(pid, event["ts"]);
    }
    EXPECT_EQ(processes, (std::set<int64_t>{1, 3, 5}));
    ASSERT_EQ(begins.size(), 3U);
    for (const auto& [pid, us] : begins) EXPECT_LT(std::abs(us), 10e6) << pid;
    for (int rank = 0; rank < 3; ++rank) {
      const nlohmann::json own = trace_of(program, str("profile.rank", rank));
      EXPECT_EQ(own["distributedInfo"], (nlohmann::json{{"rank", rank}, {"world_size", 3}}));
    }
  }
}

// A launcher of another MPI, or a build without MPI: not as many runs beside each other.
TEST(MnistLaunched, IsRefusedWhereTheRanksDoNotKnowEachOther) {
  Program program;
  program.environment = {"PMI_SIZE=2", "PMI_RANK=0", "ASAN_OPTIONS=detect_leaks=0"};
  const Result r = program.run(kTrainSmall);
  if (distributed::mpi_version().empty()) {
    EXPECT_EQ(r.status, 5);
    expect_facts(r.err, {"rank 0: MPI: not in this build", "libopenmpi-dev"});
  } else {
    EXPECT_EQ(r.status, 2);
    expect_facts(r.err, {"the launcher started 2 processes, and "});
  }
  EXPECT_FALSE(fs::exists(program.folder() / "r"));
}

}  // namespace
}  // namespace sinter::test
