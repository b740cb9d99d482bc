// The processes ("ranks") that train one model together, as `mpirun -np 4 PROGRAM train` starts
// them: what they must have in common, when they stop together, and what is said when one of them
// is lost. Rank 0 prints, saves and owns the run folder. Without a launcher there is one, and
// nothing here does anything.
//
// Note [A lost rank]
//   A rank that fails says why and ends all (fail()). One that hangs is named by whichever waits
//   for it longer than the timeout: that fails. One that is killed says nothing, and the launcher
//   gives the others a second: so a thread of each looks whether the processes of this machine are
//   alive, and the lowest rank left says who is not, unless others_told() why.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/app.h"
#include "core/communicator.h"

namespace sinter::cli {

class Ranks {
 public:
  // Starts MPI where a launcher started several processes; it is current() until this goes. Throws
  // not_built without MPI, usage for a launcher of another one.
  explicit Ranks(double timeout_seconds);
  ~Ranks();

  // Before the model is made. Of cards each rank of a machine takes one, in turn, where `chosen`
  // names none; NCCL then sums their gradients. Returns the device of this rank. Throws device.
  Device use(Device chosen, bool named);

  Communicator* communicator() const { return communicator_.get(); }
  bool many() const { return communicator_ != nullptr; }
  bool first() const { return rank() == 0; }
  int rank() const { return many() ? communicator_->rank() : 0; }
  int size() const { return many() ? communicator_->size() : 1; }
  // Threads of a rank, so that those of one machine share its cores.
  int threads() const;

  using Fact = std::pair<std::string, std::string>;  // name, value
  // The same names on all ranks, the first value that differs is an error (usage).
  void check_same(const std::vector<Fact>& facts) const;
  // Rank 0's text.
  std::string of_first(const std::string& text) const;
  // Has a signal come, to any of them? All ask after the same steps, and are asked several times a
  // second; between, the answer is no.
  bool interrupted();
  // As a signal does, at once; all do it at the same place.
  void stop();

  // The run that goes on when a rank was lost: its folder holds a checkpoint.
  void set_saved(const std::string& folder);
  // Of the exception being handled: says it and ends all ranks. REQUIRES: many().
  [[noreturn]] void fail(const CommonFlags& common);

 private:
  struct Peer {
    std::string machine;
    int pid = 0;
    int64_t start = 0;  // see process_start()
  };
  void watch();
  std::string how_to_resume() const;
  void say_how_to_resume() const;
  int count_here(int ranks) const;  // of the first so many
  bool is_here(int rank) const { return peers_[rank].machine == peers_[this->rank()].machine; }

  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<CommunicatorScope> scope_;
  std::vector<Peer> peers_;
  bool stops_ = false;
  int64_t calls_ = 0, asked_at_ = 0, ask_at_ = 0;  // of interrupted(); those that asked, and will
  std::chrono::steady_clock::time_point asked_{};
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable ended_;
  bool end_ = false;
  std::string saved_;
  std::thread watcher_;
};

}  // namespace sinter::cli
