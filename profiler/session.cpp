#include "profiler/session.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/device/compiled_kernels.h"
#include "core/device/simt.h"
#include "core/error.h"
#include "profiler/buffers.h"
#include "profiler/device_trace.h"

namespace sinter::profiler {
namespace {

SteadyClock g_steady_clock;
std::atomic<bool> g_active{false};
std::atomic<uint32_t> g_last_epoch{0};

void stop_recording() { detail::g_watchers.fetch_and(uint8_t(~detail::kSession)); }

// In a forked child: its session, if any, is not the parent's.
void forget_session() {
  stop_recording();
  detail::g_epoch.store(0, std::memory_order_relaxed);
  detail::remove_hook();
  g_active.store(false, std::memory_order_relaxed);
}

}  // namespace

Session::Session(Options options) : options_(std::move(options)) {
  const Schedule& s = options_.schedule;
  SINTER_CHECK(s.wait >= 0 && s.warmup >= 0 && s.active >= 1 && s.repeat >= 0, usage,
      str("profiler: the schedule records nothing: wait ", s.wait, ", warmup ", s.warmup,
          ", active ", s.active, ", repeat ", s.repeat,
          "; active must be at least 1, the others at least 0"));
  static const int at_fork = pthread_atfork(nullptr, nullptr, forget_session);
  SINTER_ASSERT(at_fork == 0, "pthread_atfork gave ", at_fork);
  SINTER_CHECK(!g_active.exchange(true), state,
      "profiler: a session is active already; there is one per process",
      "call finish() on it, or let it end, before the next");
  detail::g_clock.store(
      options_.clock ? options_.clock : &g_steady_clock, std::memory_order_release);
  detail::g_capacity.store(options_.records_per_thread, std::memory_order_relaxed);
  detail::g_dropped.store(0, std::memory_order_relaxed);
  epoch_ = ++g_last_epoch;
  detail::g_epoch.store(epoch_, std::memory_order_release);
  try {
    describe();
    try {
      allocator_ = &allocator(options_.device);
    } catch (const Error&) {
      if (!options_.timer) throw;
    }
    if (options_.device.type == Device::Type::cuda && !options_.timer)
      own_timer_ = cuda::make_timer(report_.source_why);
    timer_ = options_.timer ? options_.timer : own_timer_.get();
    if (timer_) report_.card = timer_->card();
    // The emulator stands for a card of compute capability 9.0.
    if (options_.device.type == Device::Type::simt) report_.card = {90, simt::multiprocessors()};
    detail::install_hook(allocator_, timer_);
    // Now, so that a schedule without warm-up allocates nothing in its window.
    detail::thread_buffer()->prepare(epoch_);
    enter(phase_of(0));
  } catch (...) {
    close();
    throw;
  }
}

Session::~Session() { close(); }

// False once it is over, and in a forked child.
bool Session::is_current() const { return epoch_ != 0 && epoch_ == detail::g_epoch.load(); }

// What the report knows before any step.
void Session::describe() {
  report_.title = options_.title;
  report_.threads = options_.threads;
  report_.schedule = options_.schedule;
  report_.device = options_.device;
  report_.mode = options_.mode;
  report_.rules = options_.rules;
  report_.dtype = options_.dtype;
  report_.roofs = options_.roofs;
  if (!options_.roofs && !options_.clock && !options_.timer)
    report_.roofs = stored_roofs(options_.device);
  if (!report_.roofs) return;
  report_.overheads.scope_ns = report_.roofs->scope_ns;
  report_.overheads.event_ns = report_.roofs->event_ns;
}

void Session::close() noexcept {
  if (is_current()) {
    // Scopes that are still open will ask it for their end.
    detail::g_clock.store(&g_steady_clock, std::memory_order_release);
    forget_session();
  }
  epoch_ = 0;
  own_timer_.reset();  // what follows is measured without it
}

int64_t Session::steps_of_turn() const {
  const Schedule& s = options_.schedule;
  return int64_t{s.wait} + s.warmup + s.active;
}

Session::Phase Session::phase_of(int64_t step) const {
  const Schedule& s = options_.schedule;
  if (s.repeat > 0 && step / steps_of_turn() >= s.repeat) return Phase::done;
  const int64_t at = step % steps_of_turn();
  if (at < s.wait) return Phase::wait;
  return at < s.wait + s.warmup ? Phase::warmup : Phase::active;
}

MemoryStats Session::memory() const { return allocator_ ? allocator_->stats() : MemoryStats{}; }

// Before the warm-up, in which a replay captures the graph that is read by the device's records.
void Session::open_turn() {
  turn_is_open_ = true;
  if (!timer_) return;
  read_clock();
  timer_->begin(detail::now);
  turns_.push_back({.first_step = seen_});
}

void Session::read_clock() {
  const DeviceTimer::SmClock clock = timer_->sm_clock();
  if (clock.now > 0 && (report_.sm_mhz == 0 || clock.now < report_.sm_mhz))
    report_.sm_mhz = clock.now;
  report_.sm_standard_mhz = clock.standard;
}

// Waits for what the steps of the window have asked the device to do.
void Session::drain() {
  if (!timer_) return;
  const int64_t t0 = detail::now();
  timer_->wait();
  const bool any = !report_.steps.empty() && report_.steps.back().window == window_;
  if (any) report_.steps.back().drain_ns += detail::now() - t0;
}

void Session::close_turn(int64_t end_step) {
  turn_is_open_ = false;
  if (!timer_) return;
  drain();
  read_clock();  // behind the drain, which it would hide: it takes longer than a step
  DeviceTimer::Records all = timer_->end(detail::now);
  turns_.back().end_step = end_step;
  turns_.back().ran = std::move(all.ran);
  report_.dropped += all.dropped;
  report_.overheads.axis_ns = std::max(report_.overheads.axis_ns, all.axis_ns);
}

Trace Session::read(const detail::ThreadBuffer& buffer, bool steps_here) {
  Trace trace = buffer.read(steps_here);
  detail::resolve(trace, turns_);
  return trace;
}

void Session::enter(Phase next) {
  const bool turn_ends = place() % steps_of_turn() == 0;
  if (next != phase_ || turn_ends) {
    stop_recording();
    if (phase_ == Phase::active) close_turn(seen_);
    // Between turns the stepping thread's buffer is emptied, so that it need hold one turn only.
    if (step_buffer_ && step_buffer_->epoch() == epoch_ && step_buffer_->depth() == 0) {
      if (phase_ == Phase::active) report_.traces.push_back(read(*step_buffer_, true));
      step_buffer_->clear();
    }
    if (next != Phase::wait && next != Phase::done && !turn_is_open_) open_turn();
    if (next == Phase::active) {
      report_.steps.reserve(report_.steps.size() + size_t(options_.schedule.active));
      if (report_.steps.empty() && allocator_) live_before_ = allocator_->stats().live_bytes;
      if (timer_) timer_->wait();  // for the steps before
      ++window_;
    }
  }
  phase_ = next;
  begin_step();
}

void Session::begin_step() {
  detail::g_step.store(uint32_t(seen_), std::memory_order_relaxed);
  if (phase_ == Phase::warmup || phase_ == Phase::active)
    detail::g_watchers.fetch_or(detail::kSession);
  step_memory_ = memory();
  step_t0_ = detail::now();
}

void Session::pause() {
  if (!is_current()) return;
  stop_recording();
  if (phase_ == Phase::active) drain();
}

void Session::resume() {
  if (!is_current()) return;
  ++window_;
  begin_step();
}

void Session::step(bool counts) {
  SINTER_CHECK(epoch_ != 0, state, "profiler: step() after finish(): the session is over");
  if (!is_current()) return;  // a forked child
  const int64_t now = detail::now();
  detail::ThreadBuffer* const mine = detail::thread_buffer();
  SINTER_CHECK(!step_buffer_ || step_buffer_ == mine, state,
      "profiler: step() was called by two threads; steps belong to one");
  step_buffer_ = mine;
  if (phase_ == Phase::active && !counts) {
    stop_recording();
    if (timer_) timer_->wait();
    ++seen_;
    ++left_out_;
    ++window_;
    return begin_step();
  }
  if (phase_ == Phase::active) {
    report_.steps.push_back({.number = seen_,
        .round = place() / steps_of_turn(),
        .t0 = step_t0_,
        .t1 = now,
        .allocs = memory().requests - step_memory_.requests,
        .window = window_,
        .live_bytes = step_memory_.live_bytes});
  }
  ++seen_;
  enter(phase_of(place()));
}

// Of what nvcc made of the kernels that the emulator ran.
void Session::add_registers() {
  // Read once: the emulator stands for one card, and the logs of all kernels take 0.3 s.
  static const auto compiled = compiled_registers(report_.card.capability);
  std::map<const char*, std::optional<int>> registers;  // of those that were launched
  for (Trace& trace : report_.traces) {
    for (LaunchRecord& launch : trace.launches) {
      const auto [of, is_new] = registers.try_emplace(launch.kernel.c_str());
      const auto found = is_new ? compiled.find(kernel_key(launch.kernel.c_str())) : compiled.end();
      if (found != compiled.end()) of->second = found->second;
      launch.footprint.registers = of->second;
    }
  }
}

Report Session::finish() {
  SINTER_CHECK(is_current(), state,
      "profiler: finish(): this session is over: finish() was called already, or this process is a "
      "forked child");
  stop_recording();
  if (turn_is_open_) close_turn(seen_ + 1);
  const Schedule& s = options_.schedule;
  const int64_t first = int64_t{s.wait} + s.warmup + 1;
  if (report_.steps.empty()) {
    close();
    throw Error(Error::Kind::state,
        str("profiler: no step was recorded: wait ", s.wait, ", warmup ", s.warmup, ", active ",
            s.active, " needs ", first, " steps for a first sample and ", first + s.active - 1,
            " for all; step() was called ", seen_, " times"),
        "call step() at the end of every step, or shorten the schedule");
  }
  for (detail::ThreadBuffer* b = detail::next_buffer(nullptr); b; b = detail::next_buffer(b)) {
    if (b->epoch() == epoch_) report_.traces.push_back(read(*b, b == step_buffer_));
  }
  std::erase_if(report_.traces,
      [](const Trace& trace) { return trace.records.empty() && trace.launches.empty(); });
  const int64_t dropped = detail::g_dropped.load();
  close();
  if (report_.dropped > 0)
    report_.incomplete.push_back(
        str(report_.dropped, " records dropped by CUPTI, whose buffers were full"));
  if (options_.resident_bytes > 0)
    report_.working_set =
        options_.resident_bytes + std::max<int64_t>(report_.memory_peak().bytes - live_before_, 0);
  if (dropped > 0) {
    report_.incomplete.push_back(str(dropped, " records dropped (a buffer holds ",
        options_.records_per_thread, " per thread, for one turn of the schedule)"));
  }
  report_.dropped += dropped;
  if (options_.device.type == Device::Type::simt) add_registers();
  report_.evaluate();
  return std::move(report_);
}

}  // namespace sinter::profiler
