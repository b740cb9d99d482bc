// Programs that were wrong, and others of their kinds: which rows a step sees however often it
// updates, the loss of an epoch however its rows are cut, random numbers across devices and saves.
#include <cmath>

#include "distributed/thread_group.h"
#include "nn/batch_norm.h"
#include "nn/mlp.h"
#include "nn/net.h"
#include "tests/closeness.h"
#include "tests/test_util.h"
#include "train/trainer.h"

namespace sinter {
namespace {

const Device kEmulated{Device::Type::simt, 0};

// `n` images of which each has one pixel of its own; sums of them say how often each was seen.
Split marked(int64_t n, Device device) {
  std::vector<uint8_t> pixels(size_t(n * n));
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < n; ++i) {
    pixels[size_t(i * n + i)] = 255;
    labels.push_back(int32_t(i % 3));
  }
  Dataset data{.train = {Tensor::from(pixels, {n, 1, 1, n}), Tensor::from(labels, {n})}};
  data.to(device);
  return data.train;
}

// A step of one's own that counts how often it was given each row, and updates `updates` times;
// -2: in every second call, by the host, what two backward() added up.
struct OwnStep {
  nn::Mlp model;
  std::unique_ptr<nn::Sgd> optimizer;
  Tensor seen;
  std::optional<Trainer> trainer;
  int updates;

  OwnStep(int64_t rows, int updates_a_call, bool fused, Device device,
      std::optional<nn::Schedule> schedule = {})
      : model({rows, 3}, {.seed = 2}), updates(updates_a_call) {
    model.to(device);
    optimizer = std::make_unique<nn::Sgd>(model.named_parameters(), nn::SgdOptions{.lr = 0.01});
    seen = Tensor::zeros({rows}, DType::f32, device);
    const auto step = [this](const Tensors& in) {
      {
        const NoGrad no_grad;
        accumulate(seen, sum(in[0], {0}));
      }
      Tensor losses;
      for (int i = 0; i < std::max(updates, 1); ++i) {
        losses = cross_entropy(model(in[0]), in[1]);
        if (updates > 0) optimizer->zero_grad();
        backward(losses);
        if (updates > 0) optimizer->step(losses);
      }
      return Tensors{losses};
    };
    trainer.emplace(model, *optimizer,
        TrainerOptions{.step = step,
            .fused = fused,
            .capture = {.rules = capture::RuleSet("all,-multi_tensor_update")},
            .schedule = schedule});
  }
  // Epochs, in each of which every row is to be seen once, batch by batch.
  void fit(Batches& batches, int64_t rows, int epochs) {
    for (int epoch = 0; epoch < epochs; ++epoch) {
      std::vector<float> before = seen.to_vector<float>();
      int64_t done = 0;
      trainer->fit(batches, [&] {
        const std::vector<float> now = seen.to_vector<float>();
        int64_t fresh = 0;
        for (size_t i = 0; i < now.size(); ++i) fresh += now[i] > before[i];
        done = std::min(done + 10, rows);
        EXPECT_EQ(fresh, done) << "rows of the epoch that were seen";
        if (updates == -2 && trainer->at().step % 2 == 0) {
          optimizer->step();
          optimizer->zero_grad();
        }
      });
      for (float& count : before) ++count;
      EXPECT_EQ(seen.to_vector<float>(), before);
    }
  }
};

void check_own_steps(Device device) {
  const bool emulated = device != kCpu;  // on which a step takes 20 ms
  for (const int64_t rows : {40, 43, 7}) {
    for (const bool fused : {false, true}) {
      for (const int updates : {0, 1, 2, 3, -2}) {
        if (emulated && (rows == 40 || updates == 1 || updates == 3)) continue;
        SCOPED_TRACE(str(device.str(), ", ", rows, " rows, ", updates, " updates, fused ", fused));
        OwnStep own(rows, updates, fused, device);
        Batches batches(marked(rows, device), {.size = 10});
        own.fit(batches, rows, emulated ? 2 : 4);
        if (updates == 0) continue;
        // Goes on in the middle of an epoch, in another trainer.
        if (rows != 43) continue;
        const test::TempDir folder;
        const std::string file = folder.file("own.safetensors");
        own.trainer->fit(batches, [&] {
          if (own.trainer->at().batch == 2) own.trainer->stop();
        });
        own.trainer->save(file);
        OwnStep second(rows, updates, fused, device);
        Batches others(marked(rows, device), {.size = 10});
        ASSERT_TRUE(second.trainer->resume(file, others));
        for (OwnStep* one : {&own, &second}) {
          nn::copy_values(one->seen, Tensor::zeros({rows}, DType::f32, device), "test");
          one->trainer->fit(one == &own ? batches : others);
        }
        EXPECT_EQ(second.seen.to_vector<float>(), own.seen.to_vector<float>());
        EXPECT_EQ(second.optimizer->steps(), own.optimizer->steps());
        EXPECT_EQ(sum(second.seen).item(), 23) << "the rest of the epoch";
      }
    }
  }
}
TEST(Cases, OwnStepAndItsBatches) { check_own_steps(kCpu); }
TEST(CasesSimt, OwnStepAndItsBatches) { check_own_steps(kEmulated); }

// Each update has its own rate, however many there are in a call: lr_of() counts them.
TEST(Cases, AScheduleOfAnOwnStepCountsUpdates) {
  const nn::Schedule cosine{nn::Schedule::Kind::cosine, 0.01, 500, 20};
  for (const bool fused : {false, true}) {
    for (const int updates : {1, 2, 3, -2}) {
      OwnStep own(40, updates, fused, kCpu, cosine);
      Batches batches(marked(40, kCpu), {.size = 10});
      for (int epoch = 0; epoch < 50; ++epoch) {
        own.trainer->fit(batches, [&] {
          if (updates == -2 && own.trainer->at().step % 2 == 0) own.optimizer->step();
          EXPECT_EQ(own.optimizer->lr(), own.trainer->lr_of(own.optimizer->steps()))
              << updates << " updates, call " << own.trainer->at().step;
        });
      }
      EXPECT_EQ(own.optimizer->steps(), updates == -2 ? 100 : 200 * updates);
    }
  }
}

// A step of another batch between two of fit() takes none of their rows, and a run that had some
// goes on from its file.
void check_extra_steps(Device device) {
  const Split split = marked(43, device);
  const Tensors extra{Tensor::full({4, 43}, 0.1).to(device), sample_labels(4, 3, 9).to(device)};
  const test::TempDir folder;
  const std::string file = folder.file("extra.safetensors");
  for (const bool fused : {false, true}) {
    const auto train = [&](Trainer& trainer, auto&& batches, int64_t from, int64_t to) {
      for (int64_t done = from; done < to; ++done) {
        trainer.fit(batches, [&] { trainer.stop(); });
        if (done % 3 == 1) trainer.step(extra);
        if (trainer.at().batch == 5) trainer.end_epoch();
      }
    };
    std::vector<std::vector<float>> weights;
    for (const char* how : {"drawn", "made", "resumed"}) {
      nn::Mlp model({43, 3}, {.seed = 2});
      model.to(device);
      nn::Sgd optimizer(model.named_parameters(), {.lr = 0.1});
      Trainer trainer(model, optimizer, {.fused = fused});
      Batches batches(split, {.size = 10});
      if (how[0] == 'd') {
        train(trainer, batches, 0, 7);
        trainer.save(file);
        train(trainer, batches, 7, 12);
      } else if (how[0] == 'r') {
        ASSERT_TRUE(trainer.resume(file, batches));
        EXPECT_EQ(trainer.at().step, 9);
        train(trainer, batches, 7, 12);
      } else {
        std::vector<Tensors> made;
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          made.clear();
          for (const Batch& batch : batches) made.push_back({batch.images, batch.labels});
          train(trainer, made, 5 * epoch, std::min<int64_t>(5 * epoch + 5, 12));
        }
      }
      weights.push_back(model.parameters()[0].to_vector<float>());
    }
    EXPECT_EQ(weights[0], weights[1]) << "drawn as made";
    // Fused, the first two steps of the other batch's shape are eager again.
    EXPECT_TRUE(test::close(weights[2], weights[0], {.absolute = fused ? 1e-6 : 0}))
        << "resumed as straight on";
  }
}
TEST(Cases, StepsBetweenTwoFits) { check_extra_steps(kCpu); }
TEST(CasesSimt, StepsBetweenTwoFits) { check_extra_steps(kEmulated); }

// trainer.function() is of the batch that it is given, after fit() as before.
TEST(Cases, FunctionAfterFit) {
  nn::Mlp model({12, 3}, {.seed = 2});
  nn::Sgd optimizer(model.named_parameters(), {.lr = 0.1});
  Trainer trainer(model, optimizer);
  Batches batches(marked(12, kCpu), {.size = 5});
  trainer.fit(batches);
  const Tensors batch{Tensor::full({2, 12}, 0.5), sample_labels(2, 3, 1)};
  const Tensor before = cross_entropy(model(batch[0]), batch[1]);
  EXPECT_EQ(trainer.function()(batch)[0].to_vector<float>(), before.to_vector<float>());
}

// Rows of 16, 16 and 3, whose losses differ: an epoch's loss is the mean over 35 rows, by parts as
// at once, as evaluate() has it; of a run that was stopped and resumed, and on every rank.
std::vector<Tensors> uneven(Device device) {
  std::vector<Tensors> batches;
  manual_seed(2);
  for (int i = 0; i < 3; ++i) {
    const int64_t rows = i == 2 ? 3 : 16;
    batches.push_back({(randn({rows, 8}) * double(i * i + 1)).to(device),
        sample_labels(rows, 3, uint64_t(i)).to(device)});
  }
  return batches;
}

struct Still {
  nn::Mlp model{{8, 6, 3}, {.seed = 3}};
  std::unique_ptr<nn::Sgd> optimizer;
  std::optional<Trainer> trainer;
  explicit Still(TrainerOptions options, Device device = kCpu) {
    model.to(device);
    optimizer = std::make_unique<nn::Sgd>(model.named_parameters(), nn::SgdOptions{.lr = 1e-30});
    trainer.emplace(model, *optimizer, std::move(options));
  }
};

void check_loss_of_an_epoch(Device device) {
  const std::vector<Tensors> batches = uneven(device);
  const double truth = Still({}, device).trainer->evaluate(batches).loss();
  const test::TempDir folder;
  const std::string file = folder.file("half.safetensors");
  for (const bool fused : {false, true}) {
    for (const int64_t part : {0, 1, 4, 5, 16, 100}) {
      if (device != kCpu && part != 5) continue;
      SCOPED_TRACE(str("parts of ", part, ", fused ", fused));
      Still t({.fused = fused, .part = part}, device),
          resumed({.fused = fused, .part = part}, device);
      EXPECT_NEAR(t.trainer->fit(batches), truth, 1e-5);
      EXPECT_NEAR(t.trainer->fit(batches), truth, 1e-5);
      t.trainer->fit(batches, [&] {
        if (t.trainer->at().batch == 2) t.trainer->stop();
      });
      t.trainer->save(file);
      ASSERT_TRUE(resumed.trainer->resume(file, batches));
      EXPECT_NEAR(resumed.trainer->fit(batches), truth, 1e-5);
    }
  }
}
TEST(Cases, LossOfAnEpochInParts) { check_loss_of_an_epoch(kCpu); }
TEST(CasesSimt, LossOfAnEpochInParts) { check_loss_of_an_epoch(kEmulated); }

TEST(Cases, LossOfAnEpochOnEveryRank) {
  const std::vector<Tensors> batches = uneven(kCpu);
  const Tensors all{cat({batches[0][0], batches[1][0], batches[2][0]}),
      cat({batches[0][1], batches[1][1], batches[2][1]})};
  const double truth = Still({}).trainer->evaluate(batches).loss();
  for (const int64_t part : {0, 3}) {
    for (const int size : {1, 2, 3, 4}) {
      std::vector<double> losses(static_cast<size_t>(size)), again = losses, stopped = losses,
                                                             of_source = losses;
      distributed::ThreadGroup(size).run([&](Communicator& ranks) {
        Still t({.fused = ranks.rank() % 2 == 0, .part = part});
        const auto mine = size_t(ranks.rank());
        losses[mine] = t.trainer->fit(batches);
        stopped[mine] = t.trainer->fit(batches, [&] {
          t.trainer->collect_state();  // which may come at any time
          if (t.trainer->at().batch == 1) t.trainer->stop();
        });
        again[mine] = t.trainer->fit(batches);
        TensorBatches source(all, {.size = 16});  // each rank has all of it, and takes its rows
        of_source[mine] = t.trainer->fit(source);
      });
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_NEAR(losses[size_t(rank)], truth, 1e-5) << "rank " << rank << " of " << size;
        EXPECT_EQ(losses[size_t(rank)], losses[0]);
        EXPECT_NEAR(again[size_t(rank)], truth, 1e-5) << "rank " << rank << " of " << size;
        EXPECT_EQ(stopped[size_t(rank)], stopped[0]);
        EXPECT_NEAR(of_source[size_t(rank)], truth, 1e-5) << "rank " << rank << " of " << size;
        EXPECT_EQ(of_source[size_t(rank)], of_source[0]);
      }
    }
  }
}

// One number for all rows would count as one row.
TEST(Cases, ALossThatIsAMeanIsRefused) {
  const std::vector<Tensors> batches{{Tensor::ones({6, 8}), Tensor::ones({6, 3})}};
  const auto bad = [](const Tensor& y, const Tensor& t) { return mean(mse(y, t)); };
  for (const bool fused : {false, true}) {
    Still t({.loss = bad, .fused = fused});
    for (const std::function<void()>& use :
        {std::function<void()>([&] { t.trainer->fit(batches); }),
            {[&] { t.trainer->evaluate(batches); }}})
      test::expect_error(Error::Kind::shape,
          {"a loss for each row is wanted of 6 rows: it is f32[] cpu", "TrainerOptions::loss"},
          use);
  }
  Still right({.loss = nn::MseLoss{}});
  EXPECT_TRUE(std::isfinite(right.trainer->fit(batches)));
  const Score score = right.trainer->evaluate(batches);
  EXPECT_EQ(score.rows, 6);
  EXPECT_EQ(str(score.accuracy()), "nan") << "of a regression";
  EXPECT_EQ(str(Score().loss()), "nan");
}

// Inputs are dropped out on one device, the model trains on another: each step has another mask.
void check_masks(Device inputs, Device trains, bool fused) {
  nn::Mlp m({16, 4});
  m.to(trains);
  nn::Sgd o(m.named_parameters(), {.lr = .1});
  Trainer trainer(m, o, {.fused = fused});
  std::set<std::vector<float>> masks;
  for (int i = 0; i < 6; ++i) {
    for (int k = 0; k < 2; ++k) {
      const Tensor x = dropout(Tensor::ones({2, 16}).to(inputs), .5);
      EXPECT_TRUE(masks.insert(x.to_vector<float>()).second) << "step " << i << ", mask " << k;
      if (k == 1) trainer.step({x.to(trains), sample_labels(2, 4, uint64_t(i)).to(trains)});
    }
  }
}
TEST(CasesSimt, DropoutOnAnotherDevice) {
  for (const bool fused : {false, true}) {
    for (const auto& [inputs, trains] :
        {std::pair{kCpu, kEmulated}, {kEmulated, kCpu}, {kCpu, kCpu}, {kEmulated, kEmulated}})
      check_masks(inputs, trains, fused);
  }
}

// What the host draws, by randn() and dropout on either device, around a save: a run that goes on
// from the file draws what the first run drew.
TEST(CasesSimt, RandnAfterResume) {
  const test::TempDir folder;
  const std::string file = folder.file("randn.safetensors");
  for (const Device device : {kCpu, kEmulated}) {
    const std::vector<Tensors> r{
        {Tensor::ones({2, 4}).to(device), sample_labels(2, 2, 1).to(device)}};
    const auto draws = [] {
      std::vector<float> all = randn({3}).to_vector<float>();
      for (const Device on : {kCpu, kEmulated}) {
        for (int i = 0; i < 2; ++i) {
          for (const float x : dropout(Tensor::ones({16}).to(on), 0.5).to_vector<float>())
            all.push_back(x);
        }
      }
      return all;
    };
    nn::Mlp m({4, 3, 2}, {.dropout = 0.5}), m2({4, 3, 2}, {.dropout = 0.5});
    m.to(device);
    m2.to(device);
    nn::Sgd o(m.named_parameters()), o2(m2.named_parameters());
    Trainer t(m, o), t2(m2, o2);
    manual_seed(5);
    const std::vector<float> first = draws();
    t.fit(r);
    draws();
    t.save(file);
    const std::vector<float> goes_on = draws();
    t.fit(r);
    const std::vector<float> later = draws();
    EXPECT_NE(goes_on, first);
    for (const bool in_between : {false, true}) {
      if (in_between) manual_seed(99);
      t2.resume(file, r);
      EXPECT_EQ(draws(), goes_on) << device.str();
      t2.fit(r);
      EXPECT_EQ(draws(), later) << device.str();
    }
  }
}

// Batches of equal count but other size, order, seed, numbers or data are not those of the save.
TEST(Cases, ResumeOfOtherBatchesIsRefused) {
  const test::TempDir folder;
  const std::string file = folder.file("a.safetensors");
  const auto data = [](uint64_t seed, int64_t limit) {
    return load_dataset({.what = "synthetic", .val = 0, .limit = limit, .data_seed = seed}).train;
  };
  const auto make = [] {
    auto model = std::make_shared<nn::Mlp>(std::vector<int64_t>{784, 10});
    auto optimizer = std::make_shared<nn::Sgd>(model->named_parameters());
    return std::make_unique<Trainer>(model, optimizer);
  };
  const Split hundred = data(1, 100);
  Batches batches(hundred, {.size = 60});
  const auto trainer = make();
  trainer->fit(batches);
  trainer->save(file);
  const auto refused = [&](const Split& split, const BatchOptions& options,
                           const std::vector<std::string>& facts) {
    Batches other(split, options);
    test::expect_error(Error::Kind::checkpoint, facts, [&] { make()->resume(file, other); });
  };
  refused(hundred, {.size = 70},
      {"of other batches", "it has 100 rows in batches of 60",
          "here are 100 rows in batches of 70"});
  refused(hundred, {.size = 60, .seed = 2}, {"of other batches", "seed 1", "seed 2"});
  refused(hundred, {.size = 60, .shuffle = false}, {"of other batches", "in their order"});
  refused(hundred, {.size = 60, .dtype = DType::bf16}, {"of other batches", "bf16"});
  refused(hundred, {.size = 60, .normalize = Normalize::mnist}, {"of other batches", "normalized"});
  refused(hundred, {.size = 60, .augment = {.shift = 1}}, {"of other batches", "shift 1"});
  refused(data(1, 110), {.size = 60}, {"of other batches", "110 rows"});
  refused(data(2, 100), {.size = 60}, {"cannot resume with other data", "crc32"});
  refused(slice(data(1, 200), 100, 200), {.size = 60}, {"cannot resume with other data", "crc32"});
  Batches same(data(1, 100), {.size = 60});
  EXPECT_TRUE(make()->resume(file, same));
  // Of a range of one's own there must be as many batches as were done.
  const auto half = make();
  const std::vector<Tensors> one{{Tensor::ones({2, 784}), sample_labels(2, 10, 1)}};
  std::vector<Tensors> three{one[0], one[0], one[0]};
  half->fit(three, [&] {
    if (half->at().batch == 2) half->stop();
  });
  half->save(file);
  test::expect_error(Error::Kind::checkpoint, {"behind batch 2", "the range has 1"},
      [&] { make()->resume(file, one); });
}

// Told before the first step, not by the last one of an epoch.
TEST(Cases, ALastBatchOfOneRowAndBatchNormIsToldAtOnce) {
  const auto run = [](const char* layers, int64_t rows, int64_t size, int64_t part) {
    nn::Net net(layers, {1, 4, 4});
    nn::Sgd optimizer(net.named_parameters());
    Trainer trainer(net, optimizer, {.part = part});
    const Split split{Tensor::from(std::vector<uint8_t>(size_t(rows) * 16, 7), {rows, 1, 4, 4}),
        Tensor::from(std::vector<int32_t>(size_t(rows)), {rows})};
    Batches batches(split, {.size = size});
    const int64_t draws = next_random_op();
    try {
      trainer.fit(batches);
    } catch (...) {
      EXPECT_EQ(trainer.at().step, 0) << "no step was taken";
      EXPECT_EQ(next_random_op(), draws + 1) << "nothing was drawn";
      throw;
    }
    EXPECT_EQ(trainer.epoch(), 1);
  };
  const char *one_value = "dropout 0.5; conv 3 4; batchnorm; flatten; linear 2",
             *four_values = "conv 3 3; batchnorm; flatten; linear 2";
  for (const auto& [rows, size, part] :
      {std::array<int64_t, 3>{9, 4, 0}, {1, 4, 0}, {9, 9, 4}, {13, 8, 4}, {5, 1, 0}, {9, 4, 1}})
    test::expect_error(Error::Kind::shape,
        {"last batch of an epoch is of one row", "batch_norm2d: one value per channel",
            "BatchOptions::size"},
        [&] { run(one_value, rows, size, part); });
  test::expect_error(Error::Kind::shape,
      {"last batch of an epoch is of one row: 9 rows in batches of 4", "batch_norm2d"}, [&] {
        nn::Net net(one_value, {1, 4, 4});
        nn::Sgd optimizer(net.named_parameters());
        TensorBatches batches({Tensor::ones({9, 16}), sample_labels(9, 2, 1)}, {.size = 4});
        Trainer(net, optimizer).fit(batches);
      });
  run(one_value, 8, 4, 0);
  run(one_value, 10, 4, 2);
  run(four_values, 9, 4, 0);
}

}  // namespace
}  // namespace sinter
