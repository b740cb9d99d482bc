// Lists kernel launches for tests and reports; checks their shapes. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "core/device/grid.h"

namespace sinter {

// A kernel's name from the compiler's spelling of its address: without namespaces of ours.
std::string kernel_name_in(std::string_view pretty_function);

// Throws state for a shape that no device takes; then logs the launch.
void log_launch(const LaunchShape& shape);

// While it lives, all launches of the process are listed here. One at a time.
class LaunchLog {
 public:
  LaunchLog();
  ~LaunchLog();
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;
  std::vector<LaunchShape> launches() const;
};

}  // namespace sinter
