// The learning rate of every step of a long run: rates are told to the device some thousand steps
// ahead, and each step is to have its own.
#include <numbers>

#include "nn/mlp.h"
#include "tests/closeness.h"
#include "tests/test_util.h"
#include "train/trainer.h"

namespace sinter {
namespace {

// y = w x + b with the loss y: the gradient of b is 1 at each step, which so moves by the rate.
struct LongRun {
  nn::Mlp model{{1, 1}};
  nn::Sgd optimizer;
  Trainer trainer;
  const std::vector<Tensors> batches{{Tensor::ones({4, 1}, DType::f64), sample_labels(4, 1, 1)}};

  LongRun(bool fused, const nn::Schedule& schedule)
      : optimizer((model.to(DType::f64), model.named_parameters()), {.lr = 1, .momentum = 0}),
        trainer(model, optimizer,
            {.loss = [](const Tensor& y, const Tensor&) { return sum(y, 1); },
                .fused = fused,
                .schedule = schedule}) {}
  double bias() const { return model.parameters()[1].item(); }
  // How far each of the next steps moves it.
  std::vector<double> moves(int64_t steps) {
    std::vector<double> out;
    for (double before = bias(); steps > 0; --steps) {
      trainer.step(batches[0]);
      const double after = bias();
      out.push_back(before - after);
      before = after;
    }
    return out;
  }
};

constexpr int64_t kRunSteps = 12'000, kRunWarmup = 100, kBehindTwoBlocks = 2 * 4096 + 100;
constexpr double kPeak = 0.25;

std::vector<double> cosine_by_hand(int64_t from, int64_t to) {
  std::vector<double> rates;
  for (int64_t s = from; s < to; ++s) {
    const double of_fall = double(s - kRunWarmup) / double(kRunSteps - kRunWarmup);
    rates.push_back(s < kRunWarmup ? kPeak * double(s + 1) / double(kRunWarmup)
                                   : kPeak * (1 + std::cos(std::numbers::pi * of_fall)) / 2);
  }
  return rates;
}

// A bias of at most 12,000 * 0.25 has moves to 2^-53 * 3000 = 4e-13.
TEST(Rates, AreThoseOfTheScheduleHoweverLongTheRun) {
  const nn::Schedule cosine{nn::Schedule::Kind::cosine, kPeak, kRunSteps, kRunWarmup};
  const test::TempDir folder;
  for (const bool fused : {false, true}) {
    SCOPED_TRACE(fused ? "fused" : "eager");
    LongRun run(fused, cosine);
    const std::vector<double> moves = run.moves(kBehindTwoBlocks),
                              wanted = cosine_by_hand(0, kBehindTwoBlocks);
    EXPECT_TRUE(test::close(moves, wanted, {.absolute = 1e-12}));
    EXPECT_TRUE(test::apart({moves[4096]}, {wanted[0]}, {.absolute = 1e-12}));
    EXPECT_EQ(run.trainer.lr_of(kBehindTwoBlocks), cosine_by_hand(kBehindTwoBlocks, 10'000)[0]);
  }
}

// Where it was saved, told rates were left over; behind it come as many as ever.
TEST(Rates, OfARunThatGoesOnAreThoseOfTheWholeOne) {
  const nn::Schedule cosine{nn::Schedule::Kind::cosine, kPeak, kRunSteps, kRunWarmup};
  const test::TempDir folder;
  const std::string file = folder.file("run.safetensors");
  for (const bool fused : {false, true}) {
    SCOPED_TRACE(fused ? "fused" : "eager");
    std::filesystem::remove(file);
    LongRun first(fused, cosine), second(fused, cosine), third(fused, cosine);
    for (int epoch = 0; epoch < 150; ++epoch) first.trainer.fit(first.batches);
    first.trainer.save(file);
    ASSERT_TRUE(second.trainer.resume(file, second.batches));
    third.trainer.copy_from(first.trainer);
    const std::vector<double> wanted = cosine_by_hand(150, 150 + 4200);
    EXPECT_TRUE(test::close(second.moves(4200), wanted, {.absolute = 1e-12}));
    EXPECT_TRUE(test::close(third.moves(4200), wanted, {.absolute = 1e-12})) << "copied";
  }
}

}  // namespace
}  // namespace sinter
