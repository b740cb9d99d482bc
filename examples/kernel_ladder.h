// What the ladders of kernels share, 09_kernel_ladder and 14_attention_ladder: each rung makes the
// same result, is checked, and is a line of a table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/device/simt.h"

namespace sinter {

// Memory of the emulated device is the host's, so that it can be filled directly.
template <class T, class F> T* on_device(int count, const F& value) {
  T* data = static_cast<T*>(simt::allocator().allocate(size_t(count) * sizeof(T)));
  for (int i = 0; i < count; ++i) data[i] = T(float(value(i)));
  return data;
}

struct Rung : simt::Counters {  // what all warps did, together
  double sectors_per_request, flops_per_byte;
};

struct Ladder {
  double flops;
  std::vector<double> want;
  double tolerance = 0;
  float* result = on_device<float>(int(want.size()), [](int) { return 0; });
  bool right = true;

  // A note of a rung stands below the two lines of its title.
  static void head(const char* title, const char* title_below) {
    std::printf("%-20s %17s %6s %18s %8s %10s %6s\n", "", "device memory", "per", "shared memory",
        "", title, "FLOP/");
    std::printf("%-20s %8s %8s %6s %8s %9s %8s %10s %6s\n", "", "requests", "sectors", "req.",
        "accesses", "conflicts", "barriers", title_below, "byte");
  }
  // A launch only queues the kernel; taking the counters waits for it. Without a note the table
  // says how much arithmetic it was.
  template <class F> Rung step(const char* name, std::string note, const F& run) {
    std::fill_n(result, want.size(), 0.0f);
    run();
    const simt::Counters c = simt::take_counters();
    for (size_t i = 0; i < want.size(); ++i)
      right = right && std::abs(result[i] - want[i]) <= tolerance;
    if (note.empty())
      note = c.mma > 0 ? std::to_string(c.mma) + " mma" : std::to_string(int(flops / 64)) + " fma";
    const double sectors = double(c.request_sectors);
    const Rung rung{c, sectors / double(c.requests), flops / (32 * sectors)};
    const int decimals = rung.flops_per_byte < 0.1 ? 3 : rung.flops_per_byte < 1 ? 2 : 1;
    std::printf("%-20s %8ld %8.0f %6.1f %8ld %9ld %8ld %10s %6.*f\n", name, long(c.requests),
        sectors, rung.sectors_per_request, long(c.shared_accesses), long(c.bank_conflicts),
        long(c.barriers), note.c_str(), decimals, rung.flops_per_byte);
    return rung;
  }
};
inline double times(int64_t before, int64_t after) { return double(before) / double(after); }

}  // namespace sinter
