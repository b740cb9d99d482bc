#include "profiler/scope.h"

#include <new>

#include "profiler/buffers.h"

namespace sinter::profiler {
namespace {

// This thread's buffer, ready for the active session; null: none is active, no memory, or scopes of an older session are open here.
detail::ThreadBuffer* ready_buffer() noexcept {
  const uint32_t epoch = detail::g_epoch.load(std::memory_order_acquire);
  if (epoch == 0) return nullptr;
  try {
    detail::ThreadBuffer* buffer = detail::thread_buffer();
    if (buffer->prepare(epoch)) return buffer;
  } catch (const std::bad_alloc&) {
  }
  detail::g_dropped.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace

std::string_view name_of(ScopeKind kind) {
  constexpr std::string_view kNames[] = {"step", "annotation", "module", "op", "runtime", "sync", "memory", "data", "profiler"};
  return kNames[static_cast<int>(kind)];
}

void Scope::begin(StaticName name, ScopeKind kind) noexcept {
  if (detail::ThreadBuffer* buffer = ready_buffer()) slot_ = buffer->push(name, kind);
}

void Scope::end() noexcept { detail::thread_buffer()->pop(slot_); }

void KernelSpan::begin() noexcept {
  detail::ThreadBuffer* buffer = ready_buffer();
  if (!buffer || !buffer->in_op()) return;
  buffer_ = buffer;
  t0_ = detail::now();
}

void KernelSpan::end() noexcept { buffer_->add_launch(t0_, detail::now()); }

}  // namespace sinter::profiler
