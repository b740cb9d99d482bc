// 10: data-parallel training. Several ranks hold the same model. Each computes the gradients of its
// rows of the batch; these are summed over the ranks while backward still runs, and all ranks make
// the same update. So the model that comes out does not depend on how many they were.
//
// Here the ranks are threads of this process. They may as well be processes, on one machine or
// many: then distributed::make_mpi_communicator() gives the Communicator, `mpirun -np 4 program`
// starts them, and the step below stays as it is. `mpirun -np 4 mnist train` is such a program.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/parallel.h"
#include "distributed/data_parallel.h"
#include "distributed/thread_group.h"
#include "nn/mlp.h"
#include "nn/optim.h"

using namespace sinter;

// Trains on one batch; gives the weights of the first layer. Without ranks: in one process.
std::vector<float> train(Communicator* ranks) {
  constexpr int64_t kRows = 62;      // not a multiple of the ranks: shares differ by a row
  nn::Mlp model({784, 64, 64, 10});  // the same seed, so that all ranks begin with the same weights
  nn::Sgd optimizer(model.named_parameters(), {.lr = 0.1});
  const Tensor images = cast(sample_tensor({kRows, 784}, 1, 0, 1), DType::f32),
               labels = sample_labels(kRows, 10, 2);

  // 1. It puts the parameters into buckets, the last layer first, as backward will complete them:
  // here two layers, and the first.
  distributed::DataParallel parallel(model, ranks, {.bucket_bytes = 16 << 10});
  for (int step = 0; step < 20; ++step) {
    // 2. The rows of this rank. What is computed from them is as in one process; even dropout would
    // draw the mask that these rows have there.
    const RowRange mine = parallel.begin_batch(kRows);
    optimizer.zero_grad();
    const Tensor losses = cross_entropy(
        model(slice(images, 0, mine.begin, mine.end)), slice(labels, 0, mine.begin, mine.end));
    // 3. In place of backward(): each loss counts 1/62 on all ranks, whatever their shares. As soon
    // as the gradients of a bucket are there, their sum over the ranks begins.
    parallel.backward(losses);
    // 4. Every rank has the same sums, bit for bit, and makes the same update.
    optimizer.step(losses);
  }
  parallel.check_equal();  // an error would name the first parameter that differs, and its rank
  if (ranks && ranks->rank() == 0) {
    std::printf("%d ranks: %zu buckets, %ld sums, %.1f MB from each rank\n", ranks->size(),
        parallel.bucket_sizes().size(), long(ranks->stats().sums),
        double(ranks->stats().bytes) * 1e-6);
  }
  return model.parameters()[0].to_vector<float>();
}

int main() {
  set_num_threads(1);
  const std::vector<float> alone = train(nullptr);
  bool all_good = true;
  for (const int size : {2, 3, 4}) {
    std::vector<std::vector<float>> weights(static_cast<size_t>(size));
    distributed::ThreadGroup(size).run(
        [&](Communicator& ranks) { weights[size_t(ranks.rank())] = train(&ranks); });
    // The sums are the same but for the order in which they are added up.
    float worst = 0;
    for (size_t i = 0; i < alone.size(); ++i)
      worst = std::max(worst, std::abs(weights[0][i] - alone[i]));
    const bool equal = std::ranges::count(weights, weights[0]) == size;
    std::printf("  equal on all ranks: %s; as in one process to 1e-6: %s\n", equal ? "yes" : "no",
        worst < 1e-6F ? "yes" : "no");
    all_good = all_good && equal && worst < 1e-6F;
  }
  return all_good ? 0 : 1;
}
