#include "profiler/buffers.h"

#include <new>

namespace sinter::profiler::detail {
namespace {

std::atomic<ThreadBuffer*> g_head{nullptr};
constinit thread_local ThreadBuffer* t_buffer = nullptr;

// Its destructor hands the buffer back. Apart from t_buffer, whose access must cost no guard.
struct AtThreadExit {
  ~AtThreadExit();
  bool armed = false;
};
thread_local AtThreadExit t_at_exit;

}  // namespace

void release_thread_buffer() noexcept {
  if (t_buffer) t_buffer->owned_.store(false, std::memory_order_release);
  t_buffer = nullptr;
}

namespace {
AtThreadExit::~AtThreadExit() { release_thread_buffer(); }
}  // namespace

ThreadBuffer* next_buffer(ThreadBuffer* buffer) {
  return buffer ? buffer->next_ : g_head.load(std::memory_order_acquire);
}

ThreadBuffer* thread_buffer() {
  if (t_buffer) return t_buffer;
  t_at_exit.armed = true;
  const uint32_t epoch = g_epoch.load(std::memory_order_acquire);
  for (ThreadBuffer* b = next_buffer(nullptr); b; b = next_buffer(b)) {
    bool expected = false;
    if (b->epoch() != epoch &&
        b->owned_.compare_exchange_strong(expected, true, std::memory_order_acq_rel))
      return t_buffer = b;
  }
  auto* fresh = new ThreadBuffer;
  fresh->next_ = g_head.load(std::memory_order_relaxed);
  do {
    fresh->id_ = fresh->next_ ? fresh->next_->id_ + 1 : 0;
  } while (!g_head.compare_exchange_weak(fresh->next_, fresh, std::memory_order_acq_rel));
  return t_buffer = fresh;
}

ThreadBuffer* ready_buffer() noexcept {
  const uint32_t epoch = g_epoch.load(std::memory_order_acquire);
  if (epoch == 0) return nullptr;
  try {
    ThreadBuffer* buffer = thread_buffer();
    if (buffer->prepare(epoch)) return buffer;
  } catch (const std::bad_alloc&) {}
  g_dropped.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

bool ThreadBuffer::prepare(uint32_t epoch) {
  if (epoch_.load(std::memory_order_relaxed) == epoch) return true;
  if (depth_ > 0) return false;
  const size_t capacity = g_capacity.load(std::memory_order_relaxed);
  if (capacity_ != capacity) {
    capacity_ = 0;
    records_ = std::make_unique<Record[]>(capacity);  // value-initialised: touches the pages
    launches_ = std::make_unique<LaunchRecord[]>(capacity);
    memory_ = std::make_unique<MemorySample[]>(capacity);
    capacity_ = capacity;
  }
  clear();
  epoch_.store(epoch, std::memory_order_release);
  return true;
}

void ThreadBuffer::clear() noexcept {
  count_.store(0, std::memory_order_relaxed);
  n_launches_.store(0, std::memory_order_relaxed);
  n_memory_.store(0, std::memory_order_relaxed);
}

// For entry i; what finds none is counted.
bool ThreadBuffer::has_room(size_t i) const noexcept {
  if (i < capacity_) return true;
  g_dropped.fetch_add(1, std::memory_order_relaxed);
  return false;
}

Record* ThreadBuffer::push(StaticName name, ScopeKind kind) noexcept {
  const size_t i = count_.load(std::memory_order_relaxed);
  if (!has_room(i)) return nullptr;
  Record* record = &records_[i];
  record->name = name;
  record->info = OpInfo{};
  record->describe_ns = 0;
  record->parent = current_;
  record->step = g_step.load(std::memory_order_relaxed);
  ++depth_;
  record->kind = kind;
  current_ = int32_t(i);
  std::atomic_ref(record->t1).store(Record::kOpen, std::memory_order_relaxed);
  record->t0 = now();
  count_.store(i + 1, std::memory_order_release);
  return record;
}

void ThreadBuffer::pop(Record* record) noexcept {
  current_ = record->parent;
  --depth_;
  std::atomic_ref(record->t1).store(now(), std::memory_order_release);
}

void ThreadBuffer::add(MemorySample sample) noexcept {
  const size_t i = n_memory_.load(std::memory_order_relaxed);
  if (!has_room(i)) return;
  sample.step = g_step.load(std::memory_order_relaxed);
  memory_[i] = sample;
  n_memory_.store(i + 1, std::memory_order_release);
}

void ThreadBuffer::add_memory(const void* block, int64_t change, int64_t live_bytes) noexcept {
  add({.t = now(), .live_bytes = live_bytes, .record = current_, .change = change, .block = block});
}

void ThreadBuffer::add_planned(const MemoryUse& use) noexcept {
  add({.record = int32_t(count_.load(std::memory_order_relaxed)), .planned = use});
}

void ThreadBuffer::add_launch(LaunchRecord launch) noexcept {
  const size_t i = n_launches_.load(std::memory_order_relaxed);
  if (!has_room(i)) return;
  launch.record = current_;
  launch.step = g_step.load(std::memory_order_relaxed);
  launches_[i] = launch;
  n_launches_.store(i + 1, std::memory_order_release);
}

Trace ThreadBuffer::read(bool steps_here) const {
  Trace trace{id_, steps_here, {}, {}, {}};
  const size_t n = count_.load(std::memory_order_acquire);
  trace.records.resize(n);
  for (size_t i = 0; i < n; ++i) {
    Record& from = records_[i];
    Record& to = trace.records[i];
    if (std::atomic_ref(from.t1).load(std::memory_order_acquire) != Record::kOpen) {
      to = from;
    } else {  // its thread may be writing the rest
      to = {.t0 = from.t0,
          .name = from.name,
          .parent = from.parent,
          .step = from.step,
          .kind = from.kind};
    }
  }
  const size_t launches = n_launches_.load(std::memory_order_acquire);
  trace.launches.assign(launches_.get(), launches_.get() + launches);
  std::erase_if(
      trace.launches, [n](const LaunchRecord& launch) { return launch.record >= int64_t(n); });
  trace.memory.assign(memory_.get(), memory_.get() + n_memory_.load(std::memory_order_acquire));
  std::erase_if(
      trace.memory, [n](const MemorySample& sample) { return sample.record >= int64_t(n); });
  return trace;
}

}  // namespace sinter::profiler::detail
