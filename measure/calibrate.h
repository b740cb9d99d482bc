// What this machine can do, measured: the roofs that the profiler's tables compare with. Takes
// about half a second on a CPU, and is kept (profiler/roofs.h), so that it runs once by itself. It
// lives here since it needs ops.
#pragma once

#include "core/device/device.h"
#include "profiler/roofs.h"

namespace sinter::measure {

// Best rates over a few runs of each kind, now; beside other programs up to three times, the least
// disturbed counts. REQUIRES: this thread's tape is not needed any more. Error (usage): simt, whose
// times mean nothing.
profiler::Roofs calibrate(Device device);

// From the file, else measured and, unless it was under load, kept; a file that cannot be read or
// written is passed over. `fresh`: was it measured just now, and kept?
profiler::Roofs calibrated(Device device, bool* fresh = nullptr);

// Seconds that all cores have worked, by the first line of /proc/stat.
double busy_seconds(const std::string& proc_stat);
// Do others take cores that this many threads need?
bool is_loaded(double others_cores, int threads, int cores);

}  // namespace sinter::measure
