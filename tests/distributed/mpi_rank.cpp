// One rank of the tests on MPI, which mpi_ranks.sh starts: mpi_rank runs | hang | die.
//   runs  every third run of training.h on all ranks, and two in bf16, against one process; exit
//         status 1 if any differs
//   hang  rank 1 stops (SIGSTOP) in a step; the others must end by the timeout, and name it
//   die   rank 1 kills itself in a step
#include <csignal>
#include <iostream>

#include "distributed/mpi.h"
#include "tests/closeness.h"
#include "tests/distributed/training.h"

namespace {

using namespace sinter;
using namespace sinter::distributed;

constexpr int kSteps = 30;

int compare_runs(Communicator& ranks) {
  int failed = 0, done = 0;
  const std::vector<Run> all = all_runs();
  std::vector<Run> runs;
  for (size_t r = 0; r < all.size(); r += 3) runs.push_back(all[r]);
  // Fused in parts by Adam, and fused at once by SGD.
  for (const size_t r : {size_t{3}, size_t{14}}) {
    runs.push_back(all[r]);
    runs.back().what += " in bf16";
    runs.back().dtype = DType::bf16;
  }
  for (const Run& run : runs) {
    ++done;
    const std::vector<double> weights = train(run, kSteps);
    const std::string bytes(
        reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(double));
    bool same = true;
    for (const std::string& other : ranks.gather(bytes)) same = same && other == bytes;
    if (ranks.rank() > 0) continue;
    const CommunicatorScope alone(nullptr);
    const std::vector<double> wanted = train(run, kSteps);
    const test::Closeness near = test::closeness(weights, wanted, {.absolute = 1e-12});
    // In bf16 as in ranks_train_test.cpp: a hundredth of the way.
    const double most = test::distance(train(run, 0), wanted) / 100;
    const bool passed =
        same && (run.dtype == DType::bf16 ? near.distance <= most : near.share <= 1);
    failed += !passed;
    if (!passed)
      std::cout << run.what << ", " << ranks.size() << " ranks: ranks "
                << (same ? "are equal" : "differ") << ", against one process " << near.text << '\n';
  }
  if (ranks.rank() == 0)
    std::cout << done << " runs on " << ranks.size() << " ranks, " << failed << " failed\n";
  return failed > 0;
}

int stop_in_a_step(Communicator& ranks, int signal) {
  ranks.set_timeout(3);  // seconds: more than a busy machine keeps a rank waiting
  TrainingRun training(all_runs()[0]);
  training.train(3);
  if (ranks.rank() == 1) std::raise(signal);
  training.train(3);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "runs";
  const std::unique_ptr<Communicator> ranks = make_mpi_communicator();
  const CommunicatorScope scope(ranks.get());
  try {
    if (what == "runs") return compare_runs(*ranks);
    return stop_in_a_step(*ranks, what == "hang" ? SIGSTOP : SIGKILL);
  } catch (const Error& error) {
    std::cerr << "rank " << ranks->rank() << ": " << error.what() << std::endl;
    ranks->abort(3);
  }
}
