// Fingerprints: equal runs are equal to the bit, and where something is planted in one of two runs,
// that op is told and whether what it read was equal.
#include "measure/fingerprint.h"

#include <gtest/gtest.h>

#include "core/device/memory.h"
#include "core/hash64.h"
#include "core/json.h"
#include "tests/capture/step_util.h"
#include "tests/test_util.h"

namespace sinter::measure {
namespace {

using test::TempDir, test::expect_error;

TEST(Hash64, OfEveryWordAndLength) {
  std::set<uint64_t> seen;
  std::vector<uint8_t> bytes(700, 0);
  for (size_t n = 0; n <= bytes.size(); ++n)
    EXPECT_TRUE(seen.insert(hash64(bytes.data(), n)).second);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const uint8_t bit : {1, 128}) {
      bytes[i] = bit;
      EXPECT_TRUE(seen.insert(hash64(bytes.data(), bytes.size())).second) << i;
      bytes[i] = 0;
    }
  }
  // The signs of two numbers that lie a lane's length apart: a product alone would not see them.
  for (const size_t apart : {4, 8, 256, 512}) {
    bytes[7] = bytes[7 + apart] = 128;
    EXPECT_TRUE(seen.insert(hash64(bytes.data(), bytes.size())).second) << apart;
    bytes[7] = bytes[7 + apart] = 0;
  }
}

// Copies, but for the first element, if that is planted.
bool planted = false;
void copies(const Call& call) {
  const Tensor &from = call.in[0], &to = call.out[0];
  copy_on_device(to.raw(), from.raw(), from.device(), size_t(from.numel()) * 4);
  if (planted) *to.data<float>() = std::nextafter(*to.data<float>(), 2.0F);
}
const OpDef kCopies{.name = "copies",
    .infer =
        [](Operands in, const Attrs&) {
          return Tensors{Tensor::shape_only(in[0].shape(), DType::f32, in[0].device())};
        },
    .cost = [](Operands in, Operands out, const Attrs&) { return cost_of(0, in, out); },
    .cpu = copies,
    .simt = copies,
    .backward = [](const Saved&, Operands grads) { return Tensors{grads[0]}; }};

struct Copies : nn::Module {
  Tensor forward(const Tensor& x) override { return apply1(kCopies, {x}); }
  std::string describe() const override { return "Copies"; }
};

struct Runs {
  bool fused = false;
  double dropout = 0;
  uint64_t seed = 3, weights = 5;
  Device device = kCpu;
  int64_t every = 1, steps = 40;
  std::function<void(int64_t step, nn::Module& model, Tensors& batch)> before = {};
  Shape x{12, 20};

  void operator()(const std::string& file) const {
    auto net = std::make_shared<nn::Sequential>(
        nn::Linear(20, 16), Copies(), nn::Dropout(dropout), nn::Linear(16, 4));
    net->init_parameters(weights);
    net->to(device);
    nn::Adam optimizer(net->named_parameters(), {.lr = 0.01});
    Trainer trainer(*net, optimizer, {.fused = fused, .capture = {.measure = false}});
    manual_seed(seed);
    std::vector<std::pair<std::string, Tensor>> named{{"state", optimizer.state()}};
    for (const auto& [name, t] : net->named_parameters()) named.emplace_back(name, t);
    Fingerprints prints(file,
        {.device = device.str(),
            .mode = fused ? "fused" : "eager",
            .seed = std::to_string(seed),
            .every = every},
        named);
    for (int64_t step = 1; step <= steps; ++step) {
      Tensors batch{sample_tensor(x, uint64_t(step % 5)).to(device),
          sample_labels(x[0], 4, uint64_t(step % 5)).to(device)};
      batch[0] = cast(batch[0], DType::f32);
      if (before) before(step, *net, batch);
      prints.begin_step(step);
      trainer.step(batch);
      prints.end_step();
    }
    EXPECT_EQ(prints.cost().steps, steps / every);
  }
};

class Fingerprint : public testing::TestWithParam<bool> {
 protected:
  Parting part(const Runs& a, const Runs& b) const {
    a(dir_.file("a"));
    b(dir_.file("b"));
    return parting(dir_.file("a"), dir_.file("b"));
  }
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(All, Fingerprint, testing::Bool(),
    [](const auto& info) { return info.param ? "fused" : "eager"; });

// Of twenty runs none is a false alarm.
TEST_P(Fingerprint, OfEqualRunsIsEqual) {
  for (const Device device : test::devices_of_tests()) {
    const Runs run{.fused = GetParam(), .dropout = 0.5, .device = device, .steps = 6};
    for (int i = 0; i < (device == kCpu ? 20 : 1); ++i) {
      const Parting parting = part(run, run);
      EXPECT_EQ(parting.what, Parting::What::nothing) << Json(parting);
      EXPECT_EQ(parting.last, 6);
      EXPECT_GT(parting.ops, 6 * 8);
    }
  }
}

TEST_P(Fingerprint, TellsTheOpAndStepWithAnUlpMore) {
  const Runs right{.fused = GetParam()};
  Runs wrong = right;
  wrong.before = [](int64_t step, nn::Module&, Tensors&) { planted = step == 37; };
  const Parting parting = part(right, wrong);
  planted = false;
  EXPECT_EQ(parting.what, Parting::What::written);
  EXPECT_EQ(parting.step, 37);
  EXPECT_EQ(parting.last, 36);
  EXPECT_EQ(parting.name, "copies");
  EXPECT_EQ(parting.tensor, "f32[12, 16]");
  EXPECT_TRUE(parting.module.ends_with("Copies")) << parting.module;
}

TEST_P(Fingerprint, TellsAnotherSeedOfDropout) {
  const Runs a{.fused = GetParam(), .dropout = 0.5};
  Runs b = a;
  b.seed = 4;
  const Parting parting = part(a, b);
  EXPECT_EQ(parting.step, 1);
  EXPECT_EQ(parting.what, Parting::What::read);
  EXPECT_EQ(parting.name, "dropout");
  EXPECT_EQ(parting.tensor, "random numbers i64[3]");
}

TEST_P(Fingerprint, TellsOtherWeightsBatchesAndWhatTheHostChanged) {
  const Runs a{.fused = GetParam()};
  Runs b = a;
  b.weights = 6;
  EXPECT_EQ(part(a, b).name, "start");
  EXPECT_EQ(part(a, b).tensor, "0.weight f32[16, 20]");
  b = a;
  b.before = [](int64_t step, nn::Module&, Tensors& batch) {
    if (step == 7) batch[0].data<float>()[239] += 1;
  };
  Parting parting = part(a, b);
  EXPECT_EQ(parting.step, 7);
  EXPECT_EQ(parting.what, Parting::What::read);
  EXPECT_EQ(parting.tensor, "f32[12, 20]");
  b.before = [](int64_t step, nn::Module& model, Tensors&) {
    const Tensor bias = model.named_parameters().back().tensor;
    if (step == 8) nn::copy_values(bias, bias + 1, "test");
  };
  parting = part(a, b);
  EXPECT_EQ(parting.step, 8);
  EXPECT_EQ(parting.what, Parting::What::read);
  EXPECT_EQ(parting.tensor, "3.bias f32[4]");
}

TEST(Fingerprints, OfEagerAndFusedHaveOtherOps) {
  TempDir dir;
  Runs{.fused = false}(dir.file("a"));
  Runs{.fused = true}(dir.file("b"));
  const Parting found = parting(dir.file("a"), dir.file("b"));
  EXPECT_EQ(found.what, Parting::What::ops);
  EXPECT_EQ(found.step, 2) << "the first step runs op by op in both";
  std::string text;
  for (const auto& [label, line] : found.lines()) text += label + " " + line + "\n";
  test::expect_facts(text, {"part in step 2, op ", "before steps 0 to 1, ",
                               "heads mode is \"eager\" in A, \"fused\" in B", "bits must differ"});
}

TEST(Fingerprints, HearEveryNthStepAndNothingBetween) {
  TempDir dir;
  for (const bool fused : {false, true}) {
    Runs{.fused = fused, .every = 10}(dir.file("a"));
    Runs{.fused = fused, .every = 20}(dir.file("b"));
    const Parting found = parting(dir.file("a"), dir.file("b"));
    EXPECT_EQ(found.what, Parting::What::nothing) << Json(found);
    EXPECT_EQ(found.last, 40);
    Runs b{.fused = fused, .every = 20};
    b.before = [](int64_t step, nn::Module&, Tensors&) { planted = step == 25; };
    b(dir.file("b"));
    planted = false;
    EXPECT_EQ(parting(dir.file("a"), dir.file("b")).step, 40);
  }
}

TEST(Fingerprints, FilesThatAreNoneAreRefused) {
  TempDir dir;
  Runs{.steps = 2}(dir.file("a"));
  const std::string whole = test::text_of(dir.file("a"));
  for (const std::string& text : {std::string(), std::string("{}\n"), std::string("digits"),
           "{\"schema\":1}\n" + whole, whole + "{\"step\":9,\"ops\":[77],\"hashes\":\"\"}\n",
           whole + "{\"step\":9,\"ops\":[0],\"hashes\":\"00\"}\n"}) {
    dir.write("b", text);
    expect_error(
        Error::Kind::data, {dir.file("b")}, [&] { parting(dir.file("a"), dir.file("b")); });
  }
  dir.write("b", whole.substr(0, whole.size() - 9));  // a run that was cut off
  EXPECT_EQ(parting(dir.file("a"), dir.file("b")).last, 1);
  expect_error(
      Error::Kind::checkpoint, {"cannot write", "/nowhere/"}, [&] { Runs{}("/nowhere/a"); });
}

}  // namespace
}  // namespace sinter::measure
