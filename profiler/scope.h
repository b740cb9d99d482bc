// Scope: the RAII span that apply(), modules and users open; KernelSpan: the kernel call inside an
// op's scope (= one launch on `cpu`).
//
// While no session records, a Scope costs one relaxed load. While one records, it writes to a fixed
// buffer of its own thread: no locks, no allocation, never an exception; a full buffer drops and
// counts. Scopes live on the stack only, so nesting is strict by construction; parent and depth are
// stored at push. Times are integer ns of the session's clock. Any thread may open scopes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/device/nvtx.h"
#include "profiler/cost.h"
#include "profiler/names.h"

namespace sinter::profiler {

// nvcc warns of a line that begins with "module", a word of C++20.
// clang-format off
enum class ScopeKind : uint8_t {
  step, annotation, module, op, runtime, sync, memory, data, profiler
};
// clang-format on
constexpr auto names_of(ScopeKind) {
  return std::to_array<std::string_view>(
      {"step", "annotation", "module", "op", "runtime", "sync", "memory", "data", "profiler"});
}

// What apply() knows of one op; made only while recording.
struct OpInfo {
  Cost cost{};
  uint64_t uid = 0, forward_uid = 0;
  StaticName shapes;  // "f32[64, 784] f32[256, 784]"
  Role role = Role::none;
  StaticName module;  // "MLP / 0 / Linear", of a fused op "MLP / 0 + MLP / 1": module_frames()
};

struct Record {
  int64_t t0 = 0, t1 = kOpen;
  StaticName name;
  OpInfo info;  // ops only
  int32_t parent = -1;
  uint32_t step = 0;
  ScopeKind kind = ScopeKind::annotation;
  uint32_t describe_ns = 0;  // that Scope::describe() took, the profiler's own

  static constexpr int64_t kOpen = INT64_MIN;
};

namespace detail {
// Who looks on: one load tells a Scope that nobody does.
inline constexpr uint8_t kSession = 1, kRanges = 2;
inline std::atomic<uint8_t> g_watchers{0};
class ThreadBuffer;
}  // namespace detail

inline bool recording() noexcept {
  return detail::g_watchers.load(std::memory_order_relaxed) & detail::kSession;
}
// From now on every scope is a range of a tool outside too, session or not; null: no longer. At
// start-up: attached_ranges().
void set_ranges(const RangeCalls* calls) noexcept;

class Scope {
 public:
  explicit Scope(StaticName name, ScopeKind kind = ScopeKind::annotation) noexcept {
    if (detail::g_watchers.load(std::memory_order_relaxed)) [[unlikely]]
      begin(name, kind);
  }
  // name() -> StaticName, called only while somebody looks on.
  template <class F>
    requires requires(F& name) { StaticName(name()); }
  explicit Scope(F&& name, ScopeKind kind) noexcept {
    if (detail::g_watchers.load(std::memory_order_relaxed)) [[unlikely]]
      begin(name(), kind);
  }
  ~Scope() {
    if (slot_ || ranges_) [[unlikely]]
      end();
  }
  // make() -> OpInfo, called only while recording. What it throws reaches the caller.
  template <class F> void describe(F&& make) {
    if (slot_) [[unlikely]] {
      const int64_t t0 = now();
      slot_->info = make();
      slot_->describe_ns = uint32_t(now() - t0);
    }
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  static void* operator new(size_t) = delete;

 private:
  void begin(StaticName name, ScopeKind kind) noexcept;
  void end() noexcept;
  static int64_t now() noexcept;
  Record* slot_ = nullptr;
  const RangeCalls* ranges_ = nullptr;
};

// Stands tightly round a kernel call on the CPU: counts one launch for the innermost scope if that
// is an op, whose time outside it is `Disp`, or fetches data; does nothing elsewhere, and with
// `here` false: other devices tell their launches by core/device/launch_hook.h.
class KernelSpan {
 public:
  explicit KernelSpan(bool here = true) noexcept {
    if (here && recording()) [[unlikely]]
      begin();
  }
  ~KernelSpan() {
    if (buffer_) [[unlikely]]
      end();
  }
  KernelSpan(const KernelSpan&) = delete;
  KernelSpan& operator=(const KernelSpan&) = delete;
  static void* operator new(size_t) = delete;

 private:
  void begin() noexcept;
  void end() noexcept;
  detail::ThreadBuffer* buffer_ = nullptr;
  int64_t t0_ = 0;
};

}  // namespace sinter::profiler
