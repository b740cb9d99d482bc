// Checkpoints: what is saved comes back to the bit, the same state is the same bytes, hostile
// states are refused, a save that fails leaves the old file (tests/core/atomic_file_test.cpp fails
// at any system call).
#include "nn/checkpoint.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/mlp.h"
#include "nn/pool.h"
#include "nn/state_dict.h"
#include "tests/closeness.h"
#include "tests/data/data_test_util.h"
#include "tests/test_util.h"

namespace sinter::nn {
namespace {

using test::expect_error;
using test::TempDir;
using test::text_of;
using enum Error::Kind;
namespace fs = std::filesystem;

TrainingState some_state() {
  return {.step = 12,
      .epoch = 1,
      .batch = 3,
      .best = 0.75,
      .window_loss = 1e-300,
      .events = 7,
      .data = "a \"folder\"\n\xff",
      .data_crc = UINT64_MAX,
      .device = "cpu",
      .mode = "fused",
      .build = "x",
      .threads = 2,
      .unfused = {{{"linear_act", 3}, {"glu", 1}}, {}}};
}

// n steps on one batch of the shape x, of three classes.
template <class Model> void train(Model& model, Optimizer& optimizer, const Shape& x, int n) {
  for (int i = 0; i < n; ++i) {
    optimizer.zero_grad();
    const Tensor losses = cross_entropy(model(cast(sample_tensor(x, 9), DType::f32)),
        Tensor::from(std::vector<int32_t>{0, 2, 1, 2}, {4}));
    backward(losses);
    optimizer.step(losses);
  }
}

struct Trained {
  Mlp model{{6, 8, 3}, {.dropout = 0.3, .seed = 4}};
  Adam optimizer{model.named_parameters(), {.lr = 0.01}};
  void steps(int n) { train(model, optimizer, {4, 6}, n); }
};

TEST(Checkpoint, GoesOnToTheBit) {
  const TempDir dir;
  manual_seed(UINT64_MAX - 5);
  Trained straight;
  straight.steps(5);
  save_checkpoint(dir.file("a"), straight.model, straight.optimizer, "config", some_state());
  straight.steps(4);
  save_checkpoint(dir.file("end"), straight.model, straight.optimizer, "config", some_state());

  manual_seed(1);
  Trained other;
  other.steps(2);
  const Checkpoint checkpoint = read_checkpoint(dir.file("a"));
  EXPECT_EQ(checkpoint.config, "config");
  EXPECT_EQ(checkpoint.state.optimizer_step, 5);
  EXPECT_EQ(checkpoint.state.rng_seed, UINT64_MAX - 5);
  restore(checkpoint, other.model, other.optimizer);
  save_checkpoint(dir.file("b"), other.model, other.optimizer, "config", some_state());
  EXPECT_EQ(text_of(dir.file("a")), text_of(dir.file("b")));
  other.steps(4);
  save_checkpoint(dir.file("b"), other.model, other.optimizer, "config", some_state());
  EXPECT_EQ(text_of(dir.file("end")), text_of(dir.file("b")));

  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    names.push_back(name);
    const bool counts = name.find(kSkippedSteps) != name.npos;
    EXPECT_EQ(tensor.dtype(), counts ? DType::f64 : DType::f32);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"sinter.optim/skipped_steps/0.bias",
                       "sinter.optim/skipped_steps/0.weight", "sinter.optim/skipped_steps/3.bias",
                       "sinter.optim/skipped_steps/3.weight", "0.bias", "0.weight", "3.bias",
                       "3.weight", "sinter.optim/exp_avg/0.bias", "sinter.optim/exp_avg/0.weight",
                       "sinter.optim/exp_avg/3.bias", "sinter.optim/exp_avg/3.weight",
                       "sinter.optim/exp_avg_sq/0.bias", "sinter.optim/exp_avg_sq/0.weight",
                       "sinter.optim/exp_avg_sq/3.bias", "sinter.optim/exp_avg_sq/3.weight"}));
}

// Running statistics are part of the state dict, so a run goes on with them.
TEST(Checkpoint, GoesOnToTheBitByEveryOptimizerAndWithBuffers) {
  for (const OptimizerChoice& choice : optimizers()) {
    const TempDir dir;
    const auto run = [](Sequential& model, Optimizer& optimizer, int n) {
      train(model, optimizer, {4, 2, 2, 3}, n);
    };
    Sequential straight{BatchNorm2d(2), Flatten(), Linear(12, 3)},
        other{BatchNorm2d(2), Flatten(), Linear(12, 3)};
    const auto a = choice.make(straight.named_parameters(), 0.01, 0.1, 0.9, {0.7, 0.9}),
               b = choice.make(other.named_parameters(), 0.01, 0.1, 0.9, {0.7, 0.9});
    run(straight, *a, 3);
    save_checkpoint(dir.file("a"), straight, *a, "", some_state());
    run(straight, *a, 3);
    run(other, *b, 1);
    restore(read_checkpoint(dir.file("a")), other, *b);
    run(other, *b, 3);
    save_checkpoint(dir.file("straight"), straight, *a, "", some_state());
    save_checkpoint(dir.file("other"), other, *b, "", some_state());
    EXPECT_EQ(text_of(dir.file("straight")), text_of(dir.file("other"))) << choice.name;
    EXPECT_EQ(other.state_dict()[4].tensor.item(), 6) << "batches of the running statistics";
  }
}

// A weight that was frozen for some steps: Adam counts its own.
TEST(Checkpoint, KeepsTheStepsOfEachParameter) {
  const TempDir dir;
  const auto skipped = [](const Checkpoint& checkpoint, const char* name) {
    return find(checkpoint.tensors, str("sinter.optim/skipped_steps/", name))->item();
  };
  const auto weights = [](const Trained& t) { return t.model.parameters()[0].to_vector<float>(); };
  manual_seed(3);
  Trained straight;
  Tensor weight = straight.model.parameters()[0];
  weight.set_requires_grad(false);
  straight.steps(4);
  weight.set_requires_grad(true);
  straight.steps(1);
  save_checkpoint(dir.file("a"), straight.model, straight.optimizer, "", some_state());
  straight.steps(3);
  Checkpoint saved = read_checkpoint(dir.file("a"));
  EXPECT_EQ(skipped(saved, "0.weight"), 4);
  EXPECT_EQ(skipped(saved, "0.bias"), 0);
  Trained other;
  restore(saved, other.model, other.optimizer);
  other.steps(3);
  EXPECT_EQ(weights(other), weights(straight));

  const auto before = weights(other);
  for (const double wrong : {-1.0, 0.5, 6.0, double{NAN}}) {
    *find(saved.tensors, "sinter.optim/skipped_steps/3.bias")->data<double>() = wrong;
    expect_error(checkpoint,
        {"damaged", dir.file("a"), "skipped_steps/3.bias is " + str(wrong), "up to the 5 steps"},
        [&] { restore(saved, other.model, other.optimizer); });
  }
  saved.tensors.erase(saved.tensors.begin());
  *find(saved.tensors, "sinter.optim/skipped_steps/3.bias")->data<double>() = 0;
  expect_error(checkpoint, {"keys do not match", "1 missing", "skipped_steps"},
      [&] { restore(saved, other.model, other.optimizer); });
  EXPECT_EQ(weights(other), before);
}

TEST(Checkpoint, SameKeysOnlyAndAllOrNothing) {
  const TempDir dir;
  Trained adam;
  save_checkpoint(dir.file("a"), adam.model, adam.optimizer, "", some_state());
  Mlp model({6, 8, 3}, {.dropout = 0.3});
  Sgd sgd(model.named_parameters());
  const auto before = model.parameters()[0].to_vector<float>();
  expect_error(checkpoint,
      {"keys do not match", dir.file("a"), "4 missing, 12 unexpected",
          "missing sinter.optim/momentum_buffer/0.weight"},
      [&] { restore(read_checkpoint(dir.file("a")), model, sgd); });
  EXPECT_EQ(model.parameters()[0].to_vector<float>(), before);
  write_safetensors(dir.file("weights"), model.state_dict());
  expect_error(checkpoint,
      {"weights only: " + dir.file("weights"), "optimizer state, RNG and data position are missing",
          "load_state_dict"},
      [&] { read_checkpoint(dir.file("weights")); });
}

TEST(Checkpoint, StateComesBackFromItsText) {
  const std::string text = to_json(some_state());
  EXPECT_EQ(to_json(parse_state(text, "F")), text);
  test::expect_facts(
      text, {R"("best":"3fe8000000000000")", R"("data_crc":"18446744073709551615")"});
}

// Files of earlier builds, which lack what is newer, are read; then it is as at the start.
TEST(Checkpoint, StatesOfEarlierBuildsAreRead) {
  TrainingState state = some_state();
  state.batches = "9 rows";
  state.rng_ops = 3;
  state.rng_tensors = UINT64_MAX;
  state.rng_devices = {{Device::parse("simt"), 4, 5}};
  const std::string text = to_json(state);
  const std::string newer =
      R"(,"batches":"9 rows","rng_ops":3,"rng_tensors":"18446744073709551615",)"
      R"("rng_devices":[["simt",4,5]])";
  ASSERT_TRUE(text.ends_with(newer + "}")) << text;
  EXPECT_EQ(to_json(parse_state(text, "F")), text);
  const std::string old = text.substr(0, text.size() - newer.size() - 1) + "}";
  const TrainingState read = parse_state(old, "F");
  EXPECT_EQ(to_json(read), to_json(some_state()));
  EXPECT_TRUE(read.batches.empty() && read.rng_devices.empty());
  for (const auto& [from, to] : {std::pair{"[\"simt\",4,5]", "[\"simt\",4,-5]"},
           {"[\"simt\",4,5]", "[\"simt\",-4,5]"}, {"\"rng_ops\":3", "\"rng_ops\":-3"},
           {"\"simt\"", "\"none\""}, {"\"simt\",4,5", "\"simt\",4"}}) {
    std::string bad = text;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    expect_error(checkpoint, {"damaged", "rng_"}, [&] { parse_state(bad, "F"); });
  }
}

TEST(Checkpoint, RefusesHostileStates) {
  const std::string good = to_json(some_state());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, std::string>> cases{{"", "is not one"},
      {good.substr(0, good.size() / 2), "is not one"}, {"[]", "is not one"},
      {with(R"("step":12,)", ""), "is not one: state.step is missing"},
      {with(R"("format":1)", R"("format":2)"), "newer sinter"},
      {with(R"("step":12)", R"("step":-12)"), "out of range: step is -12, allowed 0.."},
      {with(R"("step":12)", R"("step":1e300)"), "state.step is 1e+300, wanted an integer of 64"},
      {with(R"("step":12)", R"("step":18446744073709551615)"), "wanted an integer of 64 bits"},
      {with(R"("step":12)", R"("step":18446744073709551616)"), "wanted an integer of 64 bits"},
      {with(R"("step":12)", R"("step":12.5)"), "state.step is 12.5, wanted an integer of 64 bits"},
      {with(R"("step":12)", R"("step":true)"), "state.step is true, wanted an integer"},
      {with(R"("step":12)", R"("step":"12")"), "is not one"},
      {with(R"("step":12)", R"("step":12,"step":13)"), "not as sinter writes it"},
      {with(R"("step":12)", R"("step":12,"x":13)"), "not as sinter writes it"},
      {with(R"("threads":2)", R"("threads":0)"), "threads is 0"},
      {with(R"("threads":2)", R"("threads":5000)"), "threads is 5000, allowed 1..4096"},
      {with(R"("best":"3fe8000000000000")", R"("best":"7ff0000000000000")"), "best is inf"},
      {with(R"("best":"3fe8000000000000")", R"("best":"hello")"), "not as sinter writes it"},
      {with(R"("best":"3fe8000000000000")", R"("best":0.75)"), "state.best is 0.75, wanted text"},
      {with(R"("18446744073709551615")", R"("18446744073709551616")"), "not as sinter writes it"},
      {with(R"(["linear_act",3])", R"(["linear_act"])"), "is an array, wanted an array of 2"},
      {with(R"(["linear_act",3])", R"([3,"linear_act"])"),
          "state.unfused[0][1][0] is 3, wanted text"},
      {std::string(1 << 16, '['), "is not one"},
      {std::string((1 << 16) + 1, '['), "65537 bytes, at most 65536"}};
  for (const auto& [text, fact] : cases) {
    SCOPED_TRACE(text.substr(0, 60));
    expect_error(checkpoint, {"checkpoint: ", "F", fact}, [&] { parse_state(text, "F"); });
  }
}

// However many steps a file claims, to be there takes no longer.
TEST(Checkpoint, ManyStepsAreNoWork) {
  Trained t;
  t.optimizer.set_steps(1'000'000'000'000'000);
  const StepState state = read_step_state(t.optimizer.state());
  EXPECT_EQ(state.step, 1'000'000'000'000'000);
  EXPECT_EQ(state.root_scale, 1);
}

// In a child with a file system of its own: 64 KiB, and a checkpoint that does not fit beside the
// old one.
TEST(Checkpoint, AFullDiskLeavesTheOldOne) {
  const TempDir dir;
  const int status = test::status_of_child([&] {
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0)
      return 77;
    const Mlp small({20, 10}), large({200, 100});
    write_safetensors(dir.file("last"), small.state_dict());
    const std::string said =
        test::message_of([&] { write_safetensors(dir.file("last"), large.state_dict()); });
    if (said.find("No space left on device") == said.npos || said.find("intact") == said.npos)
      return 2;
    return read_safetensors(dir.file("last")).tensors.size() == 2 &&
                   !fs::exists(dir.file(str(".last.tmp-", getpid())))
               ? 0
               : 3;
  });
  if (status == 77) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(status, 0);
}

TEST(Checkpoint, AReadOnlyFolderSaysSo) {
  const TempDir dir;
  write_safetensors(dir.file("last"), {{"w", Tensor::zeros({2})}});
  ASSERT_EQ(chmod(dir.path().c_str(), 0555), 0);
  const int status = test::status_of_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 77;  // nothing is read-only for root
    const std::string said = test::message_of(
        [&] {
          write_safetensors(dir.file("last"), {{"w", Tensor::zeros({2})}});
        },
        checkpoint);
    const bool wanted =
        said.find("Permission denied") != said.npos && said.find("intact") != said.npos;
    return wanted && !testing::Test::HasFailure() ? 0 : 2;
  });
  chmod(dir.path().c_str(), 0755);
  if (status == 77) GTEST_SKIP() << "root that cannot be another user";
  EXPECT_EQ(status, 0);
}

// Made by torch: fc1 and fc2 in f16, saved by safetensors.torch; the logits are torch's.
TEST(Checkpoint, AFileOfTorchLoads) {
  SafetensorsFile file = read_safetensors(SINTER_SOURCE_DIR "/tests/data/torch_fc.safetensors");
  EXPECT_EQ(file.notes, (std::vector<std::string>{"converted F16 to f32: fc1.bias and 3 more"}));
  EXPECT_EQ(architecture(file.tensors), "mlp 784-3-10");
  Mlp model({784, 3, 10});
  for (NamedTensor& t : file.tensors) t.name.replace(0, 3, t.name[2] == '1' ? "0" : "2");
  EXPECT_EQ(load_state_dict(model, file.tensors), "same keys");
  std::vector<float> x(784);
  for (int i = 0; i < 784; ++i) x[size_t(i)] = float(i % 7) / 7;
  const Tensor logits = model(Tensor::from(x, {1, 784}));
  const std::vector<double> wanted{-0.8009375, -0.2024087, -0.5680476, 0.367692, -0.2312196,
      0.3502139, 0.5150326, 0.1092825, 0.0115622, 0.3288738};
  EXPECT_TRUE(test::close(logits, wanted, {.absolute = 1e-5}));
}

}  // namespace
}  // namespace sinter::nn
