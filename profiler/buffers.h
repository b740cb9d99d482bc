// The buffers behind Scope and Session; nobody else includes this.
//
// One ThreadBuffer per thread: fixed arrays, a single writer. A record's early fields are published
// by the release store of `count`, its late one (info) by the release store of t1; so a
// reader takes of an open record the early fields only. Buffers stand in a list that only grows and
// live until process exit; one whose thread is gone serves a later thread, but not within the same
// session. `epoch` is the number of the session that a buffer's content belongs to: its own thread
// empties it when it first records in a new one.
#pragma once

#include <atomic>
#include <memory>

#include "profiler/clock.h"
#include "profiler/report.h"

namespace sinter::profiler::detail {

class ThreadBuffer {
 public:
  // Owner thread only.
  Record* push(StaticName name, ScopeKind kind) noexcept;
  void pop(Record* record) noexcept;
  // Is the innermost scope one that kernels are counted for?
  bool counts_launches() const {
    return current_ >= 0 && profiler::counts_launches(records_[current_].kind);
  }
  void add_launch(LaunchRecord launch) noexcept;  // fills in record and step
  void add_memory(const void* block, int64_t change, int64_t live_bytes) noexcept;
  void add_planned(const MemoryUse& use) noexcept;  // of the scope that is opened next
  int depth() const { return depth_; }
  void clear() noexcept;
  bool prepare(uint32_t epoch);  // false: scopes of an older session are still open here

  // Any thread. Requires: content of the session that reads.
  Trace read(bool steps_here) const;
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

 private:
  friend ThreadBuffer* thread_buffer();
  friend void release_thread_buffer() noexcept;
  friend ThreadBuffer* next_buffer(ThreadBuffer* buffer);
  bool has_room(size_t i) const noexcept;
  void add(MemorySample sample) noexcept;  // fills in step

  std::unique_ptr<Record[]> records_;
  std::unique_ptr<LaunchRecord[]> launches_;
  std::unique_ptr<MemorySample[]> memory_;
  size_t capacity_ = 0;
  std::atomic<size_t> count_{0}, n_launches_{0}, n_memory_{0};
  std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> owned_{true};
  int32_t current_ = -1;  // innermost open record
  uint16_t depth_ = 0;
  int id_ = 0;
  ThreadBuffer* next_ = nullptr;
};

ThreadBuffer* thread_buffer();  // of this thread; may allocate
// The same, ready for the active session; null: there is no session, no memory, or older scopes are
// open.
ThreadBuffer* ready_buffer() noexcept;
ThreadBuffer* next_buffer(ThreadBuffer* buffer);  // walks the list; nullptr gives its head

// State of the active session, set before g_epoch. g_epoch 0: none.
inline std::atomic<uint32_t> g_epoch{0}, g_step{0};
inline std::atomic<Clock*> g_clock{nullptr};
inline std::atomic<size_t> g_capacity{0};
inline std::atomic<int64_t> g_dropped{0};

inline int64_t now() noexcept { return g_clock.load(std::memory_order_acquire)->now(); }

}  // namespace sinter::profiler::detail
