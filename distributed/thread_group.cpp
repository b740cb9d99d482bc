#include "distributed/thread_group.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/classic.h"
#include "core/error.h"

namespace sinter::distributed {

using Clock = std::chrono::steady_clock;

// What one rank brings to a meeting: pieces to sum, or a text for all. It stays until the rank has
// what it came for.
struct ThreadGroup::Part {
  int64_t meeting = 0;
  std::vector<SumPiece> pieces{};
  DType dtype = DType::f32;
  std::string text{};
  std::vector<std::string> texts{};  // of all ranks

  using All = std::vector<Part*>;  // by rank
  // In the order of the ranks, into the memory of all of them.
  template <class T> static void sum_piece(const All& parts, size_t piece) {
    const auto [data, count, _] = parts[0]->pieces[piece];
    T* const total = static_cast<T*>(data);
    for (const Part* other : std::span(parts).subspan(1)) {
      const T* const from = static_cast<const T*>(other->pieces[piece].data);
      for (int64_t i = 0; i < count; ++i) total[i] += from[i];
    }
    for (const Part* other : std::span(parts).subspan(1))
      std::memcpy(other->pieces[piece].data, total, static_cast<size_t>(count) * sizeof(T));
  }
  static void bring_together(const All& parts) {
    const Part& first = *parts[0];
    for (size_t r = 0; r < parts.size(); ++r) {
      const Part& other = *parts[r];
      const bool same = other.dtype == first.dtype && std::ranges::equal(other.pieces, first.pieces,
                                                          {}, &SumPiece::count, &SumPiece::count);
      SINTER_CHECK(same, state,
          str("sum over ranks: rank ", r, " sums other tensors than rank 0: ", other.pieces.size(),
              " pieces instead of ", first.pieces.size(), ", or of other sizes"));
      for (Part* to : parts) to->texts.push_back(other.text);
    }
    for (size_t p = 0; p < first.pieces.size(); ++p) {
      if (first.dtype == DType::f32) sum_piece<float>(parts, p);
      if (first.dtype == DType::f64) sum_piece<double>(parts, p);
    }
  }
};

// Ranks meet at their first, second, .. call. Each leaves its part; the last one to come does the
// work on all of them, and only then may anyone go on.
struct ThreadGroup::Shared {
  struct Meeting {
    Part::All left_by;  // null: has not come
    int came = 0, gone = 0;
    bool done = false;
    Clock::time_point there;  // when it was done
  };

  Shared(int size, const ThreadGroupOptions& options) : size(size), options(options) {}

  void come(int rank, Part& mine) {
    std::unique_lock lock(mutex);
    Meeting& meeting = meetings[mine.meeting];
    meeting.left_by.resize(static_cast<size_t>(size));
    meeting.left_by[static_cast<size_t>(rank)] = &mine;
    if (++meeting.came < size) return;
    lock.unlock();
    std::exception_ptr error;
    std::string why;
    try {
      Part::bring_together(meeting.left_by);
    } catch (const std::exception& e) {
      why = e.what();
      error = std::current_exception();
    }
    lock.lock();
    meeting.there = Clock::now();
    meeting.done = true;
    changed.notify_all();
    if (!error) return;
    fail(why, error);
    std::rethrow_exception(error);
  }

  Clock::time_point wait(int64_t number, int rank, double timeout) {
    std::unique_lock lock(mutex);
    Meeting& meeting = meetings[number];
    // While the last one works on everybody's memory nobody may leave.
    const auto may_go = [&] { return meeting.done || (meeting.came < size && !failure.empty()); };
    if (!changed.wait_for(lock, std::chrono::duration<double>(timeout), may_go)) {
      if (meeting.came < size) fail(late(meeting, rank, timeout));
      changed.wait(lock, may_go);
    }
    if (!failure.empty()) {
      take_out(meeting, rank);
      throw Error(Error::Kind::state, failure);
    }
    const Clock::time_point there = meeting.there;
    if (++meeting.gone == size) meetings.erase(number);
    return there;
  }

  // For a rank that leaves and never calls wait(): its memory is nobody's any more.
  void leave(int64_t number, int rank) {
    std::unique_lock lock(mutex);
    Meeting& meeting = meetings[number];
    changed.wait(lock, [&] { return meeting.done || meeting.came < size; });
    take_out(meeting, rank);
  }

  // With the lock. A meeting that has not begun its work never will.
  void take_out(Meeting& meeting, int rank) {
    Part*& left = meeting.left_by[static_cast<size_t>(rank)];
    if (!meeting.done && std::exchange(left, nullptr)) --meeting.came;
  }

  std::string late(const Meeting& meeting, int rank, double timeout) const {
    std::string missing;
    for (size_t r = 0; r < meeting.left_by.size(); ++r) {
      if (!meeting.left_by[r]) missing += str(missing.empty() ? "" : ", ", r);
    }
    return str("sum over ranks: rank ", missing, " of ", size, " did not arrive; rank ", rank,
        " waited ", timeout, " seconds");
  }

  // With the lock. All who wait stop; the first reason counts.
  void fail(const std::string& why, const std::exception_ptr& error = nullptr) {
    if (failure.empty()) failure = why;
    if (!first_error) first_error = error;
    changed.notify_all();
  }

  const int size;
  const ThreadGroupOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Meeting> meetings;
  std::string failure;
  std::exception_ptr first_error;
};

class ThreadGroup::Rank final : public Communicator {
 public:
  Rank(Shared& shared, int rank) : Communicator(rank, shared.size), shared_(shared) {
    set_timeout(shared.options.timeout);
  }
  ~Rank() override {
    for (const auto& [_, part] : sums_) shared_.leave(part.meeting, rank());
  }
  std::string describe() const override { return "threads of one process"; }

  std::vector<std::string> gather(const std::string& own) override {
    Part part{.meeting = meetings_++, .text = own};
    shared_.come(rank(), part);
    shared_.wait(part.meeting, rank(), timeout());
    return std::move(part.texts);
  }
  [[noreturn]] void abort(int exit_status) override { std::exit(exit_status); }

 protected:
  void start(
      int64_t bucket, std::span<const SumPiece> pieces, DType dtype, Device device) override {
    SINTER_CHECK(device.type != Device::Type::cuda, device,
        str("sum over ranks: threads sum memory of the host; the tensors are on ", device.str()));
    Part& part = sums_[bucket];
    part = {.meeting = meetings_++, .pieces = {pieces.begin(), pieces.end()}, .dtype = dtype};
    shared_.come(rank(), part);
  }
  Time finish(int64_t bucket) override {
    const Time there = shared_.wait(sums_.at(bucket).meeting, rank(), timeout());
    sums_.erase(bucket);
    return there;
  }

 private:
  Shared& shared_;
  std::map<int64_t, Part> sums_;
  int64_t meetings_ = 0;
};

ThreadGroup::ThreadGroup(int size, const ThreadGroupOptions& options)
    : shared_(std::make_unique<Shared>(size, options)) {
  SINTER_CHECK(size >= 1, usage, str("ThreadGroup: ", size, " ranks given; at least 1"));
}
ThreadGroup::~ThreadGroup() = default;

void ThreadGroup::run(const std::function<void(Communicator&)>& f) {
  // What ranks left behind that threw, or never asked for a sum, is no affair of this run's.
  shared_ = std::make_unique<Shared>(shared_->size, shared_->options);
  const auto fail = [this](const std::string& why) {
    const std::lock_guard lock(shared_->mutex);
    shared_->fail(str("sum over ranks: ", why), std::current_exception());
  };
  const auto run_rank = [&](int r) {
    const std::string failed = str("rank ", r, " of ", shared_->size, " failed: ");
    try {
      Rank rank(*shared_, r);
      const CommunicatorScope scope(&rank);
      f(rank);
    } catch (const std::exception& error) {
      fail(failed + error.what());
    } catch (...) {
      fail(failed + "by what is no std::exception");
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int r = 0; r < shared_->size; ++r) threads.emplace_back(run_rank, r);
  } catch (const std::system_error& error) {
    fail(str(
        "no thread can start for rank ", threads.size(), ": ", error_text(error.code().value())));
  }
  for (std::thread& thread : threads) thread.join();
  if (shared_->first_error) std::rethrow_exception(shared_->first_error);
}

}  // namespace sinter::distributed
