// The host half of kernel.h: every construct as plain C++ on the emulator (simt.h), which checks
// what a GPU would not.
#pragma once

#include <type_traits>

#include "core/device/simt.h"

#define SINTER_KERNEL void
#define SINTER_KERNEL_BOUNDS(...) void
#define SINTER_DEVICE_FN inline __attribute__((always_inline))
#define SINTER_UNROLL _Pragma("GCC unroll 16")
#define SINTER_NO_UNROLL

namespace sinter::SINTER_KERNEL_NS {

using simt::kOtherNan;
using simt::Where;

SINTER_DEVICE_FN int thread_x() { return simt::current->index; }
SINTER_DEVICE_FN int threads_per_block() { return simt::current->threads; }
SINTER_DEVICE_FN int lane() { return simt::current->lane; }
SINTER_DEVICE_FN int warp() { return simt::current->warp; }
SINTER_DEVICE_FN int warps_per_block() { return (simt::current->threads + 31) / 32; }
SINTER_DEVICE_FN int64_t block_x() { return simt::current->block[0]; }
SINTER_DEVICE_FN int64_t block_y() { return simt::current->block[1]; }
SINTER_DEVICE_FN int64_t block_z() { return simt::current->block[2]; }
SINTER_DEVICE_FN int64_t grid_x() { return simt::current->grid[0]; }
SINTER_DEVICE_FN int64_t grid_y() { return simt::current->grid[1]; }
SINTER_DEVICE_FN int64_t grid_z() { return simt::current->grid[2]; }

// An index that knows where in the source it was written: the counted build groups a warp's
// accesses by it.
#if defined(SINTER_COUNT_ACCESSES)
struct At {
  int64_t i;
  Where where;
  template <class I>
    requires std::is_integral_v<I>
  SINTER_DEVICE_FN At(I i, const Where& where = Where::current()) : i(i), where(where) {}
};
#else
using At = int64_t;
#endif

namespace detail {

// All bits set: what memory holds before it is written. Integers may hold that by right; of the
// floating-point NaN of these bits stored() makes another.
template <class T> SINTER_DEVICE_FN bool is_poison(const T& v) {
  if constexpr (std::is_same_v<T, float>) return __builtin_bit_cast(uint32_t, v) == 0xffffffffu;
  if constexpr (std::is_same_v<T, double>) return __builtin_bit_cast(uint64_t, v) == ~uint64_t{0};
  if constexpr (std::is_same_v<T, bf16>) return v.bits == 0xffffu;
  return false;
}

// Of n values from v: 16 bytes at once, or a kernel's inner loop would consist of this.
template <class T, int N> SINTER_DEVICE_FN bool any_poison(const T* v) {
  if constexpr ((std::is_same_v<T, float> || std::is_same_v<T, bf16>)&&sizeof(T) * N == 16) {
    using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int16_t>;
    typedef Bits Wide __attribute__((vector_size(16)));
    Wide bits;
    std::memcpy(&bits, v, 16);
    return __builtin_bit_cast(__int128, bits == -1) != 0;
  }
  bool poison = false;
  for (int k = 0; k < N; ++k) poison |= is_poison(v[k]);
  return poison;
}

// v as memory may hold it: a NaN still, but none that stands for "never written".
template <class T> SINTER_DEVICE_FN T stored(T v) {
  if (is_poison(v)) *reinterpret_cast<unsigned char*>(&v) = kOtherNan;
  return v;
}
template <class T, int N> SINTER_DEVICE_FN Vec<T, N> stored(Vec<T, N> v) {
  if (any_poison<T, N>(v.v)) {
    for (int k = 0; k < N; ++k) v.v[k] = stored(v.v[k]);
  }
  return v;
}

SINTER_DEVICE_FN int64_t index_of(const At& at) {
#if defined(SINTER_COUNT_ACCESSES)
  return at.i;
#else
  return at;
#endif
}

template <class T, int N>
[[noreturn]] void fail_poison_in(const char* what, const Vec<T, N>& v, int64_t first) {
  int k = 0;
  while (!is_poison(v.v[k])) ++k;
  simt::fail_poison(what, first + k);
}

}  // namespace detail

// An operand in device memory; In, Out and InOut below.
template <class T, bool kReads, bool kWrites> class Operand {
  using Stored = std::conditional_t<kWrites, T, const T>;

 public:
  Operand() = default;
  // Which counts goes the way of what is out of bounds: others do not wait for it.
  Operand(Stored* data, int64_t n) : data_(data), n_(simt::counts_sectors ? ~n : n) {}
  SINTER_DEVICE_FN explicit operator bool() const { return data_ != nullptr; }
  SINTER_DEVICE_FN Stored* data() const { return data_; }

  SINTER_DEVICE_FN T operator[](const At& at) const
    requires kReads
  {
    return load_vec<1>(at)[0];
  }
  SINTER_DEVICE_FN void put(const At& at, T v) const
    requires kWrites
  {
    store_vec(at, Vec<T, 1>{{v}});
  }
  template <int N>
  SINTER_DEVICE_FN Vec<T, N> load_vec(const At& at) const
    requires kReads
  {
    const int64_t i = detail::index_of(at);
    check_vec<N>(simt::Access::read, "read", at);
    Vec<T, N> v;
    for (int k = 0; k < N; ++k) v.v[k] = data_[i + k];
    if (detail::any_poison<T, N>(v.v)) detail::fail_poison_in("device memory", v, i);
    return v;
  }
  template <int N>
  SINTER_DEVICE_FN void store_vec(const At& at, const Vec<T, N>& v) const
    requires kWrites
  {
    const int64_t i = detail::index_of(at);
    check_vec<N>(simt::Access::write, "write", at);
    const Vec<T, N> kept = detail::stored(v);
    for (int k = 0; k < N; ++k) data_[i + k] = kept.v[k];
  }
  // The checked address of the 16 bytes from element i.
  SINTER_DEVICE_FN const T* vec_address(const At& at) const {
    check_vec<kVec<T>>(simt::Access::read, "cp_async16", at);
    return data_ + detail::index_of(at);
  }

 private:
  template <int N>
  SINTER_DEVICE_FN void check_vec(simt::Access access, const char* what, const At& at) const {
    const int64_t i = detail::index_of(at);
    if (i < 0 || i + N > n_) simt::count_or_fail(access, what, {i, N, n_, data_, sizeof(T)});
    if (reinterpret_cast<uintptr_t>(data_ + i) % (sizeof(T) * N))
      simt::fail_alignment(what, i, sizeof(T) * N);
#if defined(SINTER_COUNT_ACCESSES)
    simt::count_device(access, data_ + i, sizeof(T) * N, at.where);
#endif
  }
  Stored* data_ = nullptr;
  int64_t n_ = 0;
};
template <class T> using In = Operand<T, true, false>;
template <class T> using Out = Operand<T, false, true>;
template <class T> using InOut = Operand<T, true, true>;

struct SharedPlace {
  int r, c;
};
template <class T, int kRows, int kCols, int kPad = 0> class SharedTile {
 public:
  static constexpr int kStride = kCols + kPad;
  SINTER_DEVICE_FN T operator()(int r, int c, const Where& where = Where::current()) const {
    return load_vec<1>(r, c, where)[0];
  }
  SINTER_DEVICE_FN void put(int r, int c, T v, const Where& where = Where::current()) {
    store_vec(r, c, Vec<T, 1>{{v}}, where);
  }
  template <int N>
  SINTER_DEVICE_FN Vec<T, N> load_vec(int r, int c, const Where& where = Where::current()) const {
    check(r, c, N, where);
    Vec<T, N> v;
    for (int k = 0; k < N; ++k) v.v[k] = values_[r * kStride + c + k];
    if (detail::any_poison<T, N>(v.v)) detail::fail_poison_in("shared memory", v, r * kStride + c);
    return v;
  }
  template <int N>
  SINTER_DEVICE_FN void store_vec(
      int r, int c, const Vec<T, N>& v, const Where& where = Where::current()) {
    check(r, c, N, where);
    const Vec<T, N> kept = detail::stored(v);
    for (int k = 0; k < N; ++k) values_[r * kStride + c + k] = kept.v[k];
  }
  // The checked address of the n values from (r, c).
  SINTER_DEVICE_FN const T* at(int r, int c, int n, const Where& where = Where::current()) const {
    check(r, c, n, where);
    return values_ + r * kStride + c;
  }
  SINTER_DEVICE_FN static SharedPlace keep_place(int r, int c) { return {r, c}; }

 private:
  SINTER_DEVICE_FN void check(int r, int c, int n, [[maybe_unused]] const Where& where) const {
    if (static_cast<unsigned>(r) >= static_cast<unsigned>(kRows))
      simt::fail_bounds("shared tile row", r, kRows);
    if (c < 0 || c + n > kCols)
      simt::fail_bounds("shared tile column", c < 0 ? c : c + n - 1, kCols);
    if ((r * kStride + c) & (n - 1))
      simt::fail_alignment("shared tile", r * kStride + c, sizeof(T) * n);
#if defined(SINTER_COUNT_ACCESSES)
    simt::count_shared(values_ + r * kStride + c, sizeof(T) * n, where);
#endif
  }
  alignas(16) T values_[kRows * kStride];
};

template <class T, int N> class Shared {
 public:
  SINTER_DEVICE_FN T operator[](const At& at) const {
    const int64_t i = detail::index_of(at);
    if (static_cast<uint64_t>(i) >= N) simt::fail_bounds("shared memory read", i, N);
    touch(at);
    if (detail::is_poison(values_[i])) simt::fail_poison("shared memory", i);
    return values_[i];
  }
  SINTER_DEVICE_FN void put(const At& at, T v) {
    const int64_t i = detail::index_of(at);
    if (static_cast<uint64_t>(i) >= N) simt::fail_bounds("shared memory write", i, N);
    touch(at);
    values_[i] = detail::stored(v);
  }

 private:
  SINTER_DEVICE_FN void touch([[maybe_unused]] const At& at) const {
#if defined(SINTER_COUNT_ACCESSES)
    simt::count_shared(values_ + at.i, sizeof(T), at.where);
#endif
  }
  alignas(16) T values_[N];
};

template <class S> SINTER_DEVICE_FN S& shared() {
  static_assert(std::is_trivially_destructible_v<S>);
  if (sizeof(S) > simt::current->shared_bytes) simt::fail_shared(sizeof(S));
  return *reinterpret_cast<S*>(simt::current->shared);
}

template <class S> SINTER_DEVICE_FN void share(S& to, const S& from) {
  if (thread_x() == 0) to = from;
}

SINTER_DEVICE_FN void block_sync(const Where& where = Where::current()) { simt::block_sync(where); }
SINTER_DEVICE_FN void warp_sync(const Where& where = Where::current()) {
  uint32_t present;
  simt::warp_meet(simt::Operation::warp_sync, {}, present, where);
}

namespace detail {

using simt::LaneSlot;
using simt::Operation;

template <class T> SINTER_DEVICE_FN LaneSlot slot_of(const T& v) {
  static_assert(sizeof(T) <= sizeof(LaneSlot));
  LaneSlot slot = {};
  std::memcpy(slot.data, &v, sizeof v);
  return slot;
}
template <class T>
SINTER_DEVICE_FN T exchange(Operation operation, T v, int source, const Where& where) {
  uint32_t present;
  const LaneSlot* slots = simt::warp_meet(operation, slot_of(v), present, where);
  source &= 31;
  if (!(present >> source & 1)) simt::fail_absent(source, where);
  T out;
  std::memcpy(&out, slots[source].data, sizeof out);
  return out;
}
// An operation that takes all 32 lanes.
SINTER_DEVICE_FN const LaneSlot* meet_all(
    Operation operation, const LaneSlot& mine, const Where& where) {
  uint32_t present;
  const LaneSlot* slots = simt::warp_meet(operation, mine, present, where);
  if (present != 0xffffffffu) simt::fail_absent(__builtin_ctz(~present), where);
  return slots;
}

}  // namespace detail

template <class T> SINTER_DEVICE_FN T shfl(T v, int source, const Where& where = Where::current()) {
  return detail::exchange(simt::Operation::shfl, v, source, where);
}
template <class T>
SINTER_DEVICE_FN T shfl_xor(T v, int mask, const Where& where = Where::current()) {
  return detail::exchange(simt::Operation::shfl_xor, v, lane() ^ mask, where);
}

SINTER_DEVICE_FN uint32_t ballot(bool yes, const Where& where = Where::current()) {
  uint32_t bits = yes ? 1u << lane() : 0;
  for (int mask = 16; mask > 0; mask >>= 1) bits |= shfl_xor(bits, mask, where);
  return bits;
}
SINTER_DEVICE_FN int first_bit(uint32_t bits) { return __builtin_ctz(bits); }

SINTER_DEVICE_FN void wait_for_upstream() { simt::current->waited = true; }
SINTER_DEVICE_FN void begin_dependents() {
  if (!simt::current->waited) simt::fail("begin_dependents() before wait_for_upstream()");
}

SINTER_DEVICE_FN bool ticket(
    InOut<uint32_t> counter, uint32_t n, int64_t i = 0, const Where& where = Where::current()) {
  if (!counter) simt::fail("ticket without a counter");
  return simt::ticket(counter.data() + i, n, where);
}

// The target holds poison until the copy lands: whoever reads it before, even the data of the stage
// before, is told.
template <class T, int R, int C, int P>
SINTER_DEVICE_FN void cp_async16(SharedTile<T, R, C, P>& tile, int r, int c, const In<T>& in,
    const At& i, bool valid, const Where& where = Where::current()) {
  T* to = const_cast<T*>(tile.at(r, c, kVec<T>, where));
  simt::cp_async16({to, valid ? in.vec_address(i) : nullptr});
  std::memset(static_cast<void*>(to), 0xff, 16);
}
template <class T> class Cursor {
 public:
  Cursor() = default;
  SINTER_DEVICE_FN Cursor(const In<T>& in, int64_t i) : in_(in), i_(i) {}
  SINTER_DEVICE_FN Cursor behind(uint64_t bytes) const {
    return {in_, i_ + static_cast<int64_t>(bytes / sizeof(T))};
  }
  SINTER_DEVICE_FN T operator[](At i) const {
#if defined(SINTER_COUNT_ACCESSES)
    i.i += i_;
#else
    i += i_;
#endif
    return in_[i];
  }
  SINTER_DEVICE_FN const In<T>& in() const { return in_; }
  SINTER_DEVICE_FN int64_t i() const { return i_; }

 private:
  In<T> in_;
  int64_t i_ = 0;
};
template <class T, int R, int C, int P>
SINTER_DEVICE_FN void cp_async16(SharedTile<T, R, C, P>& tile, int r, int c, const Cursor<T>& from,
    bool valid = true, const Where& where = Where::current()) {
  cp_async16(tile, r, c, from.in(), from.i(), valid, where);
}
template <class I> SINTER_DEVICE_FN I keep(I i) { return i; }
template <class S> SINTER_DEVICE_FN int keep_shared(S&) { return 0; }
template <class S> SINTER_DEVICE_FN S& shared_at(S& s, int at) {
  return *reinterpret_cast<S*>(reinterpret_cast<char*>(&s) + at);
}
SINTER_DEVICE_FN void cp_async_commit() { simt::cp_async_commit(); }
template <int kLeft> SINTER_DEVICE_FN void cp_async_wait() {
  for (const auto& [to, from] : simt::cp_async_landing(kLeft)) {
    if (from) {
      std::memcpy(to, from, 16);
    } else {
      std::memset(to, 0, 16);
    }
  }
}

namespace detail {
// Lane l gave the address of row l % 8 of matrix l / 8. Register j of lane l holds elements 2 (l %
// 4), + 1 of row l / 4 of matrix j; of 32-bit values element l % 4.
template <bool kTransposed, class T, int R, int C, int P>
Vec<uint32_t, 4> ldmatrix(const SharedTile<T, R, C, P>& tile, int r, int c, const Where& where) {
  const auto* slots = meet_all(kTransposed ? Operation::ldmatrix_x4_trans : Operation::ldmatrix_x4,
      slot_of(tile.at(r, c, kVec<T>, where)), where);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  constexpr int kHalves = 4 / sizeof(T);  // values to a register
  Vec<uint32_t, 4> d{};
  for (int j = 0; j < 4; ++j) {
    for (int k = 0; k < kHalves; ++k) {
      const int along = kHalves * (lane() % 4) + k, across = lane() / 4;
      const Bits* from;
      std::memcpy(&from, slots[j * 8 + (kTransposed ? along : across)].data, sizeof from);
      from += kTransposed ? across : along;
      if (*from == Bits(~Bits{}))
        simt::fail_poison("shared memory by ldmatrix", from - reinterpret_cast<const Bits*>(&tile));
      d.v[j] |= uint32_t{*from} << (16 * k);
    }
  }
  return d;
}

struct Fragments {
  uint32_t a[4], b[2];
};
// d[row, column] += sum_k a[row, k] b[k, column] for this lane's four of the 16 x 8 results: rows g
// and g + 8, columns 2t and 2t + 1 with g = lane / 4, t = lane % 4. kHalves values to a register
// (bf16: 2, tf32: 1); k runs over 2 register columns of 4 kHalves values each.
template <int kHalves>
void mma(Operation operation, Vec<float, 4>& d, const Vec<uint32_t, 4>& a,
    const Vec<uint32_t, 2>& b, const Where& where) {
  const auto* slots = meet_all(
      operation, slot_of(Fragments{{a.v[0], a.v[1], a.v[2], a.v[3]}, {b.v[0], b.v[1]}}), where);
  const auto lane_of = [&](int row, int k) {
    return reinterpret_cast<const Fragments*>(slots[row * 4 + k % (4 * kHalves) / kHalves].data);
  };
  const auto value = [](uint32_t bits, int half) {  // tf32: the low 13 bits are not read
    return __builtin_bit_cast(float, kHalves == 1 ? bits & 0xffffe000u
                                     : half       ? bits & 0xffff0000u
                                                  : bits << 16);
  };
  const int g = lane() / 4, t = lane() % 4;
  for (int k = 0; k < 8 * kHalves; ++k) {
    const int column = k / (4 * kHalves), half = k % kHalves;  // of the registers
    const float upper = value(lane_of(g, k)->a[column * 2], half),
                lower = value(lane_of(g, k)->a[column * 2 + 1], half);
    const float left = value(lane_of(2 * t, k)->b[column], half),
                right = value(lane_of(2 * t + 1, k)->b[column], half);
    d.v[0] = math::mul_add(upper, left, d.v[0]);
    d.v[1] = math::mul_add(upper, right, d.v[1]);
    d.v[2] = math::mul_add(lower, left, d.v[2]);
    d.v[3] = math::mul_add(lower, right, d.v[3]);
  }
}
}  // namespace detail

template <class T, int R, int C, int P>
SINTER_DEVICE_FN Vec<uint32_t, 4> ldmatrix_x4(
    const SharedTile<T, R, C, P>& tile, int r, int c, const Where& where = Where::current()) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  return detail::ldmatrix<false>(tile, r, c, where);
}
template <class T, int R, int C, int P>
SINTER_DEVICE_FN Vec<uint32_t, 4> ldmatrix_x4_trans(
    const SharedTile<T, R, C, P>& tile, int r, int c, const Where& where = Where::current()) {
  static_assert(sizeof(T) == 2);
  return detail::ldmatrix<true>(tile, r, c, where);
}
SINTER_DEVICE_FN void mma_bf16_m16n8k16(Vec<float, 4>& d, const Vec<uint32_t, 4>& a,
    const Vec<uint32_t, 2>& b, const Where& where = Where::current()) {
  detail::mma<2>(simt::Operation::mma_bf16_m16n8k16, d, a, b, where);
}
SINTER_DEVICE_FN uint32_t to_tf32(float x) {
  const uint32_t bits = math::to_bits(x);
  return x == x ? (bits + 0x1000u) & 0xffffe000u : bits | 0x2000u;
}
SINTER_DEVICE_FN void to_tf32(uint32_t& a, uint32_t& b) {
  a = to_tf32(math::from_bits(a));
  b = to_tf32(math::from_bits(b));
}
SINTER_DEVICE_FN void mma_tf32_m16n8k8(Vec<float, 4>& d, const Vec<uint32_t, 4>& a,
    const Vec<uint32_t, 2>& b, const Where& where = Where::current()) {
  detail::mma<1>(simt::Operation::mma_tf32_m16n8k8, d, a, b, where);
}

SINTER_DEVICE_FN uint32_t to_bf16_pair(float a, float b) {
  return uint32_t{bf16(a).bits} | uint32_t{bf16(b).bits} << 16;
}
SINTER_DEVICE_FN float larger(float a, float b) { return math::max_or_nan(a, b); }

SINTER_DEVICE_FN void fault(uint32_t*, Fault fault, int64_t i, int64_t value, int64_t count) {
  simt::fail_fault(static_cast<uint32_t>(fault), i, value, count);
}

}  // namespace sinter::SINTER_KERNEL_NS
