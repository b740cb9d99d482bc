// What this machine can do, measured: the roofs that the profiler's tables judge by. Takes about half a second on a CPU; kept in
// ${XDG_CACHE_HOME:-~/.cache}/sinter/ by CPU or card, threads, driver and build, so that it runs once by itself. It lives here since it
// needs ops.
#pragma once

#include "core/device/device.h"
#include "profiler/roofs.h"

namespace sinter::capture {

// Best rates over a few runs of each kind, now. REQUIRES: this thread's tape is not needed any more. Error (usage): simt, whose times mean
// nothing.
profiler::Roofs calibrate(Device device);

// From the cache, else measured and kept; a cache that cannot be read or written is passed over. `fresh`: was it measured just now?
profiler::Roofs calibrated(Device device, bool* fresh = nullptr);
// The file of the cache; "" without a home.
std::string roofs_file(Device device);
void save_roofs(const profiler::Roofs& roofs, const std::string& file);

}  // namespace sinter::capture
