// Session: records the steps that its schedule names, then gives a Report.
//
//   Session session({.schedule = {.wait = 1, .warmup = 3, .active = 20}});
//   for (auto& batch : loader) { { Scope s("train_step"); train_step(batch); }  session.step(); }
//   std::string text = session.finish().table({.row_limit = 15});
//
// Put what belongs to no step, such as an evaluation or a save, into the scope of a Pause. There is
// one session per process; a second one is an error. A step lies between two step() calls, and the
// first begins with the session. One thread calls step(); any thread may record. Only finish()
// waits for the device; ~Session drops what was recorded. A forked child records nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/device/timing.h"
#include "profiler/clock.h"
#include "profiler/report.h"
#include "profiler/scope.h"

namespace sinter::profiler {
namespace detail {
struct Turn;
}

struct Options {
  Schedule schedule{};
  std::string title = "CPU eager";  // begins the table's header
  int threads = 0;                  // of the op kernels, for the header; 0: not said
  Device device{};                  // whose launches, times and memory are recorded
  std::string mode{}, rules{}, dtype = "f32";
  // Nothing: the stored ones (profiler/roofs.h), unless clock or timer are a test's
  std::optional<Roofs> roofs{};
  // Parameters, gradients, state, batch: what a step touches besides what it allocates; 0: unknown
  int64_t resident_bytes = 0;
  // null: one of the card on cuda, none elsewhere; else it outlives the session
  DeviceTimer* timer = nullptr;
  // null: the steady clock; else it outlives every scope that began in the session
  Clock* clock = nullptr;
  size_t records_per_thread = size_t{1} << 16;
};

class Session {
 public:
  // Errors: usage (a schedule that records nothing), state (a session is active already).
  explicit Session(Options options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends a step and begins the next. Its own work belongs to no step. Allocates only between turns.
  // counts: is it a sample where it is an active one? One that is not, as of another kind than the
  // others, is left out, and the schedule takes one more in its place.
  void step(bool counts = true);
  // Ends the session, early if need be: complete active steps count. Error (state): no step was
  // recorded, or called twice.
  Report finish();
  // True once the schedule has nothing more to record (never with repeat 0).
  bool done() const { return phase_ == Phase::done; }
  // Active steps that did not count.
  int64_t left_out() const { return left_out_; }

 private:
  friend class Pause;
  enum class Phase { wait, warmup, active, done };
  Phase phase_of(int64_t step) const;
  bool is_current() const;
  int64_t steps_of_turn() const;
  int64_t place() const { return seen_ - left_out_; }  // in the schedule
  void describe();
  void enter(Phase next);
  void begin_step();
  void pause();
  void resume();
  void drain();
  void open_turn();
  void read_clock();
  void close_turn(int64_t end_step);
  Trace read(const detail::ThreadBuffer& buffer, bool steps_here);
  MemoryStats memory() const;
  void add_registers();
  void close() noexcept;

  Options options_;
  Report report_;
  const Allocator* allocator_ = nullptr;  // null for a device that only a test's timer stands for
  std::unique_ptr<DeviceTimer> own_timer_;
  DeviceTimer* timer_ = nullptr;
  std::vector<detail::Turn> turns_;
  int64_t live_before_ = 0;  // bytes, when the first active step began
  Phase phase_ = Phase::done;
  bool turn_is_open_ = false;
  // This session's number; another one, or 0, is current after finish() and in a forked child.
  uint32_t epoch_ = 0;
  int64_t seen_ = 0;  // step() calls
  int64_t left_out_ = 0;
  int64_t window_ = -1;  // see StepSample
  int64_t step_t0_ = 0;
  MemoryStats step_memory_{};                    // when it began
  detail::ThreadBuffer* step_buffer_ = nullptr;  // of the thread that calls step()
};

// Between two steps of a session, on the thread that calls step(): nothing is recorded, and the
// next step begins where this ends. A device is waited for first, so that what it still does stays
// with the step that asked for it. Without a session (null) it does nothing. REQUIRES: the session
// outlives it and is not finished meanwhile.
class Pause {
 public:
  explicit Pause(Session* session) : session_(session) {
    if (session_) session_->pause();
  }
  ~Pause() {
    if (session_) session_->resume();
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  Session* session_;
};

}  // namespace sinter::profiler
