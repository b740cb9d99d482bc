// How much of a slow network data parallelism hides behind backward. Two ranks, threads of this
// process, train a deep MLP; a sum takes 1 ms more than the ranks need for it, and one follows the
// other. At least 80 % of that time should be hidden; at most 14/15 can be, since nothing runs
// beside the last one. Exit status 1 if it is less.
#include "bench/harness.h"
#include "core/parallel.h"
#include "distributed/thread_group.h"

namespace sinter::distributed {
namespace {

constexpr int64_t kRows = 512, kWidth = 512, kLayers = 15;  // of kWidth x kWidth
constexpr int kSteps = 20;

// The figures of the sums of kSteps steps.
Communicator::Stats train(Communicator& ranks, bool fused) {
  std::vector<int64_t> sizes(kLayers + 1, kWidth);
  sizes.push_back(10);
  nn::Mlp model(sizes);
  nn::Sgd optimizer(model.named_parameters(), {.lr = 0.01});
  constexpr int64_t kLayerBytes = kWidth * kWidth * int64_t(sizeof(float));
  Trainer trainer(model, optimizer, {.fused = fused, .parallel = {.bucket_bytes = kLayerBytes}});
  const Tensors batch = bench::random_batch(kRows, kWidth);
  for (int s = 0; s < kSteps; ++s) trainer.step(batch);
  return ranks.stats();
}

int overlap() {
  set_num_threads(1);
  bool ok = true;
  for (const bool fused : {false, true}) {
    Communicator::Stats stats;
    ThreadGroup(2, {.delay = std::chrono::milliseconds(1)}).run([&](Communicator& ranks) {
      const Communicator::Stats own = train(ranks, fused);
      if (ranks.rank() == 0) stats = own;
    });
    const auto ms = [](double seconds) { return 1e3 * seconds / kSteps; };
    const std::string what = fmt::format("{}: {} sums a step, {:.1f} ms, exposed {:.1f} ms: hidden",
        fused ? "fused" : "eager", stats.sums / kSteps, ms(stats.under_way_s), ms(stats.exposed_s));
    const double hidden = 100 * stats.hidden_s() / stats.under_way_s;
    ok = bench::within_budget(what, hidden, 80, "%", true) && ok;
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace sinter::distributed

int main(int argc, char** argv) {
  return sinter::bench::run_program("overlap", argc, argv, [](auto&, auto& command) {
    command.run = [](auto&) { return sinter::distributed::overlap(); };
  });
}
