#include "profiler/scope.h"

#include "profiler/buffers.h"

namespace sinter::profiler {
std::string_view name_of(ScopeKind kind) {
  constexpr std::string_view kNames[] = {"step", "annotation", "module", "op", "runtime", "sync", "memory", "data", "profiler"};
  return kNames[static_cast<int>(kind)];
}

void Scope::begin(StaticName name, ScopeKind kind) noexcept {
  if (detail::ThreadBuffer* buffer = detail::ready_buffer()) slot_ = buffer->push(name, kind);
}

void Scope::end() noexcept { detail::thread_buffer()->pop(slot_); }

void KernelSpan::begin() noexcept {
  detail::ThreadBuffer* buffer = detail::ready_buffer();
  if (!buffer || !buffer->in_op()) return;
  buffer_ = buffer;
  t0_ = detail::now();
}

void KernelSpan::end() noexcept {
  const int64_t t1 = detail::now();
  buffer_->add_launch({.api_t0 = t0_, .api_t1 = t1, .dev_t0 = t0_, .dev_t1 = t1, .source = Source::host});
}

}  // namespace sinter::profiler
