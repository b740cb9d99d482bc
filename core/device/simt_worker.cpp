#include "core/device/simt_worker.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "core/device/kernel.h"  // Fault
#include "core/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sinter::simt {
namespace {

constexpr uint32_t kMaxThreads = kMaxBlockThreads;

// Thrown into fibers that wait while another has failed, so that their frames are left in order.
struct Cancelled {};

std::string describe(Operation operation, const Where& where) {
  constexpr const char* kNames[] = {"block_sync", "ticket", "warp_sync", "shfl", "shfl_xor",
      "ldmatrix_x4", "ldmatrix_x4_trans", "mma_bf16_m16n8k16", "mma_tf32_m16n8k8"};
  return str(kNames[int(operation)], " (", where.file_name(), ":", where.line(), ")");
}

bool same_place(const Where& a, const Where& b) {
  return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name();
}

FiberThread& running() {
  SINTER_ASSERT(current, "a kernel function was called outside a kernel");
  return *static_cast<FiberThread*>(current->owner);
}

}  // namespace

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u ^ (x >> 32);
}

FiberThread::FiberThread(Worker& worker, int index)
    : worker(&worker),
      fiber(
          [](void* self) {
            FiberThread& me = *static_cast<FiberThread*>(self);
            while (true) me.worker->run_thread(me);
          },
          this, index) {
  view.owner = this;
  view.index = index;
  view.lane = index % 32;
  view.warp = index / 32;
}

Worker::Worker() : arena_(kMaxSharedBytes + 128), ready_(kMaxThreads) {
  barrier_.waiting.reserve(kMaxThreads);
  shared_ = arena_.data() + (128 - reinterpret_cast<uintptr_t>(arena_.data()) % 128) % 128;
}
Worker::~Worker() = default;

void Worker::run_block(const Launch& launch, const int64_t (&block)[3], const Schedule& schedule) {
  launch_ = &launch;
  schedule_ = schedule;
  random_ = mix(schedule.seed ^ mix(uint64_t(block[0] + 7919 * block[1] + 104729 * block[2])));
  prepare(block);
  Fiber scheduler;
  scheduler_ = &scheduler;
  publish(this);
  if (ready_begin_ != ready_end_) {
    FiberThread& first = *ready_[ready_begin_++ % kMaxThreads];
    current = &first.view;
    scheduler.switch_to(first.fiber);  // comes back when no thread can go on, or one has failed
  }
  if (!error_ && alive_ > 0)
    error_ = std::make_exception_ptr(Error(Error::Kind::state, deadlock_message(),
        "every thread of a block or warp that has not left must come"));
  if (alive_ > 0) cancel_all();
  current = nullptr;
  observe(this);
  counts.block_ended(launch.shape.block);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(shared_, kMaxSharedBytes);
#endif
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Worker::prepare(const int64_t (&block)[3]) {
  const auto& [kernel, grid, n, shared_bytes, parameters] = launch_->shape;
  while (int(threads_.size()) < n)
    threads_.push_back(std::make_unique<FiberThread>(*this, int(threads_.size())));
  warps_.resize(size_t((n + 31) / 32));
  std::fill_n(shared_, shared_bytes, std::byte{0xff});
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(shared_ + shared_bytes, kMaxSharedBytes - shared_bytes);
#endif
  alive_ = n;
  cancelled_ = false;
  ready_begin_ = ready_end_ = 0;
  barrier_.waiting.clear();
  for (int w = 0; w < int(warps_.size()); ++w) {
    warps_[w].meeting.waiting.clear();
    warps_[w].meeting.waiting.reserve(32);
    warps_[w].alive = std::min(32, n - w * 32);
  }
  ahead_ = int(random_ % warps_.size());
  std::vector<FiberThread*> all;
  all.reserve(size_t(n));
  for (int t = 0; t < n; ++t) {
    FiberThread& thread = *threads_[t];
    thread.started = thread.done = false;
    thread.copies.clear();
    thread.group_ends.clear();
    thread.landed = 0;
    Thread& view = thread.view;
    view.threads = n;
    std::copy_n(block, 3, view.block);
    view.grid[0] = grid.x;
    view.grid[1] = grid.y;
    view.grid[2] = grid.z;
    view.shared = shared_;
    view.shared_bytes = shared_bytes;
    view.waited = !launch_->waits;
    all.push_back(&thread);
  }
  make_ready(all);
}

// One thread of one block, from start to end.
void Worker::run_thread(FiberThread& me) {
  observe(this);
  me.started = true;
  try {
    launch_->thread();
  } catch (const Cancelled&) {
  } catch (Error& error) {
    if (!error_)
      error_ = std::make_exception_ptr(Error(
          error.kind(), str("simt: ", here(me.view.index), ": ", error.message()), error.hint()));
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
  me.done = true;
  // A thread that has left no longer counts at the barriers of its block and warp, as on the
  // device.
  --alive_;
  Warp& warp = warps_[me.view.warp];
  --warp.alive;
  release_if_complete(warp.meeting, warp.alive);
  release_if_complete(barrier_, alive_);
  publish(this);
  go_on_elsewhere(me);
}

void Worker::block_sync(FiberThread& me, Operation operation, const Where& where) {
  counts.sum.barriers += barrier_.waiting.empty();
  meet(me, barrier_, alive_, operation, where);
}

const LaneSlot* Worker::warp_meet(FiberThread& me, Operation operation, const LaneSlot& mine,
    uint32_t& present, const Where& where) {
  Warp& warp = warps_[me.view.warp];
  const uint64_t parity = warp.meeting.generation & 1;
  if (warp.meeting.waiting.empty()) {
    warp.present[parity] = 0;
    ++counts.warp_wide(operation);
  }
  warp.slots[parity][me.view.lane] = mine;
  warp.present[parity] |= 1u << me.view.lane;
  meet(me, warp.meeting, warp.alive, operation, where);
  present = warp.present[parity];
  return warp.slots[parity];
}

bool Worker::ticket(FiberThread& me, uint32_t* counter, uint32_t n, const Where& where) {
  block_sync(me, Operation::ticket, where);
  if (threads_[0]->done) fail("ticket after thread 0, which takes the number, has left the kernel");
  if (me.view.index == 0) {
    std::atomic_ref<uint32_t> shared(*counter);
    publish(counter);
    last_ = shared.fetch_add(1, std::memory_order_acq_rel) == n - 1;
    if (last_) {
      observe(counter);
      shared.store(0, std::memory_order_relaxed);
    }
  }
  // Nobody writes last_ again before all have read it: the next ticket begins with a barrier.
  meet(me, barrier_, alive_, Operation::ticket, where);
  return last_;
}

void Worker::meet(
    FiberThread& me, Meeting& meeting, int expected, Operation operation, const Where& where) {
  if (meeting.waiting.empty()) {
    meeting.operation = operation;
    meeting.where = where;
  } else if (meeting.operation != operation ||
             (!same_place(meeting.where, where) && operation != Operation::warp_sync)) {
    fail(str("is at ", describe(operation, where), " while others of its ",
        &meeting == &barrier_ ? "block" : "warp", " wait at ",
        describe(meeting.operation, meeting.where)));
  }
  char* sync = &meeting.sync[meeting.generation & 1];
  publish(sync);
  const bool complete = int(meeting.waiting.size()) + 1 == expected;
  if (complete && schedule_.order == Schedule::Order::forward) {
    release(meeting);  // the last to come goes on at once; the others follow
  } else {
    meeting.waiting.push_back(&me);
    me.operation = operation;
    me.where = where;
    if (complete) release(meeting);
    go_on_elsewhere(me);
    if (cancelled_) throw Cancelled{};
  }
  observe(sync);
}

void Worker::release_if_complete(Meeting& meeting, int expected) {
  if (!meeting.waiting.empty() && int(meeting.waiting.size()) >= expected) release(meeting);
}

void Worker::release(Meeting& meeting) {
  const Unseen unseen;
  ++meeting.generation;
  make_ready(meeting.waiting);
  meeting.waiting.clear();
}

// Appends threads to the queue in the schedule's order.
void Worker::make_ready(std::vector<FiberThread*>& batch) {
  using Order = Schedule::Order;
  if (schedule_.order == Order::reversed) {
    std::sort(batch.begin(), batch.end(),
        [](const FiberThread* a, const FiberThread* b) { return a->view.index > b->view.index; });
  }
  if (schedule_.order == Order::shuffled) {
    for (size_t i = batch.size(); i > 1; --i)
      std::swap(batch[i - 1], batch[(random_ = mix(random_ + i)) % i]);
  }
  for (FiberThread* thread : batch) {
    const bool first = schedule_.order == Order::one_warp_ahead && thread->view.warp == ahead_;
    ready_[(first ? --ready_begin_ : ready_end_++) % kMaxThreads] = thread;
  }
}

// To the next thread that can run; to the scheduler if there is none, or something has failed.
void Worker::go_on_elsewhere(FiberThread& me) {
  if (error_ || ready_begin_ == ready_end_) return me.fiber.switch_to(*scheduler_);
  FiberThread& next = *ready_[ready_begin_++ % kMaxThreads];
  current = &next.view;
  if (&next != &me) me.fiber.switch_to(next.fiber);
}

// Lets every thread that has begun leave its frames.
void Worker::cancel_all() {
  cancelled_ = true;
  for (int t = 0; t < launch_->shape.block; ++t) {
    FiberThread& thread = *threads_[t];
    if (!thread.started || thread.done) continue;
    current = &thread.view;
    scheduler_->switch_to(thread.fiber);
  }
}

std::string Worker::here(int thread) const {
  const int64_t(&b)[3] = threads_[0]->view.block;
  return str(launch_->shape.kernel, ", block (", b[0], ", ", b[1], ", ", b[2], ")",
      thread >= 0 ? str(", thread ", thread) : "");
}

// "thread 0..39 wait at block_sync (linear.cu:80), 40..63 at shfl_xor (linear.cu:92)"
std::string Worker::deadlock_message() const {
  std::map<std::string, std::vector<int>> groups;
  for (int t = 0; t < launch_->shape.block; ++t) {
    if (!threads_[t]->done)
      groups[describe(threads_[t]->operation, threads_[t]->where)].push_back(t);
  }
  std::string text = str("simt: ", here(-1), ": deadlock: thread ");
  const char* separator = "";
  for (const auto& [place, list] : groups) {
    for (size_t i = 0; i < list.size();) {
      size_t end = i;
      while (end + 1 < list.size() && list[end + 1] == list[end] + 1) ++end;
      text += str(i ? "," : separator, list[i], end > i ? str("..", list[end]) : "");
      i = end + 1;
    }
    text += str(*separator ? " at " : " wait at ", place);
    separator = ", ";
  }
  const int left = launch_->shape.block - alive_;
  return text + (left ? str("; ", left, " have left the kernel") : "");
}

// ---- what kernels call, by way of kernel_simt.h, on behalf of the running thread

void block_sync(const Where& where) {
  FiberThread& me = running();
  me.worker->block_sync(me, Operation::block_sync, where);
}

const LaneSlot* warp_meet(
    Operation operation, const LaneSlot& mine, uint32_t& present, const Where& where) {
  FiberThread& me = running();
  return me.worker->warp_meet(me, operation, mine, present, where);
}

bool ticket(uint32_t* counter, uint32_t n, const Where& where) {
  FiberThread& me = running();
  return me.worker->ticket(me, counter, n, where);
}

void cp_async16(const AsyncCopy& copy) {
  FiberThread& me = running();
  ++me.worker->counts.sum.cp_async;
  me.copies.push_back(copy);
}

void cp_async_commit() {
  FiberThread& me = running();
  me.group_ends.push_back(me.copies.size());
}

std::span<const AsyncCopy> cp_async_landing(int groups_left) {
  FiberThread& me = running();
  me.copies.erase(me.copies.begin(), me.copies.begin() + ptrdiff_t(me.landed));
  for (size_t& end : me.group_ends) end -= me.landed;
  me.landed = 0;
  if (const auto landing = ptrdiff_t(me.group_ends.size()) - groups_left; landing > 0) {
    me.landed = me.group_ends[size_t(landing - 1)];
    me.group_ends.erase(me.group_ends.begin(), me.group_ends.begin() + landing);
  }
  return {me.copies.data(), me.landed};
}

void count_device(Access access, const void* address, size_t bytes, const Where& where) {
  FiberThread& me = running();
  if (!me.view.waited)
    fail(str(
        access == Access::write ? "writes" : "reads", " device memory before wait_for_upstream()"));
  me.worker->counts.access(access == Access::write ? Space::device_write : Space::device_read,
      me.view, address, bytes, where);
}
void count_shared(const void* address, size_t bytes, const Where& where) {
  FiberThread& me = running();
  me.worker->counts.access(Space::shared, me.view, address, bytes, where);
}
void count_or_fail(Access access, const char* what, const Elements& e) {
  const int64_t n = e.n < 0 ? ~e.n : e.n;
  if (e.i < 0 || e.i + e.count > n) fail_bounds(what, e.i < 0 ? e.i : e.i + e.count - 1, n);
  count_device(access, static_cast<const std::byte*>(e.data) + size_t(e.i) * e.bytes,
      size_t(e.count) * e.bytes, {});
}

void fail(std::string_view message) { throw Error(Error::Kind::state, std::string(message)); }
void fail_bounds(const char* what, int64_t index, int64_t count) {
  fail(str(what, " out of bounds: element ", index, " of ", count,
      count > 0 ? str("; allowed 0..", count - 1) : "; the operand is empty or absent"));
}
void fail_shared(size_t wanted) {
  fail(str("shared() too large: ", wanted, " bytes; launched with ", current->shared_bytes));
}
void fail_absent(int lane, const Where& where) {
  fail(str("lane ", lane, ", which has left the kernel or never was, is needed at ",
      where.file_name(), ":", where.line()));
}
void fail_poison(const char* what, int64_t index) {
  throw Error(Error::Kind::state, str("read of ", what, " that was never written: element ", index),
      "a missing barrier, wait or store");
}
void fail_alignment(const char* what, int64_t index, size_t bytes) {
  fail(str(what, " not aligned: element ", index, "; a vector access needs a multiple of ", bytes,
      " bytes"));
}
void fail_fault(uint32_t fault, int64_t index, int64_t value, int64_t count) {
  const bool label = fault == uint32_t(Fault::label_out_of_range);
  throw Error(Error::Kind::data, str(label ? "label out of range: " : "index out of range: ", value,
                                     label ? " in row " : " at item ", index, "; ", count,
                                     label ? " classes" : " rows", " are 0..", count - 1));
}

}  // namespace sinter::simt
