// calibrate: measures what this machine can do, and keeps it for the profiler's tables.
#include <fmt/format.h>

#include "cli/commands.h"
#include "core/json.h"
#include "core/parallel.h"
#include "measure/calibrate.h"
#include "measure/threads.h"

namespace sinter::cli {

void add_calibrate(App& app, Command& command) {
  command.run = [&app](Output& out) {
    const CommonFlags& common = app.common();
    const Device device = choose_device(common.device).first;
    if (device == kCpu && common.threads == 0) set_num_threads(available_cores());
    const profiler::Roofs r = measure::calibrate(device);
    const std::string file = r.loaded ? "" : profiler::roofs_file(device);
    if (!file.empty()) profiler::save_roofs(r, file);
    out.result("on", r.key);
    out.result("GEMM", "f32 {:.0f} GFLOP/s   bf16 {:.0f}", r.f32_gflops, r.bf16_gflops);
    out.result("copy", "{:.1f} GB/s in cache ({}), {:.1f} beyond", r.cache_gbs,
        bytes(r.cache_bytes), r.dram_gbs);
    out.result("host", "{:.2f} us per op{}", r.op_ns / 1e3,
        device == kCpu
            ? ""
            : fmt::format(", {:.2f} us per kernel of a graph, its gap included", r.floor_ns / 1e3));
    out.result("profiler", "{:.0f} ns per scope", r.scope_ns);
    out.result("spread",
        "{:.0f} % between the best and the usual run; other programs kept {:.1f} cores busy",
        100 * r.spread, r.others_cores);
    if (!r.loaded)
      out.note(
          "kept", file.empty() ? "nowhere: neither XDG_CACHE_HOME nor HOME is set" : escaped(file));
    if (const int n = device == kCpu ? measure::forget_threads() : 0; n > 0)
      out.note("threads", "{} of how many threads a step has forgotten: each is tried anew",
          count_of(n, "choice"));
    Json object = r;
    object["file"] = file;
    out.json("sinter.roofs/1", object);
    if (r.loaded) profiler::save_roofs(r, "");  // says why they are not kept
    return 0;
  };
}

}  // namespace sinter::cli
