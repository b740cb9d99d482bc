// The trainer: what a hand-written loop computes, eager and fused, over batches of any kind; it
// stops, resumes to the bit, and says what is wrong with a batch.
#include "train/trainer.h"

#include <ranges>

#include "capture/explain.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "tests/closeness.h"
#include "tests/counting_new.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

using test::expect_error;

const Device kSimt{Device::Type::simt, 0};

// A classifier of 784 pixels or `features`, its optimizer and its trainer.
struct Training {
  nn::Mlp model;
  std::unique_ptr<nn::Optimizer> optimizer;
  std::optional<Trainer> trainer;

  explicit Training(TrainerOptions options = {}, Device device = kCpu, int64_t features = 784,
      DType dtype = DType::f32, double dropout = 0)
      : model({features, 8, 10}, {.dropout = dropout, .seed = 3}) {
    manual_seed(11);
    model.to(dtype);
    model.to(device);
    optimizer = std::make_unique<nn::Adam>(model.named_parameters(), nn::AdamOptions{.lr = 0.01});
    trainer.emplace(model, *optimizer, std::move(options));
  }
  Trainer* operator->() { return &*trainer; }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const Tensor& p : model.parameters()) {
      for (const double value : p.to_vector<double>()) all.push_back(value);
    }
    return all;
  }
};

Split digits(int64_t count, Device device = kCpu) {
  Dataset data = load_dataset({.what = "synthetic", .val = 0, .limit = count});
  data.to(device);
  return data.train;
}

// Batches as a vector; the last one has fewer rows.
std::vector<Tensors> made_batches(DType dtype = DType::f32) {
  std::vector<Tensors> all;
  for (const int64_t rows : {6, 6, 6, 4}) {
    const auto seed = uint64_t(all.size());
    all.push_back(
        {cast(sample_tensor({rows, 5}, seed, 0, 1), dtype), sample_labels(rows, 10, seed)});
  }
  return all;
}

TEST(Trainer, IsTheLoopThatOneWritesByHand) {
  const Split split = digits(50);
  Training by_hand, trained({.fused = false});
  Batches a(split, {.size = 16}), b(split, {.size = 16});
  double sum = 0;
  for (const Batch& batch : a) {
    by_hand.optimizer->zero_grad();
    const Tensor losses = cross_entropy(by_hand.model(batch.images), batch.labels);
    backward(losses);
    by_hand.optimizer->step(losses);
    for (const double loss : losses.to_vector<double>()) sum += loss;
  }
  EXPECT_NEAR(trained->fit(b), sum / 50, 1e-6)
      << "the mean of all rows, of the short batch as well";
  EXPECT_EQ(trained.weights(), by_hand.weights());
  EXPECT_EQ(trained->epoch(), 1);
  EXPECT_EQ(trained->at().step, 4);
}

// f64, so that 40 steps part by rounding alone; Adam makes up to 1e3 of a rounding.
void check_fused_equals_eager(Device device) {
  std::vector<Tensors> batches = made_batches(DType::f64);
  for (Tensors& batch : batches) {
    for (Tensor& t : batch) t = t.to(device);
  }
  for (const int64_t part : {0, 3}) {
    const auto options = [&](bool fused) {
      return TrainerOptions{.fused = fused,
          .schedule = nn::Schedule{nn::Schedule::Kind::cosine, 0.01, 40, 4},
          .clip = 0.5,
          .part = part};
    };
    Training eager(options(false), device, 5, DType::f64),
        fused(options(true), device, 5, DType::f64);
    for (int epoch = 0; epoch < 10; ++epoch)
      EXPECT_NEAR(eager->fit(batches), fused->fit(batches), 1e-8);
    EXPECT_TRUE(test::close(fused.weights(), eager.weights(), {.absolute = 1e-8}));
    const capture::StepStats& stats = fused->captured_step()->stats();
    EXPECT_EQ(stats.replays, 40 - 2) << "of two shapes the first step runs";
    EXPECT_LT(fused->captured_step()->captured()->executor->launches(),
        size_t(fused->captured_step()->captured()->recorded.launches()));
    EXPECT_EQ(eager->captured_step(), nullptr);
    EXPECT_EQ(fused->allocations_per_replay(), 0);
  }
}
TEST(Trainer, FusedEqualsEager) { check_fused_equals_eager(kCpu); }
TEST(TrainerSimt, FusedEqualsEager) { check_fused_equals_eager(kSimt); }

// Rows of class 3 and those of the third batch do not count. At once, in parts of unequal counts,
// eager or fused: the weights, the mean of the epoch and the score are those of the other rows.
void check_ignored(Device device) {
  auto all = made_batches(DType::f64), rest = all;
  const NoGrad no_grad;
  rest.clear();
  for (size_t b = 0; b < all.size(); ++b) {
    Tensors kept;
    int32_t* labels = all[b][1].data<int32_t>();
    for (int64_t r = 0; r < all[b][1].numel(); ++r) {
      if (b == 2 || r < 2) labels[r] = 3;
      if (labels[r] != 3) kept.push_back(slice(all[b][0], 0, r, r + 1));
    }
    std::vector<int32_t> classes = all[b][1].to_vector<int32_t>();
    std::erase(classes, 3);
    if (!kept.empty())
      rest.push_back({cat(kept), Tensor::from(classes, {int64_t(classes.size())})});
    for (Tensor& t : all[b]) t = t.to(device);
  }
  const GradMode grad(true);
  Training wanted({.fused = false}, kCpu, 5, DType::f64);
  double loss = 0;
  for (int epoch = 0; epoch < 5; ++epoch) loss = wanted->fit(rest);
  const Score score = wanted->evaluate(rest);
  for (const bool fused : {false, true}) {
    for (const int64_t part : {0, 2, 4}) {
      SCOPED_TRACE(str(fused ? "fused" : "eager", ", part ", part));
      Training training(
          {.loss = nn::CrossEntropyLoss{.ignore_index = 3}, .fused = fused, .part = part}, device,
          5, DType::f64);
      double found = 0;
      for (int epoch = 0; epoch < 5; ++epoch) found = training->fit(all);
      // Rounding, of which Adam makes up to 1e3 times as much.
      EXPECT_NEAR(found, loss, 1e-12);
      EXPECT_TRUE(test::close(training.weights(), wanted.weights(), {.absolute = 1e-12}));
      EXPECT_EQ(training->optimizer().steps(), 15) << "the third batch is no step";
      const Score own = training->evaluate(all);
      EXPECT_EQ(own.rows, score.rows);
      EXPECT_EQ(own.labels, score.labels);
      EXPECT_EQ(own.correct, score.correct);
      EXPECT_NEAR(own.loss(), score.loss(), 1e-12);
    }
  }
}
TEST(Trainer, RowsThatAreIgnoredAreAsIfTheyWereNotThere) { check_ignored(kCpu); }

TEST(Trainer, AnEpochWithoutARowThatCountsIsTold) {
  auto batches = made_batches();
  for (const Tensors& batch : batches)
    std::fill_n(batch[1].data<int32_t>(), batch[1].numel(), -100);
  Training training({.loss = nn::CrossEntropyLoss{.ignore_index = -100}}, kCpu, 5);
  const std::vector<double> before = training.weights();
  expect_error(Error::Kind::data, {"no row counts", "4 steps", "ignore_index"},
      [&] { training->fit(batches); });
  EXPECT_EQ(training.weights(), before);
  EXPECT_EQ(training->state().last_loss, 0);
}

// What an ignore_index costs: launches of its own. The loss is fused as without one.
TEST(Trainer, ALossWithIgnoredRowsIsFused) {
  const auto text = [](std::optional<int64_t> ignored) {
    Training training({.loss = nn::CrossEntropyLoss{.ignore_index = ignored}}, kCpu, 5);
    for (int i = 0; i < 3; ++i) training->step(made_batches()[0]);
    return capture::explain(*training->captured_step()->captured());
  };
  test::expect_facts(text({}), {"softmax_xent  ", "weight_grad_update"});
  test::expect_facts(text(3), {"softmax_xent  ", "21 launches -> 9", "weight_grad_update"});
}

TEST(Trainer, ATransformerBlockTrainsFusedAsEager) {
  std::vector<double> losses[2];
  for (const bool fused : {false, true}) {
    nn::TransformerEncoderLayer block(16, 4, {.hidden = 32, .activation = "gelu", .causal = true});
    block.init_parameters(7);
    block.to(DType::f64);
    nn::Adam optimizer(block.named_parameters(), {.lr = 0.01});
    Trainer trainer(block, optimizer, {.loss = mse, .fused = fused});
    for (uint64_t step = 0; step < 6; ++step) {
      const Tensors given{sample_tensor({3, 9, 16}, 2 * step, -1, 1),
          sample_tensor({3, 9, 16}, 2 * step + 1, -1, 1)};
      for (const double loss : trainer.step(given)[0].to_vector<double>())
        losses[fused].push_back(loss);
    }
  }
  EXPECT_TRUE(test::close(losses[1], losses[0], {.absolute = 1e-11}));
}

TEST(Trainer, AFusedStepAllocatesNothing) {
  if (!test::kCountsNew) GTEST_SKIP() << "the sanitizer has its own operator new";
  const std::vector<Tensors> batches = made_batches();
  Training t({}, kCpu, 5);
  for (int i = 0; i < 3; ++i) t->step(batches[0]);
  const int64_t before = test::new_calls;
  for (int i = 0; i < 5; ++i) t->step(batches[0]);
  EXPECT_EQ(test::new_calls, before);
}

const std::vector<Tensors>& range_of(const std::vector<Tensors>& batches) { return batches; }
Batches& range_of(const std::unique_ptr<Batches>& batches) { return *batches; }

// A run that stops after `stop` steps, is saved, and goes on in another trainer ends with the file
// of a run that did not. Of each range, eager and fused: stops before the first replay, amid an
// epoch, before and behind its last batch, and where the last batch was seen once.
template <class MakeBatches>
void check_resumes(int64_t features, const MakeBatches& make, Device device = kCpu) {
  constexpr int kEpochs = 3;
  const test::TempDir folder;
  const std::string file = folder.file("run.safetensors");
  for (const bool fused : {false, true}) {
    const TrainerOptions options{
        .fused = fused, .schedule = nn::Schedule{nn::Schedule::Kind::cosine, 0.01, 12, 2}};
    const auto all = make();
    Training straight(options, device, features, DType::f32, 0.25);
    while (straight->epoch() < kEpochs) straight->fit(range_of(all));
    straight->save(file);
    const std::string wanted = test::text_of(file);
    for (const int64_t stop : {0, 1, 2, 3, 4, 5, 7, 8, 11}) {
      std::filesystem::remove(file);
      const auto before = make(), after = make();
      Training first(options, device, features, DType::f32, 0.25);
      EXPECT_FALSE(first->resume(file, range_of(before))) << "there is none yet";
      while (stop > 0 && first->at().step < stop) {
        first->fit(range_of(before), [&] {
          if (first->at().step == stop) first->stop();
        });
      }
      first->save(file);
      Training second(options, device, features, DType::f32, 0.25);
      manual_seed(99);
      EXPECT_TRUE(second->resume(file, range_of(after)));
      EXPECT_EQ(second->at().step, stop);
      while (second->epoch() < kEpochs) second->fit(range_of(after));
      second->save(file);
      EXPECT_TRUE(test::text_of(file) == wanted)
          << (fused ? "fused" : "eager") << ", stopped after " << stop;
    }
  }
}
TEST(Trainer, ResumesToTheBit) {
  const Split split = digits(50);
  check_resumes(5, [] { return made_batches(); });
  // Which the step draws itself, and which are gathered.
  for (const char* augment : {"", "shift=1"})
    check_resumes(784, [&] {
      const BatchOptions options{.size = 16, .augment = parse_augment(augment)};
      return std::make_unique<Batches>(split, options);
    });
}

// Reads sequences [B, 3, 2] of any type, as numbers.
struct Reader : nn::Module {
  explicit Reader(Device device) { linear->to(device); }
  Tensor forward(const Tensor& x) override {
    return (*linear)(cast(reshape(x, {x.size(0), 6}), DType::f32));
  }
  std::string describe() const override { return "Reader"; }
  std::shared_ptr<nn::Linear> linear = add("linear", std::make_shared<nn::Linear>(6, 4));
};

// Of a set of tensors: however far within two epochs a run is saved, what goes on ends with the
// file of a run that was not stopped, and no batch is read but those to come and one of each shape.
void check_tensors_resume(const Tensors& set, const TensorBatchOptions& options, Device device) {
  struct Counted : BatchSource {
    Counted(const Tensors& set, const TensorBatchOptions& options, int64_t size, bool drop_last)
        : BatchSource(set[0].size(0), size, drop_last), inner(set, options) {}
    Fed take() override {
      ++taken;
      inner.seek(advance());
      return inner.take();
    }
    bool shapes_vary() const override { return inner.shapes_vary(); }
    std::string describe() const override { return inner.describe(); }
    uint32_t crc32() override { return inner.crc32(); }
    TensorBatches inner;
    int64_t taken = 0;
  };
  struct Run {
    Run(const Tensors& set, const TensorBatchOptions& options, bool fused, Device device)
        : model(seeded(device)),
          optimizer(model.named_parameters(), {.lr = 0.01}),
          trainer(model, optimizer, {.loss = loss_of(set), .fused = fused}),
          batches(set, options, options.size, options.drop_last) {}
    static Device seeded(Device device) {
      manual_seed(11);
      nn::init::manual_seed(3);
      return device;
    }
    static std::function<Tensor(const Tensor&, const Tensor&)> loss_of(const Tensors& set) {
      if (is_float(set[1].dtype())) return nn::MseLoss{};
      return nn::CrossEntropyLoss{};
    }
    Reader model;
    nn::Adam optimizer;
    Trainer trainer;
    Counted batches;
  };
  const test::TempDir folder;
  const std::string file = folder.file("run.safetensors");
  for (const bool fused : {false, true}) {
    Run straight(set, options, fused, device);
    const int64_t n = straight.batches.per_epoch(), all = 2 * n;
    const bool ragged = straight.batches.rows_of({0, n - 1}) != straight.batches.rows_of({0, 0});
    while (straight.trainer.epoch() < 2) straight.trainer.fit(straight.batches);
    straight.trainer.save(file);
    const std::string wanted = test::text_of(file);
    for (int64_t stop = 0; stop <= all; ++stop) {
      Run first(set, options, fused, device), second(set, options, fused, device);
      while (stop > 0 && first.trainer.at().step < stop)
        first.trainer.fit(first.batches, [&] {
          if (first.trainer.at().step == stop) first.trainer.stop();
        });
      first.trainer.save(file);
      manual_seed(99);
      ASSERT_TRUE(second.trainer.resume(file, second.batches));
      EXPECT_EQ(second.trainer.at().step, stop);
      while (second.trainer.epoch() < 2) second.trainer.fit(second.batches);
      const int64_t rehearsed = options.then ? stop : 1 + ragged;
      EXPECT_LE(second.batches.taken, all - stop + (fused ? rehearsed : 0));
      second.trainer.save(file);
      EXPECT_TRUE(test::text_of(file) == wanted)
          << (fused ? "fused" : "eager") << ", stopped after " << stop << " of " << all;
    }
  }
}
// Sequences of numbers with sequences as targets, tokens with labels, batches that divide and not.
void check_all_tensors_resume(Device device) {
  const Tensor tokens = Tensor::from(sample_labels(22 * 6, 9, 5).to_vector<int64_t>(), {22, 3, 2}),
               targets = cast(sample_tensor({22, 4}, 2, -1, 1), DType::f32),
               labels = sample_labels(22, 4, 3);
  check_tensors_resume(
      {sample_tensor({22, 3, 2}, 1, -1, 1), targets}, {.size = 8, .device = device}, device);
  check_tensors_resume({tokens, labels}, {.size = 6, .seed = 3, .device = device}, device);
  check_tensors_resume({cast(tokens, DType::i32), labels},
      {.size = 8, .shuffle = false, .drop_last = true, .device = device}, device);
  // Of one shape or another by what is in them.
  const auto shaped = [](const Tensors& batch) {
    const bool flat = batch[0].to_vector<int64_t>()[0] % 2 == 0;
    return Tensors{reshape(batch[0], flat ? Dims{-1, 6} : Dims{-1, 2, 3}), batch[1]};
  };
  check_tensors_resume({tokens, labels}, {.size = 4, .device = device, .then = shaped}, device);
}
TEST(Trainer, TensorsResumeToTheBit) { check_all_tensors_resume(kCpu); }
TEST(TrainerSimt, TensorsResumeToTheBit) { check_all_tensors_resume(kSimt); }

TEST(Trainer, EvaluatesASource) {
  const Tensor x = sample_tensor({22, 3, 2}, 1, -1, 1), labels = sample_labels(22, 4, 3);
  TensorBatches batches({x, labels}, {.size = 8, .shuffle = false});
  Reader model(kCpu);
  nn::Sgd optimizer(model.named_parameters());
  Trainer trainer(model, optimizer);
  const Score score = trainer.evaluate(batches),
              whole = trainer.evaluate(std::vector<Tensors>{{x, labels}});
  EXPECT_EQ(score.rows, 22);
  EXPECT_EQ(score.correct, whole.correct);
  EXPECT_NEAR(score.loss_sum, whole.loss_sum, 1e-4);
  batches.seek({1, 2});
  EXPECT_EQ(trainer.evaluate(batches).rows, 6) << "the rest of the epoch";
}

TEST(Trainer, ASourceOfOtherThanPairsIsRefused) {
  const Tensor x = sample_tensor({22, 3, 2}, 1, -1, 1), labels = sample_labels(22, 4, 3);
  for (const bool fused : {false, true}) {
    Reader model(kCpu);
    nn::Sgd optimizer(model.named_parameters());
    Trainer trainer(model, optimizer, {.fused = fused});
    for (const Tensors& set : {Tensors{x}, {x, labels, labels}}) {
      TensorBatches batches(set, {.size = 8});
      const std::string given = str("2 tensors are wanted, ", set.size(), " are given");
      expect_error(Error::Kind::usage, {given}, [&] { trainer.fit(batches); });
      expect_error(Error::Kind::usage, {given}, [&] { trainer.evaluate(batches); });
    }
  }
}

TEST(Trainer, AModelThatIsNotThereIsRefused) {
  expect_error(Error::Kind::usage, {"the model is nullptr"},
      [] { Trainer(std::shared_ptr<nn::Module>(), nullptr, {}); });
}

TEST(Trainer, ResumeOfOtherTensorsIsRefused) {
  const test::TempDir folder;
  const std::string file = folder.file("a.safetensors");
  const Tensor x = sample_tensor({100, 3, 2}, 1, -1, 1), labels = sample_labels(100, 4, 3);
  const auto make = [] {
    auto model = std::make_shared<Reader>(kCpu);
    auto optimizer = std::make_shared<nn::Sgd>(model->named_parameters());
    return std::make_unique<Trainer>(model, optimizer);
  };
  TensorBatches batches({x, labels}, {.size = 60});
  const auto trainer = make();
  trainer->fit(batches);
  trainer->save(file);
  const auto refused = [&](const Tensors& set, const TensorBatchOptions& options,
                           const std::vector<std::string>& facts) {
    TensorBatches other(set, options);
    expect_error(Error::Kind::checkpoint, facts, [&] { make()->resume(file, other); });
  };
  refused({x, labels}, {.size = 70}, {"of other batches", "batches of 60", "batches of 70"});
  refused({x, labels}, {.size = 60, .seed = 2}, {"of other batches", "seed 1", "seed 2"});
  refused({x, labels}, {.size = 60, .shuffle = false}, {"of other batches", "in their order"});
  refused({x, labels}, {.size = 60, .drop_last = true}, {"of other batches", "whole"});
  refused({x, cast(labels, DType::i64)}, {.size = 60}, {"of other batches", "i32[100]", "i64"});
  refused({slice(sample_tensor({101, 3, 2}, 1, -1, 1), 0, 1, 101), labels}, {.size = 60},
      {"cannot resume with other data", "crc32 of the data was"});
  TensorBatches same({copy(x), copy(labels)}, {.size = 60});
  EXPECT_TRUE(make()->resume(file, same));
}

TEST(Trainer, GoesOnWithABatchesWhereTheCallbackStopped) {
  const Split split = digits(50);
  Batches a(split, {.size = 16}), b(split, {.size = 16});
  Training whole, parts;
  whole->fit(a);
  int calls = 0;
  const auto stop = [&] {
    if (++calls == 2) parts->stop();
  };
  parts->fit(b, stop);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(parts->epoch(), 0);
  EXPECT_EQ(parts->at().batch, 2);
  parts->fit(b, stop);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(parts->epoch(), 1);
  EXPECT_EQ(parts.weights(), whole.weights());
}

// As a model of text would have them: made as they are asked for, by a view.
TEST(Trainer, TakesAnyRangeOfTensors) {
  const std::vector<Tensors> list = made_batches();
  Training from_list({}, kCpu, 5), from_view({}, kCpu, 5);
  int made = 0;
  const auto view = std::views::iota(size_t{0}, list.size()) | std::views::transform([&](size_t i) {
    ++made;
    return Tensors{copy(list[i][0]), copy(list[i][1])};
  });
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(from_view->fit(view), from_list->fit(list));
  EXPECT_EQ(made, 12);
  EXPECT_EQ(from_view.weights(), from_list.weights());
}

TEST(Trainer, AStepOfItsOwnIsCapturedAsWell) {
  Training t;
  const Tensor x = Tensor::ones({3, 784}), weight = t.model.parameters()[0];
  const auto function = [&](const Tensors& in) { return Tensors{exp(in[0] * 2 - 1)}; };
  Trainer own(std::make_shared<nn::Mlp>(std::vector<int64_t>{2, 2}), nullptr, {.step = function});
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(test::close(own.step({x})[0], exp(x), {.of_largest = 1e-6}));
  EXPECT_EQ(own.captured_step()->stats().replays, 2);
  EXPECT_EQ(own.step({Tensor::full({}, 0.5)})[0].item(), 1) << "of any tensors";
  Batches resident(digits(20), {.size = 8});
  for (int64_t epoch = 1; epoch < 3; ++epoch) {
    EXPECT_TRUE(std::isnan(own.fit(resident)));
    EXPECT_EQ(own.epoch(), epoch);
  }
  for (const std::function<void()>& needs : {std::function<void()>([&] { own.save("none"); }),
           {[&] { own.state(); }}, {[&] { own.lr_of(0); }}})
    expect_error(Error::Kind::usage, {"made without an optimizer"}, needs);
  expect_error(Error::Kind::usage, {"no optimizer", "TrainerOptions::step"}, [] {
    Trainer(std::make_shared<nn::Mlp>(std::vector<int64_t>{2, 2}), nullptr);
  });
}

TEST(Trainer, EvaluatesWithoutAChange) {
  const Split split = digits(200);
  Batches train(split, {.size = 32}), test(split, {.size = 64, .shuffle = false});
  Training t({}, kCpu, 784, DType::f32, 0.5);
  t->fit(train);
  const std::vector<double> before = t.weights();
  const Score score = t->evaluate(test);
  EXPECT_EQ(t.weights(), before);
  EXPECT_TRUE(t.model.is_training());
  EXPECT_EQ(score.rows, 200);
  const nn::EvalMode evaluation(t.model);
  const Batch all = Batches(split, {.size = 200, .shuffle = false}).next();
  const Tensor logits = t.model(all.images);
  EXPECT_NEAR(score.loss(), mean(cross_entropy(logits, all.labels)).item(), 1e-5);
  const auto read = argmax(logits).to_vector<int64_t>(), labels = all.labels.to_vector<int64_t>();
  int64_t right = 0;
  for (size_t i = 0; i < read.size(); ++i) right += read[i] == labels[i];
  EXPECT_EQ(score.correct, right);
  // Between two steps, and over the batches of training.
  Training other({}, kCpu, 784, DType::f32, 0.5);
  other->fit(train, [&] { other->evaluate(train); });
  EXPECT_EQ(other.weights(), before);
  // Targets that are no labels have no accuracy.
  Training regression({.loss = nn::MseLoss{}}, kCpu, 5);
  const std::vector<Tensors> batches{{Tensor::ones({4, 5}), Tensor::ones({4, 10})}};
  regression->fit(batches);
  EXPECT_TRUE(std::isnan(regression->evaluate(batches).accuracy()));
}

TEST(Trainer, SaysWhatIsWrong) {
  Training t({}, kCpu, 5);
  const auto fit = [&](const std::vector<Tensors>& batches) {
    return [&t, batches] { t->fit(batches); };
  };
  const Tensor x = Tensor::ones({4, 5}), labels = sample_labels(4, 10, 1);
  expect_error(Error::Kind::usage, {"trainer: no batch", "empty"}, fit({}));
  expect_error(Error::Kind::usage, {"2 tensors are wanted, 1 are given"}, fit({{x}}));
  expect_error(Error::Kind::shape, {"rows differ", "f32[4, 5]", "i32[3]"},
      fit({{x, sample_labels(3, 10, 1)}}));
  expect_error(Error::Kind::shape, {"linear: input features differ", "f32[4, 6]", "layers.0"},
      fit({{Tensor::ones({4, 6}), labels}}));
  expect_error(Error::Kind::shape, {"a tensor of the batch is undefined"}, fit({{x, {}}}));
  t->fit(std::vector<Tensors>{{x, labels}});  // nothing of all that has done harm
  for (const TrainerOptions& bad : {TrainerOptions{.clip = NAN}, TrainerOptions{.part = -1}})
    expect_error(
        Error::Kind::usage, {"trainer: clip is", "at least 0"}, [&] { Training made(bad); });
  Training mean_loss(
      {.loss = [](const Tensor& y, const Tensor& l) { return mean(cross_entropy(y, l)); },
          .part = 3},
      kCpu, 5);
  expect_error(
      Error::Kind::shape, {"a loss for each row is wanted of 3 rows: it is f32[] cpu"}, [&] {
        mean_loss->step({x, labels});
      });
}

TEST(Trainer, ALossThatIsNotFiniteStopsAtTheEndOfTheEpoch) {
  for (const bool fused : {false, true}) {
    Training t({.fused = fused}, kCpu, 5);
    std::vector<Tensors> batches = made_batches();
    batches[1][0].data<float>()[0] = NAN;
    expect_error(Error::Kind::numeric, {"the loss of step 2 is not finite", "lr 0.01"},
        [&] { t->fit(batches); });
    const test::TempDir folder;
    expect_error(Error::Kind::numeric, {"not saved", "/run.safetensors; the last loss is nan"},
        [&] { t->save(folder.file("run.safetensors")); });
  }
}

TEST(Trainer, ACheckpointOfOtherBatchesIsRefused) {
  const test::TempDir folder;
  const Split split = digits(50);
  Batches of_16(split, {.size = 16}), of_8(split, {.size = 8});
  Training t, other;
  t->fit(of_16);
  t->save(folder.file("a.safetensors"), "text of mine");
  EXPECT_EQ(nn::read_checkpoint(folder.file("a.safetensors")).config, "text of mine");
  expect_error(Error::Kind::checkpoint,
      {"of other batches", "50 rows in batches of 16", "50 rows in batches of 8"},
      [&] { other->resume(folder.file("a.safetensors"), of_8); });
  nn::Checkpoint early = nn::read_checkpoint(folder.file("a.safetensors"));
  early.state.batches = "";  // of a build that did not save them
  expect_error(Error::Kind::checkpoint,
      {"of other batches", "step 4", "7 batches make an epoch here"},
      [&] { other->resume(early, of_8); });
  other->resume(early, of_16);
  EXPECT_EQ(other.weights(), t.weights());
  folder.write("b.safetensors", std::string("no checkpoint"));
  EXPECT_THROW(other->resume(folder.file("b.safetensors"), of_8), Error);
}

}  // namespace
}  // namespace sinter
