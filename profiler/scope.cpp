#include "profiler/scope.h"

#include "core/context.h"
#include "profiler/buffers.h"

namespace sinter::profiler {
namespace {
std::atomic<const RangeCalls*> g_ranges{nullptr};
[[maybe_unused]] const bool g_asked = (set_ranges(attached_ranges()), true);
}  // namespace

void set_ranges(const RangeCalls* calls) noexcept {
  g_ranges.store(calls, std::memory_order_release);
  if (calls) {
    detail::g_watchers.fetch_or(detail::kRanges);
  } else {
    detail::g_watchers.fetch_and(uint8_t(~detail::kRanges));
  }
}

void Scope::begin(StaticName name, ScopeKind kind) noexcept {
  if (!Context::current().launches) return;
  ranges_ = g_ranges.load(std::memory_order_acquire);
  if (ranges_) ranges_->push(name.c_str());
  if (!recording()) return;
  if (detail::ThreadBuffer* buffer = detail::ready_buffer()) slot_ = buffer->push(name, kind);
}

void Scope::end() noexcept {
  if (slot_) detail::thread_buffer()->pop(slot_);
  if (ranges_) ranges_->pop();
}

int64_t Scope::now() noexcept { return detail::now(); }

void KernelSpan::begin() noexcept {
  detail::ThreadBuffer* buffer = detail::ready_buffer();
  if (!buffer || !buffer->counts_launches()) return;
  buffer_ = buffer;
  t0_ = detail::now();
}

void KernelSpan::end() noexcept {
  const int64_t t1 = detail::now();
  buffer_->add_launch(
      {.api_t0 = t0_, .api_t1 = t1, .dev_t0 = t0_, .dev_t1 = t1, .source = Source::host});
}

}  // namespace sinter::profiler
