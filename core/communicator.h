// Communicator: the processes ("ranks") that train one model together, each with its part of the
// batch. It sums gradients over all ranks while backward goes on, and passes small texts for checks
// of the set-up. MPI, NCCL and threads of one process implement it (distributed/); the op
// all_reduce reaches the one of its thread by current().
//
// All ranks call the same functions in the same order. Every sum has one fixed order, so all ranks
// hold the same bits afterwards. A call that waits longer than the timeout for another rank throws
// state and names that rank. A sum of NCCL's is waited for by the card, which knows no timeout: it
// ends when NCCL sees that a rank has ended, and the next call throws state.
// One communicator per thread; not thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/dtype.h"

namespace sinter {

// Rows [begin, end) of a batch.
struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
// The part of a rank: sizes differ by one at most, the first ranks have more; of fewer rows than
// ranks the last parts are empty.
RowRange rows_of_rank(int64_t rows, int64_t rank, int64_t size);

// A dense stretch of memory whose elements are summed with those of the other ranks.
struct SumPiece {
  void* data;
  int64_t count;                           // elements
  std::shared_ptr<const void> owner = {};  // of the memory; none: the caller sees to it
};

class Communicator {
 public:
  // Of this thread, or nullptr: it trains alone.
  static Communicator* current();

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  uint64_t uid() const { return uid_; }  // not 0; no other one ever has it
  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string describe() const = 0;  // "Open MPI 4.1.4"
  // Of waiting for another rank, in seconds.
  void set_timeout(double seconds) { timeout_ = seconds; }
  double timeout() const { return timeout_; }

  // Starts the sum of f32 or f64 pieces over all ranks, in place, and returns. `bucket` names it
  // until it is finished; the pieces belong to it meanwhile, and their owners stay alive, also
  // where an error ends the caller in between. On a card it follows what the stream of the thread
  // holds.
  void start_sum(int64_t bucket, std::span<const SumPiece> pieces, DType dtype, Device device);
  // Waits for it; on a card the stream waits, not the host.
  void finish_sum(int64_t bucket);

  // Sum of one number, at once.
  virtual double sum(double value);
  // The text of every rank, by rank, on all of them.
  virtual std::vector<std::string> gather(const std::string& own) = 0;
  // Ends the processes of all ranks with this exit status.
  [[noreturn]] virtual void abort(int exit_status) = 0;

  // Of the sums since the start. A sum is under way from start_sum() until its last byte is there;
  // times in which several are count once. Exposed is the part in which finish_sum() waits; the
  // rest is hidden behind the step's work.
  struct Stats {
    int64_t sums = 0, bytes = 0;
    double under_way_s = 0, exposed_s = 0;
    double hidden_s() const { return under_way_s > exposed_s ? under_way_s - exposed_s : 0; }
  };
  const Stats& stats() const { return stats_; }

 protected:
  using Time = std::chrono::steady_clock::time_point;
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual void start(
      int64_t bucket, std::span<const SumPiece> pieces, DType dtype, Device device) = 0;
  // When its last byte was there, as far as is known.
  virtual Time finish(int64_t bucket) = 0;

 private:
  static inline std::atomic<uint64_t> made_{0};
  const uint64_t uid_ = ++made_;
  int rank_, size_;
  double timeout_ = 60;
  Stats stats_;
  struct Started {
    Time at;
    std::vector<SumPiece> pieces;  // with their owners
  };
  std::map<int64_t, Started> started_;  // by bucket
  // To start, though parts of them may be under way; their buckets are free.
  std::vector<Started> failed_;
  Time counted_until_{};  // in under_way_s
};

// Makes it current() on this thread for a scope; nullptr: none.
class CommunicatorScope {
 public:
  explicit CommunicatorScope(Communicator* communicator);
  ~CommunicatorScope();
  CommunicatorScope(const CommunicatorScope&) = delete;
  CommunicatorScope& operator=(const CommunicatorScope&) = delete;

 private:
  Communicator* before_;
};

}  // namespace sinter
