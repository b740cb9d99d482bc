#include "cli/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cli/process.h"
#include "core/classic.h"
#include "core/parallel.h"
#include "core/tensor.h"
#include "distributed/mpi.h"
#include "distributed/nccl.h"

namespace sinter::cli {
namespace {

using namespace std::chrono_literals;

// Process ids mean something where both are equal.
std::string this_machine() {
  std::error_code none;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return str(" ", name, " ", std::filesystem::read_symlink("/proc/self/ns/pid", none).string());
}

}  // namespace

Ranks::Ranks(double timeout_seconds) {
  const int launched = distributed::launched_ranks();
  if (launched == 1) return;
  communicator_ = distributed::make_mpi_communicator();
  SINTER_CHECK(size() == launched, usage,
      str("usage: the launcher started ", launched, " processes, and ", communicator_->describe(),
          " knows ", size()),
      "this mpirun is of another MPI: start it with that of the MPI named here");
  communicator_->set_timeout(timeout_seconds);
  scope_ = std::make_unique<CommunicatorScope>(communicator_.get());
  const std::string own = str(getpid(), " ", process_start(getpid()), this_machine());
  for (const std::string& text : communicator_->gather(own)) {
    Peer& peer = peers_.emplace_back();
    ClassicStream<std::istringstream> fields(text);
    fields >> peer.pid >> peer.start;
    std::getline(fields, peer.machine);
  }
  watcher_ = std::thread([this] { watch(); });
}

Ranks::~Ranks() {
  if (!many()) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  watcher_.join();
}

Device Ranks::use(Device chosen, bool named) {
  if (!many() || chosen.type != Device::Type::cuda) return chosen;
  const Device card = named ? chosen : Device::parse(str("cuda:", count_here(rank())));
  Tensor::empty({1}, DType::f32, card);  // the process uses this one
  scope_.reset();
  communicator_ = distributed::make_nccl_communicator(std::move(communicator_));
  scope_ = std::make_unique<CommunicatorScope>(communicator_.get());
  return card;
}

int Ranks::count_here(int ranks) const {
  int here = 0;
  for (int r = 0; r < ranks; ++r) here += is_here(r);
  return here;
}

int Ranks::threads() const {
  const auto cores = int(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(available_cores(), cores / count_here(size())));
}

void Ranks::check_same(const std::vector<Fact>& facts) const {
  if (!many()) return;
  std::string own;
  for (const Fact& fact : facts) own += escaped(fact.second) + "\n";
  const std::vector<std::string> all = communicator_->gather(own);
  const auto other = std::ranges::find_if(all, [&](const auto& text) { return text != all[0]; });
  if (other == all.end()) return;
  const std::vector<std::string_view> here = parts_of(all[0], "\n"), there = parts_of(*other, "\n");
  const auto at = size_t(std::ranges::mismatch(here, there).in1 - here.begin());
  throw Error(Error::Kind::usage,
      str("usage: ranks differ in ", facts[at].first, ": rank 0 has ", here[at], ", rank ",
          other - all.begin(), " has ", there.at(at)),
      "one mpirun with one command starts them alike");
}

std::string Ranks::of_first(const std::string& text) const {
  return many() ? communicator_->gather(first() ? text : "")[0] : text;
}

bool Ranks::interrupted() {
  if (!many()) return cli::interrupted();
  if (stops_ || calls_++ < ask_at_) return stops_;
  constexpr double kSeconds = 0.1;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(asked_, now)).count(),
               calls = double(calls_ - std::exchange(asked_at_, calls_));
  // By the clock of rank 0, as all are to ask after the same calls.
  const double next = first() ? std::clamp(calls * kSeconds / seconds, 1.0, 1000.0) : 0;
  stops_ = communicator_->sum(cli::interrupted()) > 0;
  ask_at_ = calls_ + int64_t(communicator_->sum(next));
  return stops_;
}

void Ranks::stop() {
  cli::interrupt();
  stops_ = true;
}

void Ranks::set_saved(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  saved_ = folder;
}

std::string Ranks::how_to_resume() const {
  const std::lock_guard lock(mutex_);
  return saved_.empty() ? "nothing was saved yet: start it again"
                        : fmt::format(
                              "mpirun -np {} {} train --resume {} goes on from its newest "
                              "checkpoint",
                              size(), program_name(), as_word(saved_));
}

// The exception being handled; if it is that of waiting for a rank, with a hint.
void Ranks::say_how_to_resume() const {
  try {
    throw;
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::state || !error.hint().empty()) throw;
    throw Error(error.kind(), error.message(), how_to_resume());
  }
}

void Ranks::fail(const CommonFlags& common) {
  int status = 0;
  try {
    say_how_to_resume();
  } catch (...) {
    status = report_current_exception(common.color, common.verbose);
  }
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && is_here(r)) tell(peers_[r].pid);
  }
  communicator_->abort(status);
  std::_Exit(status);  // g++ takes a virtual function for one that may return
}

void Ranks::watch() {
  const auto is_gone = [this](int r) { return process_start(peers_[r].pid) != peers_[r].start; };
  int lost = -1, lowest = size();
  while (lost < 0) {
    std::unique_lock lock(mutex_);
    if (ended_.wait_for(lock, 100ms, [this] { return end_; })) return;
    lowest = size();
    for (int r = 0; r < size(); ++r) {
      if (!is_here(r)) continue;
      if (is_gone(r)) {
        lost = r;
      } else {
        lowest = std::min(lowest, r);
      }
    }
  }
  if (lowest == rank() && !others_told()) {
    say(fmt::format("error: {}train: rank {} is lost: its process {} has ended\n    hint: {}\n",
        rank_prefix(), lost, peers_[lost].pid, how_to_resume()));
  }
  // The launcher ends this process, if it does that.
  std::this_thread::sleep_for(2s);
  _exit(exit_code(Error::Kind::state));
}

}  // namespace sinter::cli
