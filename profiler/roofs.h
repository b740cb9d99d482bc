// Roofs: what this machine can do, measured by measure/calibrate.cpp, and what work should cost
// under them. Plain data, pure functions; and the file that keeps roofs in
// ${XDG_CACHE_HOME:-~/.cache}/sinter/ by CPU or card, threads, driver and build, from which every
// session takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/device/device.h"
#include "core/fields.h"
#include "profiler/cost.h"

namespace sinter::profiler {

struct Roofs {
  std::string key;  // what they were measured on: CPU or GPU, threads, driver, build
  // Best matrix product, GFLOP/s = FLOP/ns; 0: not measured
  double f32_gflops = 0, bf16_gflops = 0;
  // Copy rate within the cache and beyond it, read + written, GB/s = B/ns
  double cache_gbs = 0, dram_gbs = 0;
  int64_t cache_bytes = 0;  // LLC, or L2 of a card
  double op_ns = 0;         // host time of one op without work
  double floor_ns = 0;      // of an empty kernel; 0 on cpu, whose floor is op_ns
  // Between two nodes of a CUDA graph; 0: not known, then the floor holds it
  double node_gap_ns = 0;
  // What the profiler itself costs: a scope; on a card, a launch that is timed
  double scope_ns = 0, event_ns = 0;
  // Median over best run, less one, of the kind where it is largest; 0: not known
  double spread = 0;
  double others_cores = 0;  // that other programs kept busy meanwhile
  // Measured beside so much other work that they may be far too low: never kept
  bool loaded = false;
  // Of the file, and of `mnist calibrate --json`.
  SINTER_FIELD_LIST(key, f32_gflops, bf16_gflops, cache_gbs, dram_gbs, cache_bytes, op_ns, floor_ns,
      node_gap_ns, scope_ns, event_ns, spread, others_cores)
};

// What roofs of this device are filed under, now.
std::string roofs_key(Device device);
// The file of the cache; "" without a home.
std::string roofs_file(Device device);
// Nothing where there is no file, or it cannot be read. Of simt nothing.
std::optional<Roofs> stored_roofs(Device device);
// Error (untrusted): they were measured under load.
void save_roofs(const Roofs& roofs, const std::string& file);

// The roofs as one report uses them: the matrix rate of its dtype, the copy rate of its working
// set.
struct Ceiling {
  double flops_per_ns = 0, bytes_per_ns = 0, floor_ns = 0;  // floor: of one launch
  bool in_cache = false;
  std::string key{};  // of the roofs, and how far apart their runs lay
  double spread = 0;
  // Rates are of a second in files.
  SINTER_FIELD_LIST(key,
      named("gemm_flops", through([&] { return flops_per_ns * 1e9; },
                              [&](auto flops) { flops_per_ns = flops / 1e9; })),
      named("copy_bytes", through([&] { return bytes_per_ns * 1e9; },
                              [&](auto bytes) { bytes_per_ns = bytes / 1e9; })),
      floor_ns, in_cache, newer(spread))

  bool known() const { return flops_per_ns > 0 && bytes_per_ns > 0; }
  // The longer of computing and moving; 0 without roofs.
  double work_ns(const Cost& cost) const;
  bool compute_is_nearer(const Cost& cost) const;  // the longer one
  // And the launches. 0 without roofs.
  double predicted_ns(int64_t launches, const Cost& cost) const;
  // Share of the nearer roof that work reaches which took so long; 0 for no time.
  double share(const Cost& cost, double ns) const;
};

}  // namespace sinter::profiler
