#include "data/batches.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "core/communicator.h"
#include "core/device/cuda_stream.h"
#include "core/device/memory.h"
#include "data/digits.h"
#include "tests/capture/step_util.h"
#include "tests/cuda_recorder.h"
#include "tests/data/data_test_util.h"
#include "tests/gpu_test.h"
#include "tests/test_util.h"

namespace sinter {
namespace {

// n images whose pixels are all i, labelled i.
Split numbered(int64_t n) {
  Split split{Tensor::empty({n, 28, 28}, DType::u8), Tensor::empty({n}, DType::i32)};
  for (int64_t i = 0; i < n; ++i) {
    std::fill_n(split.images.data<uint8_t>() + i * kImagePixels, kImagePixels, uint8_t(i));
    split.labels.data<int32_t>()[i] = int32_t(i);
  }
  return split;
}

TEST(EpochOrder, IsAPurePermutation) {
  for (const int64_t n : {0, 1, 2, 5, 1000}) {
    std::vector<int32_t> order = epoch_order(n, 1, 0);
    EXPECT_EQ(order, epoch_order(n, 1, 0));
    std::sort(order.begin(), order.end());
    std::vector<int32_t> identity(n);
    std::iota(identity.begin(), identity.end(), 0);
    EXPECT_EQ(order, identity);
  }
}

TEST(EpochOrder, DiffersByEpochAndSeed) {
  const auto a = epoch_order(1000, 1, 0);
  EXPECT_NE(a, epoch_order(1000, 1, 1));
  EXPECT_NE(a, epoch_order(1000, 2, 0));
  EXPECT_NE(a, epoch_order(1000, 1 + (uint64_t{1} << 32), 0));
}

TEST(EpochOrder, EveryPlaceIsEquallyLikely) {
  int counts[4][4] = {};
  for (int epoch = 0; epoch < 4000; ++epoch) {
    const auto order = epoch_order(4, 7, epoch);
    for (int i = 0; i < 4; ++i) ++counts[i][order[i]];
  }
  for (const auto& row : counts)
    for (const int count : row) EXPECT_NEAR(count, 1000, 140);  // five sigma
}

TEST(Batches, LastOneIsRaggedAndNothingIsDropped) {
  Batches batches(numbered(23), {.size = 10});
  EXPECT_EQ(batches.per_epoch(), 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int32_t> seen;
    for (const int64_t size : {10, 10, 3}) {
      const Batch batch = batches.next();
      EXPECT_EQ(batch.images.shape(), (Shape{size, 784}));
      const auto labels = batch.labels.to_vector<int32_t>();
      for (int64_t i = 0; i < size; ++i)
        EXPECT_EQ(batch.images.data<float>()[i * 784 + 783], float(labels[i]) / 255.0f);
      seen.insert(seen.end(), labels.begin(), labels.end());
    }
    EXPECT_EQ(seen, epoch_order(23, 1, epoch));
    EXPECT_EQ(batches.position(), (BatchPosition{epoch + 1, 0}));
  }
}

TEST(Batches, SeekGoesOnWhereItWas) {
  const BatchOptions options{.size = 4, .seed = 9};
  Batches a(numbered(30), options), b(numbered(30), options);
  for (int i = 0; i < 11; ++i) a.next();
  b.seek(a.position());
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(a.next().labels.to_vector<int>(), b.next().labels.to_vector<int>());
}

TEST(Batches, InFileOrder) {
  Batches batches(numbered(5), {.size = 3, .shuffle = false});
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(batches.next().labels.to_vector<int>(), (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(batches.next().labels.to_vector<int>(), (std::vector<int>{3, 4}));
  }
}

TEST(Batches, BatchesStayTheCallers) {
  Batches batches(numbered(8), {.size = 4, .shuffle = false});
  const Batch first = batches.next();
  batches.next();
  EXPECT_EQ(first.labels.to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
}

// Note [x/255 without a division] in ops/shape/gather_batch.h, for all 256 bytes; and the form of
// many torch scripts.
TEST(Batches, ScalesEveryByteExactly) {
  const Split split = numbered(256);
  std::vector<int32_t> all(256);
  std::iota(all.begin(), all.end(), 0);
  const Batch plain = gather_batch(split, all),
              mnist = gather_batch(split, all, DType::f32, Normalize::mnist),
              low = gather_batch(split, all, DType::bf16);
  for (int i = 0; i < 256; ++i) {
    const float x = float(i) / 255.0f;
    for (const int p : {0, 391, 783}) {
      EXPECT_EQ(plain.images.data<float>()[i * 784 + p], x);
      EXPECT_EQ(mnist.images.data<float>()[i * 784 + p], (x - 0.1307f) / 0.3081f);
      EXPECT_EQ(low.images.data<bf16>()[i * 784 + p].bits, bf16(x).bits);
    }
  }
}

TEST(Batches, ReadsSlices) {
  const Split middle = slice(numbered(20), 5, 9);
  Batches batches(middle, {.size = 10, .shuffle = false});
  EXPECT_EQ(batches.next().labels.to_vector<int>(), (std::vector<int>{5, 6, 7, 8}));
}

TEST(Batches, RowsAndPositionsThatAreNotThere) {
  const Split split = load_dataset({.what = "synthetic", .limit = 10}).train;
  Batches batches(split, {.size = 4});  // 3 an epoch
  for (const int64_t n : {int64_t{-1000}, int64_t{-1}, int64_t{11}, int64_t{1000}}) {
    test::expect_error(
        Error::Kind::usage, {"slice: out of range", "a split of 10"}, [&] { slice(split, n, n); });
    test::expect_error(Error::Kind::data, {"index out of range"}, [&] {
      gather_batch(split, std::vector<int32_t>{0, int32_t(n)});
    });
    test::expect_error(Error::Kind::usage, {str("batch ", n, "; "), "within 0..2"}, [&] {
      batches.seek({0, n});
    });
  }
  test::expect_error(Error::Kind::usage, {"slice: out of range"}, [&] { slice(split, 5, 4); });
  test::expect_error(Error::Kind::usage, {"epoch -1"}, [&] { batches.seek({-1, 0}); });
  test::expect_error(Error::Kind::data, {"index out of range"},
      [&] { gather_batch(split, std::vector<int32_t>{10}); });
}

TEST(Batches, BadOptions) {
  test::expect_error(
      Error::Kind::usage, {"batches: size", "0"}, [] { Batches(numbered(3), {.size = 0}); });
  test::expect_error(Error::Kind::data, {"empty", "0 rows"}, [] { Batches(numbered(0)); });
  test::expect_error(Error::Kind::dtype, {"i32", "f32, bf16"},
      [] { Batches(numbered(3), {.dtype = DType::i32}); });
}

void check_batches(Device device) {
  Dataset here{.train = numbered(256)}, there{.train = numbered(256)};
  here.val = slice(here.train, 200, 256);
  there.val = slice(there.train, 200, 256);
  there.to(device);
  EXPECT_EQ(there.val.images.device(), device) << "it shares the storage";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Normalize normalize : {Normalize::none, Normalize::mnist}) {
      const BatchOptions options{.size = 50, .dtype = dtype, .normalize = normalize};
      BatchOptions ahead = options;  // made on the CPU, one ahead
      ahead.device = device;
      Batches a(here.train, options), b(there.train, options), c(here.val, options),
          d(there.val, options), e(here.train, ahead);
      Batches a2(here.train, options);
      for (const auto& [first, second] :
          {std::pair(&a, &b), std::pair(&c, &d), std::pair(&a2, &e)}) {
        for (int i = 0; i < 7; ++i) {
          const Batch x = first->next(), y = second->next();
          EXPECT_EQ(y.images.device(), device);
          EXPECT_EQ(x.images.to_vector<float>(), y.images.to_vector<float>());
          EXPECT_EQ(x.labels.to_vector<int>(), y.labels.to_vector<int>());
        }
      }
    }
  }
}

TEST(BatchesSimt, AreThoseOfTheCpuToTheBit) { check_batches(kSimt); }
using BatchesGpu = test::GpuTest;
TEST_F(BatchesGpu, AreThoseOfTheCpuToTheBit) { check_batches(test::kCuda); }

TEST(BatchesSimt, MadeAheadAreNotCountedAndGoOnWhereTheyAreSentTo) {
  const BatchOptions here{.size = 4, .seed = 9},
      there{.size = 4, .seed = 9, .device = Device{Device::Type::simt, 0}};
  Batches a(numbered(30), here), b(numbered(30), there);
  for (const BatchPosition at : {BatchPosition{0, 0}, {0, 1}, {0, 7}, {1, 0}, {0, 3}, {5, 6}}) {
    if (a.position() != at) {
      a.seek(at);
      b.seek(at);
    }
    EXPECT_EQ(b.position(), at);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(a.next().labels.to_vector<int>(), b.next().labels.to_vector<int>())
          << at.epoch << " " << at.batch;
  }
}

// A step that draws its batches trains as one that is given them, to the bit: over ragged batches,
// ends of epochs, seek() and a change of the optimizer's steps.
void check_draws(std::initializer_list<Device> devices) {
  for (const Device device : devices) {
    Dataset data{.train = numbered(23)};
    data.to(device);
    const TrainOptions options{.sizes = {784, 8, 23}, .device = device};
    Training given(options), draws(options);
    Batches a(data.train, {.size = 10}), b(data.train, {.size = 10});
    int64_t rows = 0;
    capture::StepOptions step_options = draws.step_options("all");
    step_options.mode = [&] { return rows; };
    step_options.recheck_every = 1;  // which must not move the cursor
    capture::Step step_given(given.function(), given.step_options("all")),
        step_draws([&](const Tensors&) { return draws(b.draw(rows)); }, step_options);
    for (int i = 0; i < 17; ++i) {
      if (i == 12) {
        a.seek({4, 1});
        b.seek({4, 1});
      }
      if (i == 14) {
        given.optimizer->set_steps(3);
        draws.optimizer->set_steps(3);
      }
      const Batch batch = a.next();
      rows = b.begin_step();
      EXPECT_EQ(b.position(), a.position());
      EXPECT_EQ(step_draws({})[0].to_vector<float>(),
          step_given({batch.images, batch.labels})[0].to_vector<float>())
          << device.str() << " step " << i;
    }
    for (size_t p = 0; p < 4; ++p)
      EXPECT_EQ(given.net.parameters()[p].to_vector<float>(),
          draws.net.parameters()[p].to_vector<float>());
    EXPECT_EQ(step_draws.stats().replays, 17 - 2);
    EXPECT_EQ(step_draws.stats().rechecks, 17 - 2 - 2);
    const capture::Captured &with = *step_draws.captured(), &without = *step_given.captured();
    EXPECT_EQ(with.recorded.nodes.size(), without.recorded.nodes.size() + 1);
    EXPECT_EQ(with.recorded.launches(), without.recorded.launches());
    EXPECT_EQ(with.executor->launches(), without.executor->launches());
    EXPECT_EQ(capture::read_graph(capture::to_json(with.recorded), "F").launches(),
        with.recorded.launches());
  }
}

TEST(BatchesSimt, AStepThatDrawsTrainsAsOneThatIsGivenThem) { check_draws({kCpu, kSimt}); }
TEST_F(BatchesGpu, AStepThatDrawsTrainsAsOneThatIsGivenThem) { check_draws({test::kCuda}); }

TEST(Batches, ACapturedStepThatBeginsItsBatchItselfIsRefused) {
  Batches batches(numbered(23), {.size = 10});
  batches.begin_step();
  const BatchPosition at = batches.position();
  capture::Step step(
      [&](const Tensors&) { return Tensors{batches.draw(batches.begin_step())[0]}; });
  test::expect_error(Error::Kind::state,
      {"begin_step", "inside a captured step", "before the step"}, [&] { step({}); });
  EXPECT_EQ(batches.position(), at);
}

// Each has its own place, whatever else is drawn, made or left out beside it.
TEST(BatchesSimt, DrawnInTurnEachHasItsOwnPlace) {
  for (const Device device : {kCpu, kSimt}) {
    Dataset data{.train = numbered(7)};
    data.to(device);
    Batches a(data.train, {.size = 2, .shuffle = false}), b(data.train, {.size = 3});
    std::vector<int> order;
    for (const int32_t at : epoch_order(7, 1, 0)) order.push_back(at);
    const auto drawn = [](Batches& batches) {
      return batches.draw(batches.begin_step())[1].to_vector<int>();
    };
    EXPECT_EQ(drawn(a), (std::vector<int>{0, 1}));
    EXPECT_EQ(drawn(b), std::vector<int>(order.begin(), order.begin() + 3));
    EXPECT_EQ(drawn(a), (std::vector<int>{2, 3}));
    EXPECT_EQ(a.next().labels.to_vector<int>(), (std::vector<int>{4, 5}));
    EXPECT_EQ(drawn(b), std::vector<int>(order.begin() + 3, order.begin() + 6));
    EXPECT_EQ(drawn(a), std::vector<int>{6});
    EXPECT_EQ(drawn(a), (std::vector<int>{0, 1})) << "the next epoch";
    EXPECT_EQ(drawn(b), std::vector<int>{order[6]});
  }
  EXPECT_EQ(Batches(numbered(8), {.size = INT64_MAX}).per_epoch(), 1);
}

// Each rank's share of each part of a batch: together they are the batch of one process, in its
// order, whether next() makes it or a step draws it; of few rows the last ranks get none.
TEST(Batches, SharesOfRanksAreTheBatchOfOneProcess) {
  for (const int64_t n : {23, 2}) {
    for (const int64_t part : {0, 4}) {
      for (const int64_t ranks : {1, 2, 3, 5}) {
        Batches whole(numbered(n), {.size = 10});
        std::vector<std::unique_ptr<Batches>> shares;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          shares.push_back(std::make_unique<Batches>(
              numbered(n), BatchOptions{.size = 10, .rank = rank, .ranks = ranks, .part = part}));
        }
        for (int64_t step = 0; step < 5; ++step) {
          const std::vector<int> wanted = whole.next().labels.to_vector<int>();
          const auto rows = int64_t(wanted.size());
          std::vector<std::vector<int>> own(ranks);
          for (int64_t rank = 0; rank < ranks; ++rank) {
            Batches& share = *shares[rank];
            const BatchPosition at = share.position();
            const Batch made = share.next();
            own[rank] = made.labels.to_vector<int>();
            share.seek(at);
            EXPECT_EQ(made.of, rows);
            EXPECT_EQ(share.begin_step(), rows);
            if (own[rank].empty()) {
              EXPECT_TRUE(share.draw(rows).empty());
              continue;
            }
            EXPECT_EQ(share.draw(rows)[1].to_vector<int>(), own[rank]);
          }
          std::vector<int> together;
          for (int64_t at = 0; at < rows; at += part ? part : 10) {
            for (auto& labels : own) {
              const auto mine = size_t(
                  rows_of_rank(std::min(part ? part : 10, rows - at), &labels - own.data(), ranks)
                      .size());
              ASSERT_LE(mine, labels.size());
              together.insert(together.end(), labels.begin(), labels.begin() + mine);
              labels.erase(labels.begin(), labels.begin() + mine);
            }
          }
          EXPECT_EQ(together, wanted) << n << " items, " << ranks << " ranks, step " << step;
        }
      }
    }
  }
}

TEST(BatchesSimt, AStrayCursorIsAnError) {
  for (const Device device : {kCpu, kSimt}) {
    Dataset data{.train = numbered(23)};
    data.to(device);
    const Tensor order = Tensor::from(std::vector<int64_t>(23), {23}, device),
                 cursor = Tensor::from(std::vector<int64_t>{14}, {1}, device);
    test::expect_error(
        Error::Kind::data, {"out of range", device == kCpu ? "10 rows from 14" : "23"}, [&] {
          apply(kGatherBatchOp, {data.train.images, data.train.labels, order, cursor},
              GatherBatchAttrs{.rows = 10, .stride = 10});
          synchronize(device);
        });
  }
}

// The threads of this process, by their ids.
std::set<std::string> threads_here() {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    out.insert(entry.path().filename());
  return out;
}

TEST(BatchesSimt, OneThreadMakesAllBatchesAhead) {
  Batches batches(numbered(256), {.size = 8, .device = Device{Device::Type::simt, 0}});
  batches.next();
  const std::set<std::string> at_first = threads_here();
  for (int i = 0; i < 40; ++i) {
    batches.next();
    ASSERT_EQ(threads_here(), at_first) << "at batch " << i;
  }
}

#if SINTER_HAS_CUDA
// What `mnist train` does: rates told ahead, and batches that the step draws.
TEST(Batches, AStepThatDrawsIsOneCallOfTheRuntime) {
  cuda::FakeToolkit card;
  const Device device{Device::Type::cuda, 0};
  Dataset data{.train = numbered(23)};
  data.to(device);
  Training training({.sizes = {784, 8, 23}, .device = device});
  training.optimizer->set_rates(std::vector<double>(20, 0.1));
  Batches batches(data.train, {.size = 10});
  int64_t rows = 0;
  capture::StepOptions options = training.step_options("all");
  options.mode = [&] { return rows; };
  capture::Step step([&](const Tensors&) { return training(batches.draw(rows)); }, options);
  const std::vector<std::string> one{"cudaGraphLaunch"},
      order{"cudaMemcpyAsync", "cudaStreamSynchronize", "cudaGraphLaunch"};
  for (int i = 0; i < 12; ++i) {  // of each epoch two of 10, one of 3
    card.clear_log();
    rows = batches.begin_step();
    step({});
    if (i >= 6) {
      EXPECT_EQ(card.calls(), i % 3 == 0 ? order : one) << "step " << i;
    }
  }
  EXPECT_EQ(step.captured()->executor->calls(), 1u);
}

TEST(Batches, OfASetThatTheCardCannotHoldComeOneByOne) {
  cuda::FakeToolkit card;
  const Device device{Device::Type::cuda, 0};
  Dataset data{.train = numbered(9000)};  // 7.1 MB
  data.val = slice(data.train, 8000, 9000);
  card.set({.memory = size_t{10} << 20});
  EXPECT_FALSE(data.to(device));
  EXPECT_EQ(data.train.images.device(), kCpu);
  Batches batches(data.train, {.size = 100, .device = device}), here(data.train, {.size = 100});
  for (int i = 0; i < 3; ++i) {
    const Batch batch = batches.next(), wanted = here.next();
    EXPECT_EQ(batch.images.device(), device);
    EXPECT_EQ(batch.images.to_vector<float>(), wanted.images.to_vector<float>());
    EXPECT_EQ(batch.labels.to_vector<int>(), wanted.labels.to_vector<int>());
  }
  card.set({.memory = size_t{40} << 20});
  EXPECT_TRUE(data.to(device));
  EXPECT_EQ(data.val.images.device(), device);
}

const Device kCard{Device::Type::cuda, 0};

// Behind what was launched so far the copies of the next batch, on another stream; and the step
// waits for those of its own. The thread that gathers waits for copies, and is not asked here when.
TEST(Batches, OfALargeSetAreCopiedBesideTheStep) {
  cuda::FakeToolkit card;
  Batches batches(numbered(64), {.size = 8, .device = kCard});
  for (int i = 0; i < 4; ++i) batches.next();
  for (int i = 0; i < 8; ++i) {
    card.clear_log();
    batches.next();
    std::vector<std::string> calls = card.calls();
    std::erase(calls, "cudaEventSynchronize");
    EXPECT_EQ(
        calls, (std::vector<std::string>{"cudaStreamWaitEvent", "cudaEventRecord",
                   "cudaStreamWaitEvent", "cudaMemcpyAsync", "cudaMemcpyAsync", "cudaEventRecord"}))
        << "no allocation and no wait of the host's, batch " << i;
  }
  const std::vector<cuda::FakeToolkit::Copy> copies = card.copies();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_NE(copies[0].stream, cuda::stream()) << "beside the step";
  EXPECT_EQ(copies[0].stream, copies[1].stream);
  EXPECT_TRUE(copies[0].pinned && copies[1].pinned);
}

// The recorder copies as late as it may: when the thread that gathers waits for a buffer of the
// ring, or when the values are read. Without that wait the buffer would hold a later batch by then.
TEST(Batches, OfALargeSetAreGatheredWhereTheLastCopyIsDone) {
  cuda::FakeToolkit card;
  const Split split = numbered(64);
  Batches batches(split, {.size = 8, .device = kCard}), here(split, {.size = 8});
  std::vector<Batch> held;
  for (int i = 0; i < 11; ++i) held.push_back(batches.next());
  for (const Batch& batch : held) {
    const Batch wanted = here.next();
    EXPECT_EQ(batch.labels.to_vector<int>(), wanted.labels.to_vector<int>());
    EXPECT_EQ(batch.images.to_vector<float>(), wanted.images.to_vector<float>());
  }
}

TEST(Batches, OfALargeSetGoOnWhereTheyAreSentToAndLeaveNothing) {
  cuda::FakeToolkit card;
  {
    const Split split = numbered(30);
    Batches batches(split, {.size = 4, .seed = 9, .device = kCard}),
        here(split, {.size = 4, .seed = 9});
    for (const BatchPosition at : {BatchPosition{0, 0}, {0, 1}, {0, 7}, {1, 0}, {0, 3}, {5, 6}}) {
      if (here.position() != at) {
        batches.seek(at);
        here.seek(at);
      }
      EXPECT_EQ(batches.position(), at);
      for (int i = 0; i < 2; ++i)
        EXPECT_EQ(batches.next().images.to_vector<float>(), here.next().images.to_vector<float>());
    }
    batches.next();  // copies are under way, and one is being gathered
  }
  EXPECT_EQ(card.leaks(), std::vector<std::string>{})
      << "pinned memory that a copy still reads cannot be given back";
}
#endif

}  // namespace
}  // namespace sinter
